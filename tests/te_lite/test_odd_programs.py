"""Programs at the edges of the language compute what they say: scalars, odd dtypes, shared producers, deep nests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import te_lite as te
from te_lite import Tensor, topi
from te_lite.loops.stmt import Alloc, Barrier, For, ForKind, Store, stmts_of
from te_lite.meaning.interp import run
from te_lite.verify.verify import verify
from tests.oracle import Oracle

Made = tuple[list[Tensor], te.Schedule]
X, Y, BX, BY, VT = "threadIdx.x", "threadIdx.y", "blockIdx.x", "blockIdx.y", "vthread"


def checked(made: Made) -> te.LoweredFunc:
    """The lowered program, after it was verified, run and compared."""
    tensors, s = made
    func = te.lower(s, tensors)
    verify(func)
    wrong = Oracle(te.ComputeDAG(tensors), np.random.default_rng(0)).mismatch(func, run)
    assert wrong is None, f"{wrong}\n{func}"
    return func


def total(n: int = 37) -> tuple[Tensor, Tensor, te.IterVar]:
    x, k = te.placeholder((n,), name="x"), te.reduce_axis((0, n), "k")
    return x, te.compute((), lambda: te.sum(x[k], axis=k), name="total"), k


def scalar_sum() -> Made:
    x, c, k = total()
    s = te.create_schedule(c.op)
    s[c].unroll(s[c].split(k, factor=8)[1])
    return [x, c], s


def scalar_sum_in_parts() -> Made:
    x, c, k = total()
    s = te.create_schedule(c.op)
    parts = s.rfactor(c, s[c].split(k, factor=8)[1])
    s[parts].parallel(s[parts].op.axis[0])
    return [x, c], s


def sums_in_a_number_of_parts() -> Made:
    """Room for whole tiles of a cache would change how long its five parts are."""
    x, k = te.placeholder((5, 3), name="x"), te.reduce_axis((0, 3), "k")
    c = te.compute((5,), lambda i: te.sum(x[i, k], axis=k), name="c")
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "local")
    s[cache].split(s[cache].split(s[cache].op.axis[0], nparts=5)[0], factor=4)
    s[cache].compute_at(s[c], s[c].split(s[c].op.axis[0], factor=20)[0])
    return [x, c], s


def chosen_sum_in_parts(outer: bool) -> Made:
    """What is added is decided by memory, which ends before the parts do: 37 numbers in parts of 8."""
    x, k = te.placeholder((37,), name="x"), te.reduce_axis((0, 37), "k")
    c = te.compute((), lambda: te.sum(x[k], axis=k, where=x[k] > 0.5), name="chosen")
    s = te.create_schedule(c.op)
    s.rfactor(c, s[c].split(k, factor=8)[not outer])
    return [x, c], s


def chosen_sum_by_threads() -> Made:
    x, k = te.placeholder((37,), name="x"), te.reduce_axis((0, 37), "k")
    c = te.compute((), lambda: te.sum(x[k], axis=k, where=x[k] > 0.5), name="chosen")
    s = te.create_schedule(c.op)
    s[c].bind(s[c].split(k, factor=8)[1], X)
    s[c].bind(s[c].fuse(), BX)
    return [x, c], s


def scalar_sum_by_threads() -> Made:
    x, c, k = total()
    s = te.create_schedule(c.op)
    s[c].bind(s[c].split(k, factor=8)[1], X)
    s[c].bind(s[c].fuse(), BX)
    return [x, c], s


def scalar_input() -> Made:
    x = te.placeholder((), name="x")
    c = te.compute((4,), lambda i: x() * 2.0 + i.astype("float32"), name="c")
    return [x, c], te.create_schedule(c.op)


def tiled_matmul(n: int, m: int, depth: int, dtype: str) -> Made:
    a, b = te.placeholder((n, depth), dtype, name="a"), te.placeholder((depth, m), dtype, name="b")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "local")
    outer, _ = s[c].split(c.op.axis[0], factor=2)
    s[cache].compute_at(s[c], outer)
    s[cache].split(s[cache].op.reduce_axis[0], factor=4)
    s[c].vectorize(c.op.axis[1])
    return [a, b, c], s


def argmax(n: int) -> tuple[Tensor, Tensor, Tensor, te.IterVar]:
    x, r = te.placeholder((4, n), name="x"), te.reduce_axis((0, n), "k")
    at, best = te.compute((4,), lambda i: te.argmax((r.astype("int32"), x[i, r]), axis=r), name="best")
    return x, at, best, r


def argmax_by_threads() -> Made:
    x, at, best, r = argmax(9)
    s = te.create_schedule(best.op)
    s[at].bind(s[at].split(r, factor=4)[1], X)
    s[at].bind(at.op.axis[0], BX)
    return [x, at, best], s


def argmax_by_threads_of_two_axes() -> Made:
    x, at, best, r = argmax(16)
    s = te.create_schedule(best.op)
    outer, inner = s[at].split(r, factor=4)
    s[at].bind(inner, X)
    s[at].bind(outer, Y)
    s[at].bind(at.op.axis[0], BX)
    return [x, at, best], s


def argmax_in_parts_by_threads() -> Made:
    x, at, best, r = argmax(9)
    s = te.create_schedule(best.op)
    parts = s.rfactor(at, s[at].split(r, factor=4)[1])
    s[at].bind(s[at].op.axis[0], BX)
    s[at].bind(s[at].op.reduce_axis[0], X)
    s[parts[0]].compute_at(s[at], s[at].op.reduce_axis[0])
    return [x, at, best], s


def doubled(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    x = te.placeholder(shape, name="x")
    return x, te.compute(shape, lambda *i: x(*i) * 2.0, name="p")


def two_outputs() -> Made:
    x, p = doubled((6, 5))
    a = te.compute((6, 5), lambda i, j: p[i, j] + 1.0, name="a")
    b = te.compute((5, 6), lambda i, j: p[j, i] - 1.0, name="b")
    s = te.create_schedule([a.op, b.op])
    s[a].parallel(a.op.axis[0])
    return [x, a, b], s


def output_that_is_partly_read() -> Made:
    x, p = doubled((6, 5))
    a = te.compute((3, 5), lambda i, j: p[i, j] + 1.0, name="a")
    return [x, p, a], te.create_schedule([p.op, a.op])


def output_computed_at_its_reader() -> Made:
    x, p = doubled((6, 5))
    a = te.compute((5, 6), lambda i, j: p[j, i] + 1.0, name="a")
    s = te.create_schedule([p.op, a.op])
    s[p].compute_at(s[a], a.op.axis[0])
    return [x, p, a], s


def input_read_twice() -> Made:
    x, k = te.placeholder((6, 6), name="x"), te.reduce_axis((0, 6), "k")
    a = te.compute((6, 6), lambda i, j: te.sum(x[i, k] * x[k, j], axis=k), name="a")
    s = te.create_schedule(a.op)
    s[s.cache_read(x, "local", [a])].compute_at(s[a], a.op.axis[0])
    return [x, a], s


def producer_of_two_at_their_root() -> Made:
    x, p = doubled((6, 8))
    a = te.compute((6, 8), lambda i, j: p[i, j] + 1.0, name="a")
    b = te.compute((6, 8), lambda i, j: p[i, 7 - j] * 3.0, name="b")
    c = te.compute((6, 8), lambda i, j: a[i, j] + b[i, j], name="c")
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    outer, _ = s[c].split(j, factor=3)
    s[a].compute_at(s[c], outer)
    s[b].compute_at(s[c], outer)
    s[p].compute_at(s[c], i)
    return [x, c], s


def chain_of_attached_stages() -> Made:
    x, p = doubled((2, 9, 9))
    a = te.compute((2, 8, 8), lambda n, i, j: p[n, i, j] + p[n, i + 1, j + 1], name="a")
    b = te.compute((2, 7, 7), lambda n, i, j: a[n, i, j] + a[n, i + 1, j], name="b")
    c = te.compute((2, 7, 7), lambda n, i, j: b[n, 6 - i, j] * 0.5, name="c")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], s[c].split(c.op.axis[1], factor=3)[0])
    s[a].compute_at(s[b], s[b].split(b.op.axis[2], factor=2)[0])
    s[p].compute_at(s[a], s[a].split(a.op.axis[1], nparts=2)[0])
    s[c].parallel(c.op.axis[0])
    return [x, c], s


def softmax_in_one_kernel() -> Made:
    x = te.placeholder((4, 40), name="x")
    out = topi.nn.softmax(x, axis=1)
    s = te.create_schedule(out.op)
    largest, exponent, norm = (s.state.dag.ops[k].output() for k in (1, 2, 3))
    s[exponent].compute_inline()
    s[out].bind(s[out].split(out.op.axis[1], factor=8)[1], X)
    s[out].bind(out.op.axis[0], BX)
    for t in (norm, largest):
        s[t].bind(s[t].split(s[t].op.reduce_axis[0], factor=8)[1], X)
        s[t].compute_at(s[out], out.op.axis[0])
    return [x, out], s


def adaptive_pool(schedule: Callable[[te.Schedule, Tensor, Tensor], None]) -> Made:
    """7 pixels onto 3: the extents of the reductions depend on the pixel."""
    x = te.placeholder((1, 2, 7, 7), name="x")
    out = topi.nn.adaptive_pool(x, (3, 3), "avg")
    s = te.create_schedule(out.op)
    schedule(s, s.state.dag.ops[1].output(), out)
    return [x, out], s


def pool_tiled(s: te.Schedule, area: Tensor, out: Tensor) -> None:
    s[area].split(s[area].op.reduce_axis[0], factor=2)
    s[area].compute_at(s[out], out.op.axis[2])


def pool_in_parts(s: te.Schedule, area: Tensor, out: Tensor) -> None:
    s.rfactor(area, s[area].split(s[area].fuse(*s[area].op.reduce_axis), factor=2)[1])


def pool_by_threads(s: te.Schedule, area: Tensor, out: Tensor) -> None:
    s[area].bind(s[area].split(s[area].fuse(*s[area].op.reduce_axis), factor=4)[1], X)
    pixel = s[out].fuse(*out.op.axis)
    s[out].bind(pixel, BX)
    s[area].compute_at(s[out], pixel)


PROGRAMS: dict[str, Callable[[], Made]] = {
    f.__name__: f
    for f in (
        scalar_sum, scalar_sum_in_parts, sums_in_a_number_of_parts, scalar_sum_by_threads, chosen_sum_by_threads,
        scalar_input, argmax_by_threads,
        argmax_by_threads_of_two_axes, argmax_in_parts_by_threads, two_outputs, output_that_is_partly_read,
        output_computed_at_its_reader, input_read_twice, producer_of_two_at_their_root, chain_of_attached_stages,
        softmax_in_one_kernel,
    )
} | {
    "chosen_sum_in_outer_parts": partial(chosen_sum_in_parts, True),
    "chosen_sum_in_inner_parts": partial(chosen_sum_in_parts, False),
    "pool_tiled": lambda: adaptive_pool(pool_tiled),
    "pool_in_parts": lambda: adaptive_pool(pool_in_parts),
    "pool_by_threads": lambda: adaptive_pool(pool_by_threads),
    "all_extents_one": lambda: tiled_matmul(1, 1, 1, "float32"),
    **{dtype: partial(tiled_matmul, 5, 7, 6, dtype) for dtype in ("int8", "int32", "float16", "float64")},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program(name: str) -> None:
    checked(PROGRAMS[name]())


def test_an_inlined_argument_is_refused() -> None:
    x, p = doubled((6, 5))
    a = te.compute((6, 5), lambda i, j: p[i, j] + 1.0, name="a")
    s = te.create_schedule([p.op, a.op])
    s[p].compute_inline()
    with pytest.raises(te.LowerError, match="p: an argument must be computed whole, not inlined or in parts"):
        te.lower(s, [x, p, a])


def test_an_argument_computed_in_parts_is_refused() -> None:
    x, p = doubled((6, 5))
    a = te.compute((3, 5), lambda i, j: p[2 * i, j] + 1.0, name="a")
    s = te.create_schedule(a.op)
    s[p].compute_at(s[a], a.op.axis[0])
    with pytest.raises(te.LowerError, match="computed whole"):
        te.lower(s, [x, p, a])


def threaded_stencil(align: bool) -> Made:
    """Two stages in one kernel: the copy in shared memory is filled by all threads and read across them."""
    x, p = doubled((16, 16))
    a = te.compute((15, 15), lambda i, j: p[i, j] + p[i + 1, j + 1], name="a")
    c = te.compute((15, 15), lambda i, j: a[14 - i, j] * 0.5, name="c")
    s = te.create_schedule(c.op)
    block, row = s[c].split(c.op.axis[0], factor=4)
    column, inner = s[c].split(c.op.axis[1], factor=4)
    s[c].reorder(block, column, row, inner)
    virtual, thread = s[c].split(column, factor=2)
    for loop, tag in ((block, BX), (virtual, VT), (thread, X)):
        s[c].bind(loop, tag)
    s[a].compute_at(s[c], thread)
    shared = s.cache_read(p, "shared", [a])
    s[p].compute_inline()
    s[shared].compute_at(s[c], block)
    if align:
        s[shared].storage_align(shared.op.axis[0], 8, 3)
    s[shared].bind(s[shared].split(s[shared].fuse(*shared.op.axis), factor=2)[1], X)
    return [x, c], s


def test_one_barrier_between_filling_and_reading() -> None:
    func = checked(threaded_stencil(align=False))
    assert sum(isinstance(x, Barrier) for x in stmts_of(func.body)) == 1


def test_aligned_rows() -> None:
    func = checked(threaded_stencil(align=True))
    (shared,) = [x.buffer for x in stmts_of(func.body) if isinstance(x, Alloc) and x.buffer.scope == "shared"]
    assert shared.strides is not None and shared.strides[0] % 8 == 3


def matmul_with_everything() -> Made:
    """Blocks, virtual threads, threads, shared copies filled in vectors, registers; a depth that nothing divides."""
    a, b, k = te.placeholder((16, 13), name="a"), te.placeholder((13, 16), name="b"), te.reduce_axis((0, 13), "k")
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "local")
    tiles = []
    for axis in s[c].op.axis:
        block, rest = s[c].split(axis, factor=8)
        virtual, rest = s[c].split(rest, factor=4)
        tiles.append((block, virtual, *s[c].split(rest, factor=2)))
    s[c].reorder(*[loops[level] for level in range(4) for loops in tiles])
    for loops, tags in zip(tiles, ((BX, VT, X), (BY, VT, Y)), strict=True):
        for loop, tag in zip(loops, tags, strict=False):
            s[c].bind(loop, tag)
    s[cache].compute_at(s[c], tiles[1][2])
    outer, inner = s[cache].split(s[cache].op.reduce_axis[0], factor=5)
    s[cache].reorder(outer, inner, *s[cache].op.axis)
    for tensor in (a, b):
        shared = s.cache_read(tensor, "shared", [cache])
        s[s.cache_read(shared, "local", [cache])].compute_at(s[cache], inner)
        s[shared].compute_at(s[cache], outer)
        rest, vector = s[shared].split(s[shared].fuse(*shared.op.axis), factor=2)
        rest, x = s[shared].split(rest, factor=2)
        s[shared].vectorize(vector)
        s[shared].bind(x, X)
        s[shared].bind(s[shared].split(rest, factor=2)[1], Y)
    return [a, b, c], s


def test_matmul_with_everything() -> None:
    func = checked(matmul_with_everything())
    assert sum(isinstance(x, Barrier) for x in stmts_of(func.body)) == 2
    assert not any(isinstance(x, For) and x.kind is ForKind.VTHREAD for x in stmts_of(func.body))


@pytest.mark.parametrize("annotate", ["unroll", "pragma", "vthread"])
def test_selections_never_make_code_explode(annotate: str) -> None:
    x = te.placeholder((300, 300), name="x")
    c = te.compute((300, 300), lambda i, j: te.select(i > j, x[i, j] * 0.5, 0.0), name="c")
    s = te.create_schedule(c.op)
    if annotate == "pragma":
        s[c].pragma(c.op.axis[0], "auto_unroll_max_step", 999999999)
    for axis in c.op.axis if annotate != "pragma" else ():
        s[c].unroll(axis) if annotate == "unroll" else s[c].bind(axis, VT)
    func = te.lower(s, [x, c])
    assert sum(isinstance(y, Store) for y in stmts_of(func.body)) <= 8192


def test_transforms_of_winograd_unroll_to_sums() -> None:
    """The constant matrices of F(4,3) disappear: 6 x 6 x 6 x 6 terms become a few signed additions each."""
    data, kernel = te.placeholder((1, 8, 8, 4), name="data"), te.placeholder((6, 6, 4, 4), name="kernel")
    out = topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, kernel, 1, 1, 1, "float32")
    s = te.create_schedule(out.op)
    dag = s.state.dag
    packed = next(op for op in dag.ops if op.name == "data_pack")
    for op in dag.ops:
        if op.name in ("A", "B"):
            s[op].compute_inline()
    handle = s[packed]
    for axis in (packed.axis[0], packed.axis[1], *packed.reduce_axis):
        handle.unroll(axis)
    func = checked(([data, kernel, out], s))
    stores = [x for x in stmts_of(func.body) if isinstance(x, Store) and x.buffer.name == "data_pack"]
    assert 100 < len(stores) < 800


def test_a_cache_name_that_became_free() -> None:
    """A factored cache gives its name back; a second cache of the same stage takes it and is another operation."""
    x, k = te.placeholder((6, 40), name="x"), te.reduce_axis((0, 40), "k")
    c = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="c")
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "local")
    s.rfactor(cache, s[cache].split(s[cache].op.reduce_axis[0], factor=8)[1])
    s.cache_write(c, "local")
    assert [stage.op.name for stage in s.stages] == ["x", "c.local.rf", "c.local.repl", "c.local", "c"]
    checked(([x, c], s))


@pytest.mark.parametrize("annotation", ["vectorize", "vthread"])
def test_lanes_share_no_reduction_into_an_argument(annotation: str) -> None:
    """Each of two lanes needs all sums: it would add to what the other has begun."""
    x, k = te.placeholder((6, 5), name="x"), te.reduce_axis((0, 5), "k")
    b = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="b")
    c = te.compute((2, 6), lambda j, i: b[i] + j, name="c")
    s = te.create_schedule(c.op)
    lane = s[c].op.axis[0]
    s[b].compute_at(s[c], lane)
    s[c].vectorize(lane) if annotation == "vectorize" else s[c].bind(lane, VT)
    checked(([x, c], s))
    with pytest.raises(te.LowerError, match="b: lanes must not compute a reduction into an argument"):
        te.lower(s, [x, b, c])
