"""Chapter 11, 30 minutes: tokens between the modules of VTA.

The modules load, compute and store run side by side; only tokens put their work in order: `queue.dep_push(a, b)` lets
a give b a token when its last instruction ends, `queue.dep_pop(a, b)` makes the next instruction of b wait for one.

`program` multiplies `turns` vectors by one matrix. Every turn loads a vector into the same place of INP, multiplies,
and stores the result. The tokens load -> compute and compute -> store are there. Two are missing, without which the
second turn overwrites what the first still reads: add them. The device watches every access (`finds_races`).
"""

from vta_sim.core.kinds import Memory, Module


def program(queue, vectors, weights, target, turns):
    load, compute, store = Module.LOAD, Module.COMPUTE, Module.STORE
    queue.load_buffer_2d(weights, 0, (1, 1), 1, 0, Memory.WGT)
    for turn in range(turns):
        queue.load_buffer_2d(vectors, turn, (1, 1), 1, 0, Memory.INP)  # who may still read what lies there? ...
        queue.dep_push(load, compute)
        queue.dep_pop(load, compute)
        queue.gemm("reset", lambda k: k.gemm(dst=0, src=0, wgt=0, reset=True))
        queue.gemm("multiply", lambda k: k.gemm(dst=0, src=0, wgt=0))
        queue.dep_push(compute, store)
        queue.dep_pop(compute, store)
        queue.store_buffer_2d(0, target, turn, (1, 1), 1)
