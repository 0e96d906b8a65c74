"""Stores of what a thread has in registers: several in a nest, with tiles that end behind a row."""

from __future__ import annotations

import re

import pytest

from codegen_cuda import emit
from te_lite.expr.expr import Expr, as_expr, compare, logical_and
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, LoweredFunc, Seq, Stmt, Store
from tests.codegen_cuda.gpu_nests import check, func, kernel, v

BLOCKS, THREADS, COPIES, LANES = 3, 2, 3, 4
TILE = THREADS * COPIES * LANES


def tiles(row: int, rows: int = 4, bound: int | None = None, apart: int = 0) -> LoweredFunc:
    """Threads with `COPIES` times 4 neighbours of each of two rows; what lies behind a row is not stored.

    The last copy is stored under conditions, the others in a loop; `apart` moves their places.
    """
    block, thread, k, lane, copy, r = v("block", "thread", "k", "lane", "copy", "r")
    a, c = Buffer("A", "float32", (rows * TILE * BLOCKS,)), Buffer("C", "float32", (rows * row + apart,))
    own = Buffer("own", "float32", (2 * COPIES * LANES,), "local")
    first = a[(block * THREADS + thread) * 2 * COPIES * LANES + k]
    fill = For(k, 2 * COPIES * LANES, ForKind.UNROLLED, Store(own, k, first * 2.0))

    def stored(number: Expr | int) -> Store:
        column = block * TILE + (number * THREADS + thread) * LANES + lane
        return Store(c, r * row + column + apart, own[r * COPIES * LANES + number * LANES + lane])

    column = block * TILE + ((COPIES - 1) * THREADS + thread) * LANES + lane
    inside = If(compare("<", column, row if bound is None else bound), stored(COPIES - 1))
    last = If(logical_and(compare("<", thread, THREADS), compare("<", r, 2)), inside)
    whole = For(copy, COPIES - 1, ForKind.UNROLLED, stored(copy))
    body: Stmt = For(r, 2, ForKind.UNROLLED, For(lane, LANES, ForKind.UNROLLED, Seq((whole, last))))
    axes = (("blockIdx.x", block, BLOCKS), ("threadIdx.x", thread, THREADS))
    return func([a, c], kernel(axes, Alloc(own, Seq((fill, body)))))


def widths(source: str) -> set[int]:
    """How many elements are written at once."""
    vectors = {int(n) for n in re.findall(r"^ *\*\(float([24]) \*\)\(C \+", source, re.M)}
    return vectors | ({1} if re.search(r"^ *C\[", source, re.M) else set())


@pytest.mark.parametrize(("short", "width"), [(4, 4), (2, 2), (1, 1), (6, 2), (0, 4), (5, 1)])
def test_rows_of_any_length(short: int, width: int) -> None:
    """Vectors are as long as rows allow; every element is right, whether a tile ends with its row or behind it."""
    assert widths(check(tiles(TILE * BLOCKS - short)).source) == {width}


@pytest.mark.parametrize(("bound", "width"), [(3, 1), (2, 2), (4, 4)])
def test_a_bound_within_a_vector_makes_it_shorter(bound: int, width: int) -> None:
    """All elements of a vector are stored, or none is."""
    assert widths(check(tiles(TILE * BLOCKS, bound=TILE * BLOCKS - bound)).source) == {width}


@pytest.mark.parametrize(("apart", "width"), [(1, 1), (2, 2), (4, 4)])
def test_vectors_begin_at_multiples_of_their_width(apart: int, width: int) -> None:
    assert widths(check(tiles(TILE * BLOCKS, apart=apart)).source) == {width}


def test_what_reads_its_result_is_left_alone() -> None:
    lane, thread = v("lane", "thread")
    c, own = Buffer("C", "float32", (8,)), Buffer("own", "float32", (4,), "local")
    store = Store(c, thread * 4 + lane, own[lane] + c[7 - thread * 4 - lane])
    held = Seq((For(lane, 4, ForKind.UNROLLED, Store(own, lane, as_expr(1.0))), For(lane, 4, ForKind.UNROLLED, store)))
    source = emit(func([c], kernel((("threadIdx.x", thread, 1),), Alloc(own, held)))).source
    assert widths(source) == {1}


def test_conditions_that_read_memory_keep_elements_alone() -> None:
    """What is stored could change them: here each element decides whether the next one is stored."""
    lane, thread = v("lane", "thread")
    c, own = Buffer("C", "float32", (8,)), Buffer("own", "float32", (4,), "local")
    store = If(compare(">", c[thread], 0.0), Store(c, thread * 4 + lane, own[lane]))
    held = Seq((For(lane, 4, ForKind.UNROLLED, Store(own, lane, as_expr(1.0))), For(lane, 4, ForKind.UNROLLED, store)))
    source = emit(func([c], kernel((("threadIdx.x", thread, 1),), Alloc(own, held)))).source
    assert widths(source) == {1}
