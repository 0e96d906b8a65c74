"""Golden texts: eight programs, each as its loop nest and as the source that is compiled.

    python -m tests.golden_texts            writes tests/golden/programs anew; read the difference before you keep it

Every program is made by the schedule primitives below, by hand, to show one thing.  The C text is that for a processor
with vectors of 32 bytes, whatever this machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import codegen_c
import codegen_cuda
import te_lite as te
from codegen_c.processor import PROCESSORS
from te_lite import topi
from te_lite.schedule.state import State
from tests.workloads import matmul

FOLDER = Path(__file__).parent / "golden" / "programs"
PROCESSOR = PROCESSORS["avx2"]
Made = Callable[[], State]


# ---------------------------------------------------------------------------------------------------- processor


def elementwise() -> State:
    """Two stages in one loop nest: the inner one is inlined, the loops are fused and run in parallel."""
    a, b = te.placeholder((12, 7), name="A"), te.placeholder((7,), name="bias")
    scaled = te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="scaled")
    out = te.compute(a.shape, lambda i, j: te.maximum(scaled[i, j] + b[j], 0.0), name="out")
    s = te.Schedule(te.ComputeDAG([a, b, out]))
    s[scaled].compute_inline()
    s[out].parallel(s[out].fuse(*out.op.axis))
    return s.state


def matmul_registers() -> State:
    """A tile of 4 x 16 sums in registers: vectors of 8 along a row, unrolled over the rows."""
    a, b, c = matmul(64, 64, 48)
    s = te.Schedule(te.ComputeDAG([a, b, c]))
    y, x = c.op.axis
    (k,) = c.op.reduce_axis
    block_y, block_x, row, column = s[c].tile(y, x, 4, 16)
    outer, lanes = s[c].split(column, factor=8)
    s[c].reorder(block_y, block_x, k, row, outer, lanes)
    s[c].parallel(block_y)
    s[c].vectorize(lanes)
    s[c].pragma(block_y, "auto_unroll_max_step", 16)
    return s.state


def conv_padding() -> State:
    """A convolution whose padded input is computed where it is read: each value is guarded."""
    data, kernel = te.placeholder((1, 3, 8, 8), name="data"), te.placeholder((4, 3, 3, 3), name="kernel")
    conv = topi.nn.conv2d_nchw(data, kernel, 1, 1, dilation=1)
    s = te.Schedule(te.ComputeDAG([data, kernel, conv]))
    (pad,) = [t for t in conv.op.input_tensors() if t.name == "pad_temp"]
    _, channel, row, column = conv.op.axis
    channels, ry, rx = conv.op.reduce_axis
    s[conv].reorder(channel, row, channels, ry, rx, column)
    s[conv].parallel(channel)
    s[conv].vectorize(column)
    s[pad].compute_at(s[conv], channels)
    return s.state


def rfactor() -> State:
    """A long sum for each of 4 rows, which run in parallel: as 8 sums in one vector, which a second nest adds up."""
    a = te.placeholder((4, 4096), name="A")
    k = te.reduce_axis((0, 4096), name="k")
    total = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="total")
    s = te.Schedule(te.ComputeDAG([a, total]))
    _, inner = s[total].split(k, factor=8)
    (parts,) = [s.rfactor(total, inner, 1)]
    s[parts].parallel(parts.op.axis[0])
    (rest,) = parts.op.reduce_axis
    s[parts].reorder(parts.op.axis[0], rest, parts.op.axis[1])
    s[parts].vectorize(parts.op.axis[1])
    return s.state


# ---------------------------------------------------------------------------------------------------------- GPU


def blocked(depth: int, threads: tuple[int, int], vthreads: int, ahead: bool) -> State:
    """A matrix product of 64 x 64 x 64 by blocks, tiles of both inputs in shared memory, sums in local memory."""
    a, b, c = matmul(64, 64, 64)
    s = te.Schedule(te.ComputeDAG([a, b, c]))
    (local,) = s.cache_write([c], "local")
    tiles = [s.cache_read(x, "shared", [local]) for x in (a, b)]
    y, x = s[c].op.axis
    block_y, block_x, row, j = s[c].tile(y, x, threads[0] * vthreads, threads[1])
    v, i = s[c].split(row, nparts=vthreads)
    s[c].reorder(block_y, block_x, v, i, j)
    for loop, tag in ((block_y, "blockIdx.y"), (block_x, "blockIdx.x"), (v, "vthread"), (i, "threadIdx.y"),
                      (j, "threadIdx.x")):  # fmt: skip
        s[c].bind(loop, tag)
    s[local].compute_at(s[c], j)
    (k,) = s[local].op.reduce_axis
    outer, inner = s[local].split(k, factor=depth)
    s[local].reorder(outer, inner, *s[local].op.axis)
    for tile in tiles:
        s[tile].compute_at(s[local], outer)
        rest, column = s[tile].split(s[tile].fuse(*s[tile].op.axis), factor=threads[1])
        s[tile].bind(column, "threadIdx.x")
        s[tile].bind(s[tile].split(rest, factor=threads[0])[1], "threadIdx.y")
        if ahead:
            s[tile].double_buffer()
    return s.state


def matmul_shared() -> State:
    """Tiles of both inputs in shared memory, two virtual threads a thread, a barrier before and after the sums."""
    return blocked(8, (8, 16), 2, ahead=False)


def double_buffer() -> State:
    """Two tiles of each input in shared memory: the next ones are fetched while these are multiplied."""
    return blocked(8, (8, 16), 1, ahead=True)


def cross_thread() -> State:
    """A row is summed by the 32 threads of a block, which then add their sums up."""
    a = te.placeholder((16, 1000), name="A")
    k = te.reduce_axis((0, 1000), name="k")
    total = te.compute((16,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="total")
    s = te.Schedule(te.ComputeDAG([a, total]))
    s[total].bind(total.op.axis[0], "blockIdx.x")
    s[total].bind(s[total].split(k, factor=32)[1], "threadIdx.x")
    return s.state


def vector_loads() -> State:
    """Four values a load, read together by all threads of a block into shared memory; the sums are unrolled."""
    a = te.placeholder((64, 128), name="A")
    k = te.reduce_axis((0, 128), name="k")
    total = te.compute((64,), lambda i: te.sum(a[i, k], axis=k), name="total")
    s = te.Schedule(te.ComputeDAG([a, total]))
    tile = s.cache_read(a, "shared", [total])
    block, thread = s[total].split(total.op.axis[0], factor=32)
    s[total].bind(block, "blockIdx.x")
    s[total].bind(thread, "threadIdx.x")
    outer, _ = s[total].split(k, factor=16)
    s[total].pragma(outer, "auto_unroll_max_step", 16)
    s[tile].compute_at(s[total], outer)
    rest, lanes = s[tile].split(s[tile].fuse(*s[tile].op.axis), factor=4)
    s[tile].vectorize(lanes)
    s[tile].bind(s[tile].split(rest, factor=32)[1], "threadIdx.x")
    return s.state


CPU: tuple[Made, ...] = (elementwise, matmul_registers, conv_padding, rfactor)
GPU: tuple[Made, ...] = (matmul_shared, double_buffer, cross_thread, vector_loads)


def texts(made: Made) -> Iterator[tuple[str, str]]:
    """The name of each file of a program, and what stands in it."""
    func = te.lower(made(), name=made.__name__)
    about = " ".join((made.__doc__ or "").split())
    yield "lowered.txt", f"{about}\n\n{str(func).rstrip()}\n"
    if made in CPU:
        yield "program.c", codegen_c.emit(func, name=made.__name__, options=PROCESSOR)
    else:
        yield "program.cu", codegen_cuda.emit(func, comment=about).source


def write(folder: Path = FOLDER) -> None:
    """Write all texts anew."""
    for made in (*CPU, *GPU):
        place = folder / made.__name__
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts(made):
            (place / name).write_text(text)


if __name__ == "__main__":
    write()
