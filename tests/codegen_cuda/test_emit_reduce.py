"""Reductions across threads: every shape of group, combiner and dtype, against the interpreter."""

from __future__ import annotations

import shutil
from math import prod

import numpy as np
import pytest

import te_lite as te
from te_lite.expr.expr import Combiner, Expr, as_expr, binary, cast, compare
from te_lite.expr.reduction import all_reduce, any_reduce
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, LoweredFunc, Store, ThreadReduce, seq
from te_lite.lowering.sync import insert_barriers
from tests.codegen_cuda.gpu_nests import argmax_of, check, func, kernel, sum_of, v

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def reduction(
    block: tuple[int, ...], axis: int, active: int, combiner: Combiner, rounds: int = 1, blocks: int = 3
) -> LoweredFunc:
    """Each thread offers `rounds` elements one after the other and stores every result it gets."""
    threads, b, r = v("tx", "ty", "tz")[: len(block)], *v("b", "r")
    lane: Expr = as_expr(0)
    for t, extent in reversed(list(zip(threads, block, strict=True))):
        lane = binary("+", binary("*", lane, extent), t)
    at = (b * rounds + r) * prod(block) + lane
    shape = (blocks, rounds, *reversed(block))
    sources = [Buffer(f"A{k}", x.dtype, shape) for k, x in enumerate(combiner.lhs)]
    outs = [Buffer(f"O{k}", x.dtype, shape) for k, x in enumerate(combiner.lhs)]
    totals = [Buffer(f"total{k}", x.dtype, (1,), "local") for k, x in enumerate(combiner.lhs)]
    meet = ThreadReduce(combiner, tuple(totals), tuple([a[at] for a in sources]), threads[axis], active)
    body = seq(meet, *[Store(o, at, t[0]) for o, t in zip(outs, totals, strict=True)])
    for t in totals:
        body = Alloc(t, body)
    body = For(r, rounds, ForKind.SERIAL, body)
    axes = [("blockIdx.x", b, blocks), *[(TAGS[k], t, n) for k, (t, n) in enumerate(zip(threads, block, strict=True))]]
    return func([*sources, *outs], kernel(axes, body))


GROUPS = [
    ((32,), 0, 32, "warp"), ((8,), 0, 8, "warp"), ((16, 3), 0, 16, "warp"), ((32, 2), 0, 20, "warp"),
    ((1, 16), 1, 16, "warp"), ((2, 21), 0, 2, "warp"), ((4, 17), 0, 3, "warp"), ((64,), 0, 64, "warps"),
    ((256,), 0, 256, "warps"), ((96, 2), 0, 96, "warps"), ((1024,), 0, 1000, "warps"), ((160,), 0, 130, "warps"),
    ((24,), 0, 24, "tree"), ((98,), 0, 98, "tree"), ((5, 7), 1, 7, "tree"), ((4, 8, 3), 1, 6, "tree"),
    ((3, 4, 5), 2, 5, "tree"), ((33, 2), 0, 1, "tree"), ((1, 3), 0, 1, "one"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "axis", "active", "method"), GROUPS)
@pytest.mark.one_in(2)
def test_every_shape_of_group(block: tuple[int, ...], axis: int, active: int, method: str) -> None:
    program = check(reduction(block, axis, active, sum_of("float32")))
    assert ("__shfl_xor_sync" in program.source) == (method in ("warp", "warps"))
    assert ("__syncthreads" in program.source) == (method in ("warps", "tree"))
    assert (program.kernels[0].shared_bytes > 0) == (method in ("warps", "tree"))


@pytest.mark.parametrize("block", [(32,), (64,), (40,)])
def test_reductions_in_a_loop_do_not_overtake_each_other(block: tuple[int, ...]) -> None:
    check(reduction(block, 0, block[0] - 3, sum_of("float32"), rounds=3))


