"""The dependence test of serial loops, on loops whose answer is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from te_lite.expr.expr import Expr, Var, binary, const
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, If, Stmt, Store, seq
from te_lite.meaning.independent import independent

Index = Callable[[Var, Var, Var], Expr]  # of the loop, a loop inside (5 iterations) and a loop outside
A, B = Buffer("a", "int32", (200,)), Buffer("b", "int32", (200,))
ANY = ("global", "local")


def nest(store: Index, load: Index | None = None, extent: int = 6) -> For:
    i, j, o = Var("i"), Var("j"), Var("o")
    value = A[load(i, j, o)] if load is not None else const(1)
    return For(i, extent, ForKind.SERIAL, For(j, 5, ForKind.SERIAL, Store(A, store(i, j, o), value)))


INDEPENDENT: dict[str, tuple[Index, Index | None]] = {
    "own element": (lambda i, j, o: i + 0, None),
    "own row": (lambda i, j, o: i * 5 + j, lambda i, j, o: i * 5 + 4 - j),
    "strided": (lambda i, j, o: (i + o) * 7 + j * 1, lambda i, j, o: o * 7 + 7 * i + j + 2),
    "column": (lambda i, j, o: o * 30 + i * 8 - j + 4, lambda i, j, o: i * 8 + o * 30 + (j // 2) * 3 - 3),
    "inside a stride": (lambda i, j, o: j * 6 + i, lambda i, j, o: i + j // 2 * 12),
    "tiles": (lambda i, j, o: i // 3 * 60 + i % 3 * 20 + j, None),
}
DEPENDENT: dict[str, tuple[Index, Index | None]] = {
    "sum": (lambda i, j, o: j + 0, lambda i, j, o: j + 0),
    "same element": (lambda i, j, o: const(3), None),
    "neighbour": (lambda i, j, o: i * 2, lambda i, j, o: i * 2 + 2),
    "previous": (lambda i, j, o: i + 3, lambda i, j, o: i + 2),
    "overlapping windows": (lambda i, j, o: i * 4 + j, None),
    "windows that count down": (lambda i, j, o: i * 3 - j + 4, None),
    "windows that meet": (lambda i, j, o: i * 5 - j + 4, lambda i, j, o: i * 5 + j + 4),
    "a stride too short": (lambda i, j, o: j * 5 + i, None),
    "between the strides": (lambda i, j, o: i + j * 6, lambda i, j, o: i + j * 6 + 3),
    "mixed terms": (lambda i, j, o: i * 2 + binary("*", i, j), None),
    "mixed quotient": (lambda i, j, o: i + (i + j) // 2, None),
    "division by zero": (lambda i, j, o: binary("//", 60, i), None),
    "another row": (lambda i, j, o: i * 5, lambda i, j, o: i * 5 + o),
    "another stride": (lambda i, j, o: i * 5, lambda i, j, o: i * 10),
    "folded": (lambda i, j, o: i % 3 * 5, None),
    "through memory": (lambda i, j, o: B[i], None),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent(name: str) -> None:
    assert independent(nest(*INDEPENDENT[name]), ANY)


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent(name: str) -> None:
    assert not independent(nest(*DEPENDENT[name]), ANY)


def test_reads_of_buffers_that_are_not_written_do_not_matter() -> None:
    i = Var("i")
    body = seq(Store(A, i * 2, B[const(0)]), If(B[i + 1] < 3, Store(A, i * 2 + 1, B[i + 2])))
    assert independent(For(i, 6, ForKind.SERIAL, body), ANY)


@pytest.mark.parametrize("where", ["condition", "index", "value"])
def test_every_read_of_a_written_buffer_counts(where: str) -> None:
    i = Var("i")
    other = A[i + 1]
    body: Stmt = {
        "condition": If(other < 3, Store(A, i, const(1))),
        "index": seq(Store(A, i, const(1)), Store(B, other, const(1))),
        "value": Store(A, i, other),
    }[where]
    assert not independent(For(i, 6, ForKind.SERIAL, body), ANY)


@pytest.mark.parametrize(("scope", "free"), [("local", True), ("global", True), ("shared", False)])
def test_buffers_of_an_iteration(scope: str, free: bool) -> None:
    i, tmp = Var("i"), Buffer("tmp", "int32", (1,), scope)
    body = Alloc(tmp, seq(Store(tmp, const(0), B[i]), Store(A, i, tmp[0])))
    assert independent(For(i, 6, ForKind.SERIAL, body), ANY) == free
    assert independent(For(i, 6, ForKind.SERIAL, body), ("local",)) == (scope == "local")


def test_loops_that_join_threads_are_kept_in_order() -> None:
    i = Var("i")
    assert not independent(For(i, 6, ForKind.SERIAL, seq(Store(A, i, const(1)), Barrier())), ANY)
    kernel = For(Var("b"), 2, ForKind.BLOCK, Store(A, i, const(1)), "blockIdx.x")
    assert not independent(For(i, 6, ForKind.SERIAL, kernel), ANY)


def test_a_variable_of_two_loops_has_the_larger_range() -> None:
    i, j = Var("i"), Var("j")
    both = [For(j, n, ForKind.SERIAL, Store(A, i * 5 + j, const(1))) for n in (8, 5)]
    assert not independent(For(i, 6, ForKind.SERIAL, seq(*both)), ANY)


@pytest.mark.parametrize(("stride", "free"), [(20000, True), (19999, False)])
def test_many_iterations_inside(stride: int, free: bool) -> None:
    i, j = Var("i"), Var("j")
    body = For(j, 20000, ForKind.SERIAL, Store(A, i * stride + j, const(1)))
    assert independent(For(i, 6, ForKind.SERIAL, body), ANY) == free
