"""Reductions and running sums; the axes moved from an attribute to an input over the versions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

import numpy as np

from te_lite.expr.expr import FLOATS

from ...ir.nodes import Expr
from .emit import add, binary, call, cast, const, mul, reshape, sub
from .node import Converter, Converters, Node

Meaning: TypeAlias = Callable[[Expr, tuple[int, ...], bool], Expr]
"""What a reduction gives of data, axes and keepdims."""


def reduction(name: str, since: int = 18, empty: float | None = None) -> Converter:
    """A reduction that the graph knows by `name`; from opset `since` on its axes are an input."""
    return reduced(lambda x, axes, keep: _over(name, x, axes, keep), since, empty)


def _over(name: str, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return call(name, x, axis=axes, keepdims=keep) if axes else x


def extreme(name: str, of_bools: str, empty: float) -> Converter:
    """The largest or smallest element, which of bools is whether some or all hold."""

    def meaning(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
        return _over(of_bools if x.dtype == "bool" else name, x, axes, keep)

    return reduced(meaning, empty=empty)


def reduced(meaning: Meaning, since: int = 18, empty: float | None = None) -> Converter:
    """A reduction of which `meaning` gives the result of data, axes and keepdims; over no element it is `empty`.

    No axes mean all of them, or none when noop_with_empty_axes is set: then what is done to each element still is.
    """

    def convert(node: Node) -> Expr:
        x = node.input(0)
        rank = len(x.shape)
        named = node.list_at(1, "axes", since)
        keep, nothing = bool(node.integer("keepdims", 1)), node.integer("noop_with_empty_axes", 0)
        if not named and nothing:
            return meaning(x, (), keep)
        if rank == 0:
            return meaning(reshape(x, (1,)), (0,), False)
        axes = node.axes(named, rank) if named else tuple(range(rank))
        if 0 in [x.shape[a] for a in axes]:
            return _of_nothing(node, x, axes, keep, empty)
        return meaning(x, axes, keep)

    return convert


def _of_nothing(node: Node, x: Expr, axes: tuple[int, ...], keep: bool, empty: float | None) -> Expr:
    """The result of a reduction that reads no element; integers have their limits for infinity."""
    node.require(empty is not None, "there must be something to reduce", shape=x.shape, axes=axes)
    kept = [(1 if a in axes else d) for a, d in enumerate(x.shape) if keep or a not in axes]
    if x.dtype not in FLOATS and x.dtype != "bool":
        info = np.iinfo(x.dtype)
        return const(np.full(kept, min(max(empty or 0, info.min), info.max)), x.dtype)
    return const(np.full(kept, (empty or 0) > 0 if x.dtype == "bool" else empty), x.dtype)


def _sum(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return _over("sum", x, axes, keep)


def _mean(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    """Of integers their sum, in 64 bits, divided by their number: the quotient has no fraction."""
    if x.dtype in FLOATS or not axes:
        return _over("mean", x, axes, keep)
    return cast(binary("divide", _sum(cast(x, "int64"), axes, keep), prod(x.shape[a] for a in axes)), x.dtype)


def in_floats(meaning: Meaning) -> Meaning:
    """A reduction through numbers that are no integers: those of integers are computed in float64, and then cut."""

    def convert(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
        return meaning(x, axes, keep) if x.dtype in FLOATS else cast(meaning(cast(x, "float64"), axes, keep), x.dtype)

    return convert


def _l1(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return _sum(call("abs", x), axes, keep)


def _square(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return _sum(mul(x, x), axes, keep)


def _l2(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return call("sqrt", _square(x, axes, keep))


def _log_sum(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return call("log", _sum(x, axes, keep))


def log_sum_exp(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    """The largest element is taken out first, unless it is infinite, so that no exponential overflows."""
    if not axes:
        return x
    largest = call("max", x, axis=axes, keepdims=True)
    finite = binary("less", call("abs", largest), np.inf)
    taken = call("where", finite, largest, const(0, x.dtype))
    total = add(call("log", _sum(call("exp", sub(x, taken)), axes, True)), taken)
    return total if keep else call("squeeze", total, axis=axes)


def arg(name: str) -> Converter:
    """ArgMax and ArgMin: the position along `axis` as int64; of equal elements the first, or the last if asked."""

    def convert(node: Node) -> Expr:
        x = node.input(0)
        axis = node.axis(node.integer("axis", 0), len(x.shape))
        keep, last = bool(node.integer("keepdims", 1)), node.integer("select_last_index", 0)
        found = call(name, call("reverse", x, axis=axis) if last else x, axis=axis, keepdims=keep)
        return cast(sub(x.shape[axis] - 1, found) if last else found, "int64")

    return convert


def l2_normal(node: Node) -> Expr:
    """LpNormalization over one axis, p 1 or 2; a vector of zeros stays as it is."""
    x, p = node.input(0), node.integer("p", 2)
    node.require(p in (1, 2) and x.dtype in FLOATS, "p must be 1 or 2, of floats", p=p, dtype=x.dtype)
    axis = (node.axis(node.integer("axis", -1), len(x.shape)),)
    if 0 in x.shape:
        return x
    norm = (_l1 if p == 1 else _l2)(x, axis, True)
    return call("divide", x, call("where", binary("equal", norm, 0), const(1, x.dtype), norm))


def cumulative_sum(node: Node) -> Expr:
    """CumSum along an axis, of all elements up to each one, or `exclusive` of it, or from the end."""
    x, axis = node.input(0), node.scalar(1)
    node.require(axis is not None, "an axis is needed")
    at = node.axis(int(axis), len(x.shape))
    exclusive, reverse = bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))
    return x if 0 in x.shape else call("cumsum", x, axis=at, exclusive=exclusive, reverse=reverse)


CONVERTERS: Converters = {
    "ReduceSum": {1: reduction("sum", since=13, empty=0)},
    "ReduceMean": {1: reduced(_mean)},
    "ReduceMax": {1: extreme("max", "any", -np.inf)},
    "ReduceMin": {1: extreme("min", "all", np.inf)},
    "ReduceProd": {1: reduction("prod", empty=1)},
    "ReduceL1": {1: reduced(_l1, empty=0)},
    "ReduceL2": {1: reduced(in_floats(_l2), empty=0)},
    "ReduceSumSquare": {1: reduced(_square, empty=0)},
    "ReduceLogSum": {1: reduced(in_floats(_log_sum), empty=-np.inf)},
    "ReduceLogSumExp": {1: reduced(in_floats(log_sum_exp), empty=-np.inf)},
    "ArgMax": {1: arg("argmax")},
    "ArgMin": {1: arg("argmin")},
    "CumSum": {11: cumulative_sum},
    "LpNormalization": {1: l2_normal},
}
