"""Compute tells load that the vector was read, store tells compute that the sums were written."""

from vta_sim.core.kinds import Memory, Module


def program(queue, vectors, weights, target, turns):
    load, compute, store = Module.LOAD, Module.COMPUTE, Module.STORE
    queue.load_buffer_2d(weights, 0, (1, 1), 1, 0, Memory.WGT)
    for turn in range(turns):
        if turn > 0:
            queue.dep_pop(compute, load)
        queue.load_buffer_2d(vectors, turn, (1, 1), 1, 0, Memory.INP)
        queue.dep_push(load, compute)
        queue.dep_pop(load, compute)
        if turn > 0:
            queue.dep_pop(store, compute)
        queue.gemm("reset", lambda k: k.gemm(dst=0, src=0, wgt=0, reset=True))
        queue.gemm("multiply", lambda k: k.gemm(dst=0, src=0, wgt=0))
        queue.dep_push(compute, store)
        if turn < turns - 1:
            queue.dep_push(compute, load)
        queue.dep_pop(compute, store)
        queue.store_buffer_2d(0, target, turn, (1, 1), 1)
        if turn < turns - 1:
            queue.dep_push(store, compute)
