"""Schedules of products and convolutions with tiles in shared memory, for the tests of double buffering."""

from __future__ import annotations

from dataclasses import dataclass

import te_lite as te
from ansor_ext.pipeline.steps import DoubleBuffer
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import Length
from tests.conv_layer import conv2d_layer, cuda_steps
from tests.workloads import matmul


@dataclass(frozen=True)
class Product:
    """`C[n, m] = sum over k`, in tiles of `rows` x `columns` x `depth`; a thread has `lanes` x 1 points of a tile.

    `serial` leaves the loop over tiles of rows inside a block instead of binding it.
    """

    n: int
    m: int
    k: int
    rows: int
    columns: int
    depth: int
    lanes: int = 1
    serial: bool = False
    unroll: int = 0
    align: int = 0

    def state(self, ahead: bool = True) -> State:
        a, b, c = matmul(self.n, self.m, self.k)
        s = te.create_schedule(c.op)
        (local,) = s.cache_write([c], "local")
        tiles = [s.cache_read(x, "shared", [local]) for x in (a, b)]
        y, x = s[c].op.axis
        block_i, block_j, row, j = s[c].tile(y, x, self.rows, self.columns)
        v, i = s[c].split(row, nparts=self.lanes)
        s[c].reorder(block_j, block_i, v, i, j)
        for loop, tag in ((block_j, "blockIdx.x"), (v, "vthread"), (i, "threadIdx.y"), (j, "threadIdx.x")):
            s[c].bind(loop, tag)
        if not self.serial:
            s[c].bind(block_i, "blockIdx.y")
        s[local].compute_at(s[c], j)
        (k,) = s[local].op.reduce_axis
        outer, inner = s[local].split(k, factor=self.depth)
        s[local].reorder(outer, inner, *s[local].op.axis)
        s[local].pragma(outer, "auto_unroll_max_step", self.unroll)
        for tile in tiles:
            s[tile].compute_at(s[local], outer)
            if self.align:
                s[tile].storage_align(s[tile].op.axis[0], self.align, 1)
            rest, column = s[tile].split(s[tile].fuse(*s[tile].op.axis), factor=self.columns)
            s[tile].bind(column, "threadIdx.x")
            s[tile].bind(s[tile].split(rest, factor=self.rows // self.lanes)[1], "threadIdx.y")
            if ahead:
                s[tile].double_buffer()
        return s.state


PRODUCTS = {
    "whole tiles": Product(16, 24, 32, 4, 8, 8),
    "cut tiles": Product(17, 23, 29, 4, 8, 6),
    "one turn": Product(9, 8, 5, 4, 4, 8),
    "two turns": Product(9, 8, 11, 4, 4, 8),
    "virtual threads": Product(16, 24, 31, 8, 8, 5, lanes=2),
    "run again, odd turns": Product(17, 8, 15, 4, 8, 5, serial=True),
    "run again, even turns": Product(17, 8, 20, 4, 8, 5, serial=True),
    "unrolled": Product(8, 9, 12, 4, 4, 3, unroll=512),
    "aligned rows": Product(16, 24, 40, 8, 8, 8, align=32),
}


@dataclass(frozen=True)
class Convolution:
    """The tutorial's schedule of a convolution with bias and relu, with tile lengths of its nine splits."""

    shape: tuple[int, ...]
    factors: tuple[tuple[Length, ...], ...]
    unroll: int = 0

    def state(self, ahead: bool = True) -> State:
        steps = cuda_steps(self.factors, self.unroll)
        return replay(te.ComputeDAG(conv2d_layer(*self.shape)), [*steps, *[DoubleBuffer(k) for k in (4, 2) if ahead]])


# shape: batch, height, width, channels out and in, kernel, stride, padding
CONVOLUTIONS = {
    "three loops": Convolution(
        (2, 7, 9, 6, 5, 3, 2, 1),
        ((1, 2, 1, 1), (1, 3, 2, 1), (1, 2, 1, 1), (1, 5, 1, 1), (2, 1), (1, 1), (1, 3), (1,), (1,)),
    ),
    "one long loop": Convolution(
        (1, 8, 8, 8, 7, 3, 1, 1),
        ((1, 1, 1, 1), (2, 4, 1, 1), (1, 2, 2, 1), (1, 4, 1, 2), (1, 2), (3, 1), (3, 1), (1,), (1,)),
        unroll=64,
    ),
    "vectors": Convolution(
        (1, 8, 8, 8, 8, 1, 1, 0),
        ((1, 1, 1, 1), (2, 4, 1, 1), (1, 2, 2, 1), (1, 8, 1, 1), (2, 2), (1, 1), (1, 1), (4,), (4,)),
    ),
    "wide padding": Convolution(
        (3, 5, 5, 4, 3, 5, 3, 2),
        ((1, 3, 1, 1), (1, 2, 1, 2), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1), (2, 1), (1, 5), (1,), (2,)),
    ),
}
PROGRAMS: dict[str, Product | Convolution] = {**PRODUCTS, **CONVOLUTIONS}
