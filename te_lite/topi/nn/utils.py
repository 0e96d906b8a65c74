"""Padding amounts of windows, from the forms in which users give them."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ExprError, require
from ..utils import get_const_int, get_const_tuple

Padding = int | str | Sequence[int]


def get_pad_tuple_generic(padding: Padding, kernel: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`(before, after)` of each spatial dimension for windows of (dilated) extents `kernel`.

    `padding`: an integer for all sides; one integer a dimension; all befores then all afters; "VALID" (none) or
    "SAME" (`kernel - 1` in all, the larger half before).
    """
    n = len(kernel)
    if isinstance(padding, str):
        require(padding in ("VALID", "SAME"), ExprError, "padding", "must be integers, VALID or SAME", padding=padding)
        totals = [k - 1 if padding == "SAME" else 0 for k in kernel]
        before = tuple([(t + 1) // 2 for t in totals])
        return before, tuple([t - b for t, b in zip(totals, before, strict=True)])
    if not isinstance(padding, Sequence):
        return (get_const_int(padding),) * n, (get_const_int(padding),) * n
    values = get_const_tuple(padding)
    require(len(values) in (n, 2 * n), ExprError, "padding", f"1, {n} or {2 * n} integers are needed", padding=values)
    return (values, values) if len(values) == n else (values[:n], values[n:])


def get_pad_tuple(padding: Padding, kernel: Sequence[int]) -> tuple[int, int, int, int]:
    """`(top, left, bottom, right)` for 2-D windows."""
    (top, left), (bottom, right) = get_pad_tuple_generic(padding, kernel)
    return top, left, bottom, right


def get_pad_tuple1d(padding: Padding, kernel: Sequence[int]) -> tuple[int, int]:
    """`(left, right)` for 1-D windows."""
    (left,), (right,) = get_pad_tuple_generic(padding, kernel)
    return left, right


def get_pad_tuple3d(padding: Padding, kernel: Sequence[int]) -> tuple[int, int, int, int, int, int]:
    """`(front, top, left, back, bottom, right)` for 3-D windows."""
    (front, top, left), (back, bottom, right) = get_pad_tuple_generic(padding, kernel)
    return front, top, left, back, bottom, right
