"""Extents that are computed of sizes: one object for each sum of products."""

from __future__ import annotations

import pytest

import te_lite as te
from relay_lite import GraphError
from relay_lite.ir.extents import bounds, declared, extent, filled, is_computed, product, value_of
from relay_lite.ir.types import TensorType

N, M = te.size_var("n", 1, 64), te.size_var("m", 2, 8)


def test_equal_sums_are_the_same_object() -> None:
    assert extent(N * 4 // 2) is extent(N + N)
    assert extent((N * M + N) * 3) is extent(N * 3 + M * N * 3)
    assert extent(N * M // M) is N
    assert extent((N - N) + 5) == 5
    assert extent(N + M) is not extent(N * M)
    assert TensorType((N * M, 3)) == TensorType((M * N, 3)) != TensorType((N, 3))
    assert hash(TensorType((N * 2,))) == hash(TensorType((N + N,)))


def test_values_and_bounds() -> None:
    e = extent(N * M * 2 + N + 1)
    assert is_computed(e) and not is_computed(N)
    assert value_of(e, {N: 5, M: 3}) == 36
    assert e.range == bounds(e) == (6, 64 * 8 * 2 + 64 + 1)
    assert bounds(N - M) == (-7, 62)
    assert declared([3, e, M]) == (N, M) or set(declared([3, e, M])) == {N, M}
    assert value_of(product([N, 4, M]), {N: 2, M: 7}) == 56


def test_one_extent_is_left_over() -> None:
    assert filled((N, -1, 4), (N, M, 12), "x") == (N, extent(M * 3), 4)
    assert filled((-1, 12), (N, M, 12), "x") == (extent(N * M), 12)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: extent(N // 2, "x"), r"x: the divisor must divide an open extent for all sizes, got floordiv\(n, 2\)"),
        (
            lambda: extent(N - 1, "x"),
            r"x: a computed extent must be 1 to 2147483647 for all sizes, and is 0 to 63, got",
        ),
        (lambda: extent(te.min(N, 3), "x"), "x: an extent is computed of open ones by sums, products and whole quot"),
        (lambda: extent(2.5, "x"), "x: extents are integers, sizes as te.size_var.*, got 2.5"),
        (lambda: filled((-1, 5), (N, 12), "x"), "x: the divisor must divide an open extent for all sizes"),
        (lambda: filled((N, 5), (N, 12), "x"), "x: the new shape must hold as many elements for all sizes"),
        (lambda: filled((-1, -1), (N, 12), "x"), "x: at most one dimension may be -1"),
        (lambda: value_of(M, {N: 3}), "m: this size is no extent of an input"),
    ],
)
def test_refusals(wrong: object, sentence: str) -> None:
    assert callable(wrong)
    with pytest.raises(GraphError, match=sentence):
        wrong()
