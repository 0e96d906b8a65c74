"""A computation reads inside of every dimension of its tensors, or no program of it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from te_lite.errors import InterpError, UnsafeError
from te_lite.meaning.reference import evaluate

A = te.placeholder((4, 6), name="A")
I = te.placeholder((3,), "int32", name="I")  # noqa: E741


def lowered(shape: tuple[int, ...], body: Callable[..., Any]) -> te.Tensor:
    out = te.compute(shape, body, name="B")
    te.lower(te.create_schedule(out.op), [A, I, out])
    return out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda i, j: A[i, j + 1], r"B: in_bounds: index 6 of dimension 1 in `A\[i, \(j \+ 1\)\]` is outside of 6 "),
        (lambda i, j: A[i, j - 1], r"index -1 of dimension 1 .* where i=0, j=0$"),
        (lambda i, j: A[i + 2, j] + A[i, j], r"index 4 of dimension 0 .* where i=2, j=0$"),
        (lambda i, j: te.if_then_else(j < 6, A[i, j + 1], 0.0), "index 6 of dimension 1"),
        (lambda i, j: A[j, i], "index 5 of dimension 0"),
    ],
)
def test_a_read_that_ends_up_in_the_next_row(body: Callable[..., Any], said: str) -> None:
    with pytest.raises(UnsafeError, match=said):
        lowered((3, 6), body)


@pytest.mark.parametrize(
    "body",
    [
        lambda i, j: te.if_then_else(j < 5, A[i, j + 1], 0.0),
        lambda i, j: te.if_then_else(te.all(j >= 1, i + 1 < 4), A[i + 1, j - 1], A[i, j]),
        lambda i, j: te.select(j < 5, A[i, j + 1], A[i, j]),
        lambda i, j: A[(i * 6 + j) // 6, (i * 6 + j) % 6],
        lambda i, j: A[i, te.minimum(te.maximum(I[i], 0), 5)],
    ],
)
def test_reads_that_stay_inside(body: Callable[..., Any]) -> None:
    lowered((3, 6), body)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_reduction_whose_extent_varies(beyond: int) -> None:
    def body(i: Any) -> Any:
        k = te.reduce_axis((0, 6 - i), name="k")
        return te.sum(A[i, k + i + beyond], axis=k)

    with pytest.raises(UnsafeError, match="index 6 of dimension 1") if beyond else nullcontext():
        lowered((4,), body)


def test_a_read_where_a_reduction_takes_part() -> None:
    k = te.reduce_axis((0, 6), name="k")
    lowered((4,), lambda i: te.sum(A[i, k + 1], axis=k, where=k < 5))
    with pytest.raises(UnsafeError, match="index 6 of dimension 1"):
        lowered((4,), lambda i: te.sum(A[i, k + 1], axis=k, where=k < 6))


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-2, 7), st.integers(-2, 7), st.booleans())
def test_it_is_refused_where_the_reference_refuses_it(di: int, dj: int, low: int, high: int, guarded: bool) -> None:
    def body(i: Any, j: Any) -> Any:
        read = A[i + di, j + dj]
        return te.if_then_else(te.all(j >= low, j < high, i + di >= 0, i + di < 4), read, 1.0) if guarded else read

    out = te.compute((4, 6), body, name="B")
    data = np.random.default_rng(0).random((4, 6), np.float32)
    try:
        evaluate([A, out], {A: data})
        refused = False
    except InterpError:
        refused = True
    with pytest.raises(UnsafeError, match="of dimension") if refused else nullcontext():
        te.lower(te.create_schedule(out.op), [A, out])
