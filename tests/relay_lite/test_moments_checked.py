"""What is accepted of counts, means and squared distances: float32 in any order, and not what leaves something out."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor.measure.check import Accepted, accepted_values
from relay_lite.op.moments import _te as moments
from tests.nonempty import nonempty

Moments = tuple[np.float32, np.float32, np.float32]


def together(a: Moments, b: Moments) -> Moments:
    """Chan's formula, each operation rounded to float32."""
    n, d = np.float32(a[0] + b[0]), np.float32(b[1] - a[1])
    share = np.float32(b[0] / n)
    crossed = np.float32(np.float32(np.float32(d * d) * a[0]) * share)
    return n, np.float32(a[1] + np.float32(d * share)), np.float32(np.float32(a[2] + b[2]) + crossed)


def in_float32(row: np.ndarray, chains: int) -> Moments:
    """The moments of a row as so many threads would find them, and then one of them."""
    one, nothing = np.float32(1), np.float32(0)
    found = []
    for start in range(chains):
        total: Moments = (nothing, nothing, nothing)
        for x in row[start::chains]:
            total = together(total, (one, x, nothing))
        found.append(total)
    total = found[0]
    for other in found[1:]:
        total = together(total, other)
    return total


def accepted(rows: np.ndarray) -> list[Accepted]:
    x = te.placeholder(rows.shape, name="x")
    dag = te.ComputeDAG(
        [x, *moments([te.compute(rows.shape, lambda i, j: x[i, j] * 1.5, name="y")], {"axis": (1,)}, "c")]
    )
    right = accepted_values(dag, {x: rows})
    return [right[t] for t in dag.outputs]


def holds(right: list[Accepted], row: int, found: Moments) -> list[bool]:
    return [bool(r.low[row, 0] <= v <= r.high[row, 0]) for r, v in zip(right, found, strict=True)]


@pytest.mark.parametrize("offset", [0.0, 3.0, 300.0])
@pytest.mark.parametrize("n", [7, 509, 2048])
def test_any_order_is_right_and_an_element_left_out_is_wrong(n: int, offset: float) -> None:
    rng = np.random.default_rng(n)
    rows = (rng.uniform(-1, 1, (3, n)) + offset).astype("float32")
    right = accepted(rows)
    for k, row in nonempty(enumerate(rows * np.float32(1.5))):
        for chains in (1, 4, 7):
            assert all(holds(right, k, in_float32(row, chains)))
            assert not holds(right, k, in_float32(row[:-1], chains))[0]
        some = in_float32(row[: n - max(1, n // 20)], 4)
        if offset == 0:
            assert not any(holds(right, k, some))
        wrong = (np.float32(n), some[1] * np.float32(1.01) + np.float32(0.01), some[2])
        assert not holds(right, k, wrong)[1]


def test_nothing_is_open() -> None:
    found = accepted(np.random.default_rng(0).uniform(-1, 1, (2, 3000)).astype("float32"))
    assert len(found) == 3
    for right in found:
        assert np.isfinite(right.low).all() and np.isfinite(right.high).all() and right.nan is None
