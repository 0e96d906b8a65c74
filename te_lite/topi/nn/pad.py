"""Padding and dilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr.expr import Expr, ExprLike, as_expr, if_then_else, logical_and
from ..tag import INJECTIVE
from ..utils import ax_compute, per_dim


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: ExprLike = 0.0,
    name: str = "PadInput",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Surround `data` by `pad_value`; `pad_after` defaults to `pad_before`.

    Without any padding the stage is a copy, which exists nevertheless.
    """
    before = per_dim(pad_before, data.ndim, name)
    after = before if pad_after is None else per_dim(pad_after, data.ndim, name)
    value = as_expr(pad_value, data.dtype)

    def element(*i: Expr) -> Expr:
        inside, indices = [], []
        for v, b, a, n in zip(i, before, after, data.shape, strict=True):
            indices.append(v - b if b or a else v)
            inside += [v >= b, v < n + b] if b or a else []
        return if_then_else(logical_and(*inside), data[indices], value)

    return compute(_padded(data, before, after, name), element, name, INJECTIVE, attrs)


def pad_sides(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: ExprLike = 0.0,
    name: str = "T_pad",
    pad_mode: str = "constant",
) -> Tensor:
    """The padding of graph front ends and pools: only sides that are padded are tested, axes are `ax*`.

    `pad_mode`: `constant`, `edge` (the border repeated) or `reflect` (mirrored without the border).
    """
    require(pad_mode in ("constant", "edge", "reflect"), ExprError, name,
            "the mode must be constant, edge or reflect", mode=pad_mode)  # fmt: skip
    before, after = per_dim(pad_before, data.ndim, name), per_dim(pad_after, data.ndim, name)
    value = as_expr(pad_value, data.dtype)

    def element(*i: Expr) -> Expr:
        inside, indices = [], []
        for v, b, a, n in zip(i, before, after, data.shape, strict=True):
            indices.append(_moved(v, b, n, pad_mode) if b or a else v)
            inside += ([v >= b] if b else []) + ([v < n + b] if a else [])
        return data[indices] if pad_mode != "constant" else if_then_else(logical_and(*inside), data[indices], value)

    return ax_compute(_padded(data, before, after, name), element, name, INJECTIVE)


def _moved(v: Expr, before: int, size: int, pad_mode: str) -> Expr:
    """The index that is read at `v` of a dimension with `before` elements of padding and `size` of data."""
    below, above = v < before, v >= size + before
    if pad_mode == "edge":
        return if_then_else(below, as_expr(0), if_then_else(above, as_expr(size - 1), v - before))
    if pad_mode == "reflect":
        return if_then_else(below, before - v, if_then_else(above, size * 2 + before - 2 - v, v - before))
    return v - before


def _padded(data: Tensor, before: Sequence[int], after: Sequence[int], name: str) -> list[int]:
    ok = all(p >= 0 for p in (*before, *after))
    require(ok, ExprError, name, "padding must not be negative", before=tuple(before), after=tuple(after))
    return [n + b + a for n, b, a in zip(data.shape, before, after, strict=True)]


def dilate(data: Tensor, strides: Sequence[int], dilation_value: ExprLike = 0.0, name: str = "DilatedInput") -> Tensor:
    """Spread the elements `strides[d]` apart with `dilation_value` between: extents become `(d - 1) * stride + 1`."""
    steps = per_dim(strides, data.ndim, name)
    value = as_expr(dilation_value, data.dtype)

    def element(*i: Expr) -> Expr:
        hit = [(v % s).equal(0) for v, s in zip(i, steps, strict=True) if s > 1]
        return if_then_else(logical_and(*hit), data[[v // s for v, s in zip(i, steps, strict=True)]], value)

    shape = [n if s == 1 else (n - 1) * s + 1 for n, s in zip(data.shape, steps, strict=True)]
    return compute(shape, element, name, INJECTIVE)
