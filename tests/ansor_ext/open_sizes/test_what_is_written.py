"""What people write with open sizes on processors: gathers, wrapped indices, operators, arrays that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_c.errors import CallError
from te_lite import topi
from tests.nonempty import nonempty

Clip = Callable[[te.Expr, Any], te.Expr]
CLIPS: dict[str, Clip] = {
    "low_first": lambda x, n: te.min(te.max(x, 0), n - 1),
    "high_first": lambda x, n: te.max(te.min(x, n - 1), 0),
}


def gathered(rows: Any, columns: Any, index: Callable[[te.Expr], te.Expr]) -> te.LoweredFunc:
    """c[i, j] = b[index(which[i]), j]."""
    b, which = te.placeholder((rows, columns), name="b"), te.placeholder((9,), name="which", dtype="int32")
    c = te.compute((9, columns), lambda i, j: b[index(which[i]), j], name="c")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].split(c.op.axis[1], factor=4)[1])
    return te.lower(s, [b, which, c])


@pytest.mark.parametrize("clip", sorted(CLIPS))
@pytest.mark.parametrize("is_open", [(True, False), (False, True), (True, True)], ids=["rows", "columns", "both"])
def test_gathers_from_open_tables(clip: str, is_open: tuple[bool, bool]) -> None:
    rows, columns = [te.size_var(x, 1, most) if o else most for x, most, o in zip("nm", (20, 11), is_open, strict=True)]
    module = codegen_c.build(gathered(rows, columns, lambda x: CLIPS[clip](x, rows)))
    which = np.array([0, 1, -3, 19, 5, 7, 2**31 - 1, -(2**31), 3], "int32")
    for n, m in nonempty([(1, 1), (7, 5), (20, 11)]):
        shape = n if is_open[0] else 20, m if is_open[1] else 11
        b, c = (
            np.random.default_rng(n).standard_normal(shape).astype("float32"),
            np.full((9, shape[1]), np.nan, "float32"),
        )
        module(b, which, c)
        np.testing.assert_array_equal(c, b[np.clip(which, 0, shape[0] - 1)])


def test_gathers_that_are_clipped_to_something_else_are_refused() -> None:
    """Row 5 is not in a table of 4 rows."""
    n = te.size_var("n", 1, 20)
    with pytest.raises(te.LowerError, match=r"index .* of dimension 0 of b is below n"):
        gathered(n, 3, lambda x: te.max(te.min(x, 5), 0))
    with pytest.raises(te.LowerError, match="must be clipped"):
        gathered(n, 3, lambda x: x)


def test_indices_that_wrap_around() -> None:
    n = te.size_var("n", 1, 30)
    a = te.placeholder((n, 4), name="A")
    b = te.compute((50, 4), lambda i, j: a[i % n, j], name="B")
    module = codegen_c.build(te.lower(te.create_schedule(b), [a, b]))
    for rows in nonempty((1, 7, 30)):
        x, y = np.arange(rows * 4, dtype="float32").reshape(rows, 4), np.full((50, 4), np.nan, "float32")
        module(x, y)
        np.testing.assert_array_equal(y, x[np.arange(50) % rows])


def test_indices_are_taken_apart_where_conditions_hold() -> None:
    """Seen from a flat index, `m - 1 - i` might be negative, and in the row before; where `i < m` it is not."""
    n, m = te.size_var("n", 1, 40), te.size_var("m", 1, 40)
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, m - 1 - j], name="B")
    text = str(te.lower(te.create_schedule(b), [a, b]))
    assert "B[i*m + j] = A[i*m + (m - j - 1)]" in text


def test_batches_and_broadcasts() -> None:
    n = te.size_var("n", 1, 9)
    x, y = te.placeholder((n, 3, 4), name="X"), te.placeholder((n, 5, 4), name="Y")
    one = te.placeholder((1, 3, 5), name="one")
    z = topi.add(topi.nn.batch_matmul(x, y), one)
    module = codegen_c.build(te.lower(te.create_schedule(z), [x, y, one, z]))
    rng = np.random.default_rng(0)
    for b in nonempty((1, 2, 9)):
        p, q, r = [rng.standard_normal(s).astype("float32") for s in ((b, 3, 4), (b, 5, 4), (1, 3, 5))]
        out = np.full((b, 3, 5), np.nan, "float32")
        module(p, q, r, out)
        np.testing.assert_allclose(out, p @ q.transpose(0, 2, 1) + r, rtol=1e-5, atol=1e-5)


def test_operators_that_do_not_fit_say_so() -> None:
    n, m = te.size_var("n", 1, 9), te.size_var("m", 1, 9)
    a = te.placeholder((n, 4), name="A")
    refused: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: topi.add(a, te.placeholder((m, 4), name="B")),
            r"broadcast: the shapes do not fit together, .*\(m, 4\)",
        ),
        (
            lambda: topi.add(a, te.placeholder((9, 4), name="B")),
            r"broadcast: the shapes do not fit together, .*\(9, 4\)",
        ),
        (lambda: topi.strided_slice(a, [0, 0], [1, 1]), "topi: a constant integer is needed, got n"),
        (lambda: topi.reshape(a, (n, 2, 2)), "topi: a constant integer is needed, got n"),
        (
            lambda: topi.nn.batch_matmul(te.placeholder((n, 3, 4)), te.placeholder((m, 5, 4))),
            "batches and inner extents must agree",
        ),
    ]
    for operator, sentence in nonempty(refused):
        with pytest.raises(te.ExprError, match=sentence):
            operator()


def test_bounds_may_be_numbers_of_numpy() -> None:
    n = te.size_var("n", np.int64(2), np.int32(8))
    assert n.range == (2, 8)
    assert [type(x) for x in n.range] == [int, int]
    with pytest.raises(te.ExprError, match="a size has bounds"):
        te.size_var("n", np.float32(2), 8)  # type: ignore[arg-type]


def product() -> codegen_c.Module:
    n, m = te.size_var("n", 1, 9), te.size_var("m", 1, 9)
    a, b = te.placeholder((n,), name="A"), te.placeholder((n, m), name="B")
    c = te.compute((n, m), lambda i, j: a[i] * b[i, j], name="C")
    return codegen_c.build(te.lower(te.create_schedule(c), [a, b, c]))


def test_calls_that_do_not_fit_leave_nothing_behind() -> None:
    """Sizes are taken from the arrays only when there are as many as arguments, with as many dimensions each."""
    module = product()
    a, b, c = np.ones(3, "float32"), np.full((3, 2), 2, "float32"), np.full((3, 2), np.nan, "float32")
    calls: list[tuple[tuple[Any, ...], str]] = [
        ((a, b), r"3 arrays are needed \(A\[n\], B\[n, m\], C\[n, m\]\), got 2"),
        ((a, b, c, c), r"3 arrays are needed \(A\[n\], B\[n, m\], C\[n, m\]\), got 4"),
        ((a, a, c), r"argument 1 \(B\[n, m\]\): must be 2-dimensional, got shape=\[3\]"),
        ((b, b, c), r"argument 0 \(A\[n\]\): must be 1-dimensional, got shape=\[3, 2\]"),
        ((a, b, np.ones((3, 3), "float32")), r"argument 2 \(C\[n, m\]\): m must be 1 to 9, the same in all .* got 3"),
        (([[1.0], [2.0, 3.0]], b, c), r"argument 0 \(A\[n\]\): must be an array, got 'list'"),
        (([1.0, 2.0, 3.0], b, c), "must be a NumPy array"),
        ((a, b.astype("float64"), c), r"must be float32 of shape \(3, 2\), got float64"),
    ]
    for arrays, sentence in nonempty(calls):
        with pytest.raises(CallError, match=f"^default_function: .*{sentence}"):
            module(*arrays)
        module(a, b, c)
        np.testing.assert_array_equal(c, b)
        c[...] = np.nan