@pytest.mark.parametrize("block", [(16, 5), (64, 2), (12, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "int8"])
@pytest.mark.parametrize("combine", [te.max, te.min, te.sum])
@pytest.mark.one_in(4)
def test_dtypes(block: tuple[int, ...], dtype: str, combine: object) -> None:
    if dtype == "float16" and combine is te.sum:
        combine = te.max
    check(reduction(block, 0, block[0], sum_of(dtype, combine)))


@pytest.mark.parametrize("combine", [all_reduce, any_reduce])
def test_booleans(combine: object) -> None:
    check(reduction((16, 2), 0, 16, sum_of("bool", combine)))


@pytest.mark.parametrize(("block", "active"), [((32,), 32), ((8, 3), 7), ((128,), 128), ((64, 2), 50), ((20,), 20)])
def test_argmax_with_ties(block: tuple[int, ...], active: int) -> None:
    f = reduction(block, 0, active, argmax_of())
    rng = np.random.default_rng(1)
    shape = f.args[0].shape
    index = np.broadcast_to(np.arange(block[0], dtype="int32"), shape).copy()
    values = rng.integers(0, 3, shape).astype("float32")
    program = check(f, inputs=[index, values])
    assert ("__shfl_down_sync" in program.source) == (block != (20,)) and "__shfl_xor_sync" not in program.source


def test_a_combiner_of_ones_own() -> None:
    def combine(x: Expr, y: Expr) -> Expr:
        return te.maximum(x, y) + te.call("log", 1.0 + te.call("exp", -te.call("abs", x - y)))

    log_add = te.comm_reducer(combine, lambda t: te.const(-1e30, t), "log_add")
    check(reduction((32, 2), 0, 32, sum_of("float32", log_add)))


def shared_around_reduction(block: int) -> LoweredFunc:
    """Threads write shared memory, reduce, then read their neighbour's element: only the reduction lies between."""
    t, b = v("t", "b")
    a, out = Buffer("A", "float32", (2, block)), Buffer("O", "float32", (2, block))
    space, total = Buffer("space", "float32", (block,), "shared"), Buffer("total", "float32", (1,), "local")
    at = b * block + t
    neighbour = (t + 37) % block
    body = seq(
        Store(space, t, a[at]),
        ThreadReduce(sum_of("float32"), (total,), (a[at],), t, 32),
        Store(out, at, space[neighbour] + total[0]),
    )
    body = Alloc(space, Alloc(total, insert_barriers(body, ())))
    return func([a, out], kernel([("blockIdx.x", b, 2), ("threadIdx.x", t, block)], body))


@pytest.mark.parametrize("scope", ["shared", "global"])
def test_a_reduction_inside_warps_is_no_barrier(scope: str) -> None:
    """The passes before count on the barrier of a reduction; where registers are exchanged it must be put back."""
    t, y, b = v("t", "y", "b")
    a, out = Buffer("A", "float32", (2, 64)), Buffer("O", "float32", (2, 64))
    space, total = Buffer("space", "float32", (2, 64), scope), Buffer("total", "float32", (1,), "local")
    at = b * 64 + y * 32 + t
    body = seq(
        Store(space, at, a[at]),
        ThreadReduce(sum_of("float32"), (total,), (a[at],), t, 32),
        Store(out, at, space[b * 64 + (1 - y) * 32 + t] + total[0]),
    )
    body = insert_barriers(body, ())
    assert not isinstance(body, Barrier)
    body = Alloc(total, Alloc(space, body) if scope == "shared" else body)
    args = [a, out] if scope == "shared" else [a, space, out]
    f = func(args, kernel([("blockIdx.x", b, 2), ("threadIdx.y", y, 2), ("threadIdx.x", t, 32)], body))
    program = check(f)
    assert program.source.count("__syncthreads();") == 1


def test_a_reduction_through_shared_memory_is_the_barrier() -> None:
    program = check(shared_around_reduction(64))
    assert program.source.count("__syncthreads();") == 1


def test_a_reduction_inside_warps_adds_no_barrier_of_its_own() -> None:
    t, b = v("t", "b")
    a, out = Buffer("A", "float32", (2, 32)), Buffer("O", "float32", (2,))
    total = Buffer("total", "float32", (1,), "local")
    body = seq(
        ThreadReduce(sum_of("float32"), (total,), (a[b * 32 + t],), t, 32),
        If(compare("==", t, 0), Store(out, b, cast("float32", total[0]))),
    )
    program = check(func([a, out], kernel([("blockIdx.x", b, 2), ("threadIdx.x", t, 32)], Alloc(total, body))))
    assert "__syncthreads" not in program.source
