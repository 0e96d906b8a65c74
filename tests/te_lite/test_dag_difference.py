"""Two computations are the same whatever their names are; else the first difference is told in their own words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import te_lite as te
from te_lite.printing.dag_difference import first_difference
from te_lite.printing.dag_json import dag_from_json, dag_to_json
from tests.workloads import WORKLOADS, matmul


def scaled(name: str = "B", n: int = 6, dtype: str = "float32", factor: float = 3.0) -> list[te.Tensor]:
    a = te.placeholder((n, 4), dtype, "A")
    return [a, te.compute((n, 4), lambda i, j: a[i, j] * te.const(factor, dtype), name=name)]


def product(rows: int = 3, depth: int = 4, swap: bool = False) -> list[te.Tensor]:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, 5), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="C")
    return [b, a, c] if swap else [a, b, c]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_what_is_made_twice_is_the_same(name: str) -> None:
    one, two = te.ComputeDAG(WORKLOADS[name]()), te.ComputeDAG(WORKLOADS[name]())
    assert first_difference(one, two) is None
    assert first_difference(one, dag_from_json(dag_to_json(two))) is None


def test_names_do_not_count() -> None:
    def shared(a: te.Tensor) -> Callable[..., te.Expr]:
        def body(row: te.Expr, col: te.Expr) -> te.Expr:
            x = a[row, col]
            return x + x

        return body

    a, x = te.placeholder((6, 4), name="A"), te.placeholder((6, 4), name="X")
    one = te.compute((6, 4), lambda i, j: a[i, j] + a[i, j], name="B")
    two = te.compute((6, 4), shared(x), name="Y", tag="other", attrs={"hint": 1})
    assert first_difference(te.ComputeDAG([a, one]), te.ComputeDAG([x, two])) is None


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        (scaled(), scaled(factor=2.0), ("B(i, j) = (A[i, j]*3f)", "B(i, j) = (A[i, j]*2f)")),
        (scaled(), scaled(n=7), ("A = PLACEHOLDER [6, 4]", "A = PLACEHOLDER [7, 4]")),
        (scaled(), scaled(dtype="float64"), ("A of float32, 6 x 4", "A of float64, 6 x 4")),
        (scaled(), [*scaled(), *scaled()], ("nothing", "A = PLACEHOLDER [6, 4]")),
        (product(), product(depth=6), ("A = PLACEHOLDER [3, 4]", "A = PLACEHOLDER [3, 6]")),
        (product(), product(swap=True), ("the tensors A, B, C", "the tensors B, A, C")),
    ],
)
def test_the_first_difference_is_told(one: list[te.Tensor], two: list[te.Tensor], told: tuple[str, str]) -> None:
    assert first_difference(te.ComputeDAG(one), te.ComputeDAG(two)) == told
    assert first_difference(te.ComputeDAG(two), te.ComputeDAG(one)) == told[::-1]


def reduced(length: int, op: str = "sum", where: int | None = None) -> list[te.Tensor]:
    a = te.placeholder((5, 8), name="A")
    k = te.reduce_axis((0, length), "k")
    fold = {"sum": te.sum, "max": te.max}[op]
    condition = {} if where is None else {"where": k < where}
    return [a, te.compute((5,), lambda i: fold(a[i, k], axis=[k], **condition), name="R")]


def test_reductions() -> None:
    dags = [te.ComputeDAG(reduced(*args)) for args in ((8,), (7,), (8, "max"), (8, "sum", 3), (8, "sum", 4))]
    differences = [[first_difference(a, b) for b in dags] for a in dags]
    assert all((d is None) == (i == j) for i, row in enumerate(differences) for j, d in enumerate(row))
    assert differences[0][1] == ("R, a reduction over 8", "R, a reduction over 7")
    assert differences[0][2] == ("R(i) += A[i, k]", "R(i) max= A[i, k]")
    assert differences[3][4] == ("R, a reduction over 8", "another R, a reduction over 8")


def test_long_lines_are_cut() -> None:
    def long(factor: float) -> list[te.Tensor]:
        a = te.placeholder((4,), name="A")

        def body(i: te.Expr) -> te.Expr:
            value = a[i]
            for k in range(40):
                value = value * (factor if k == 20 else 1.5) + 1.0
            return value

        return [a, te.compute((4,), body, name="B")]

    found = first_difference(te.ComputeDAG(long(1.0)), te.ComputeDAG(long(2.0)))
    assert found is not None and max(map(len, found)) < 300


def test_a_matmul_of_the_catalogue_is_itself() -> None:
    assert first_difference(te.ComputeDAG(matmul(3, 5, 4)), te.ComputeDAG(product(3, 4))) is None
