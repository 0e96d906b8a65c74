"""Reductions and running sums; the axes moved from an attribute to an input over the versions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ansor.core.sizes import require_computed
from te_lite.expr import FLOATS

from ...ir.nodes import Array, Expr
from .emit import add, call, cast, const, mul, reshape, sub
from .node import Converter, Converters, Node


def reduction(name: str, since: int = 18) -> Converter:
    """A reduction that the graph knows by `name`; from opset `since` on its axes are an input."""
    return reduced(lambda x, axes, keep: call(name, x, axis=axes, keepdims=keep), since)


def reduced(meaning: Callable[[Expr, tuple[int, ...], bool], Expr], since: int = 18) -> Converter:
    """A reduction of which `meaning` gives the result of data, axes and keepdims.

    No axes mean all of them, or none when noop_with_empty_axes is set.
    """

    def convert(node: Node) -> Expr:
        x = node.input(0)
        rank = len(x.shape)
        named = node.list_at(1, "axes", since)
        if not named and node.integer("noop_with_empty_axes", 0):
            return x
        if rank == 0:
            return meaning(reshape(x, (1,)), (0,), False)
        axes = node.axes(named, rank) if named else tuple(range(rank))
        return meaning(x, axes, bool(node.integer("keepdims", 1)))

    return convert


def _sum(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return call("sum", x, axis=axes, keepdims=keep)


def _l1(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return _sum(call("abs", x), axes, keep)


def _square(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return _sum(mul(x, x), axes, keep)


def _l2(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return call("sqrt", _square(x, axes, keep))


def _log_sum(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return call("log", _sum(x, axes, keep))


def _log_sum_exp(x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    """The largest element is taken out first, so that no exponential overflows."""
    largest = call("max", x, axis=axes, keepdims=True)
    total = add(call("log", _sum(call("exp", sub(x, largest)), axes, True)), largest)
    return total if keep else call("squeeze", total, axis=axes)


def arg(name: str) -> Converter:
    """ArgMax and ArgMin: the position along `axis` as int64; the first of equal elements."""

    def convert(node: Node) -> Expr:
        x = node.input(0)
        node.require(node.integer("select_last_index", 0) == 0, "select_last_index must be 0")
        axis = node.axis(node.integer("axis", 0), len(x.shape))
        return cast(call(name, x, axis=axis, keepdims=bool(node.integer("keepdims", 1))), "int64")

    return convert


def l2_normal(node: Node) -> Expr:
    """LpNormalization over one axis, p 1 or 2."""
    x, p = node.input(0), node.integer("p", 2)
    node.require(p in (1, 2) and x.dtype in FLOATS, "p must be 1 or 2", p=p)
    axis = (node.axis(node.integer("axis", -1), len(x.shape)),)
    return call("divide", x, (_l1 if p == 1 else _l2)(x, axis, True))


def cumulative_sum(node: Node) -> Expr:
    """CumSum along an axis: a product with a triangle of ones, which keeps integers exact."""
    x, axis = node.input(0), node.scalar(1)
    node.require(axis is not None, "an axis is needed")
    axis = node.axis(int(axis), len(x.shape))
    extent = x.shape[axis]
    require_computed((extent, extent), "float64", str(node))
    ones: Array = np.tri(extent, k=-1 if node.integer("exclusive", 0) else 0)
    ones = ones[::-1, ::-1] if node.integer("reverse", 0) else ones
    along = const(ones.reshape((extent, extent) + (1,) * (len(x.shape) - axis - 1)), x.dtype)
    return call("sum", mul(call("expand_dims", x, axis=axis), along), axis=(axis + 1,), keepdims=False)


CONVERTERS: Converters = {
    "ReduceSum": {1: reduction("sum", since=13)},
    "ReduceMean": {1: reduction("mean")},
    "ReduceMax": {1: reduction("max")},
    "ReduceMin": {1: reduction("min")},
    "ReduceProd": {1: reduction("prod")},
    "ReduceL1": {1: reduced(_l1)},
    "ReduceL2": {1: reduced(_l2)},
    "ReduceSumSquare": {1: reduced(_square)},
    "ReduceLogSum": {1: reduced(_log_sum)},
    "ReduceLogSumExp": {1: reduced(_log_sum_exp)},
    "ArgMax": {1: arg("argmax")},
    "ArgMin": {1: arg("argmin")},
    "CumSum": {11: cumulative_sum},
    "LpNormalization": {1: l2_normal},
}
