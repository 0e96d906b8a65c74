"""Reductions, running sums, and the largest elements with their positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import call, cast, const, div, mul, reshape, sub
from ..onnx.reduce import log_sum_exp as of_onnx
from .arithmetic import truth
from .node import Aten, Converter, Converters


def reduced(name: str, boolean: bool = False) -> Converter:
    """A reduction that the graph knows by `name`, over the axes `dim`, or over all of them."""

    def convert(node: Aten) -> Expr:
        node.argument("dtype")
        x = truth(node.tensor("self")) if boolean else node.operand("self", node.wide)
        return over(name, x, node.axes("dim", len(x.shape)), node.flag("keepdim"), node)

    return convert


def over(name: str, x: Expr, axes: Sequence[int], keep: bool, node: Aten) -> Expr:
    """`x` reduced over axes; a scalar is its own."""
    x = x if x.shape else reshape(x, (1,))
    node.require(all(x.shape[a] for a in axes or (0,)), "there must be something to reduce", shape=x.shape)
    found = call(name, x, axis=tuple(axes) or (0,), keepdims=keep)
    return reshape(found, node.shape) if found.shape != node.shape and found.shape in ((), (1,)) else found


def variance(pair: bool) -> Converter:
    """var over axes, the sum of squares divided by the count less `correction`; with `pair` the mean as well."""

    def convert(node: Aten) -> Sequence[Expr]:
        x, keep = node.tensor("self"), node.flag("keepdim")
        axes = node.axes("dim", len(x.shape))
        count = 1
        for axis in axes:
            count *= x.shape[axis]
        left = count - node.number("correction", 1)
        node.require(left > 0, "there must be more elements than the correction", elements=count)
        mean = call("mean", x, axis=axes, keepdims=True)
        centred = sub(x, mean)
        found = call("sum", mul(centred, centred), axis=axes, keepdims=keep)
        spread = div(found, const(left, x.dtype))
        return [spread, reshape(mean, spread.shape)] if pair else [spread]

    return convert


def position(name: str) -> Converter:
    """argmax and argmin: along `dim`, or in the flat data."""

    def convert(node: Aten) -> Expr:
        x, dim = node.tensor("self"), node.argument("dim")
        if dim is None or not x.shape:
            node.flag("keepdim")
            count = 1
            for extent in x.shape:
                count *= extent
            return reshape(cast(call(name, reshape(x, (count,)), axis=(0,), keepdims=True), "int64"), node.shape)
        axis = node.axis(node.integer("dim"), len(x.shape))
        return cast(call(name, x, axis=(axis,), keepdims=node.flag("keepdim")), "int64")

    return convert


def with_position(name: str, where: str) -> Converter:
    """max and min along an axis, and where they are."""

    def convert(node: Aten) -> Sequence[Expr]:
        x, keep = node.tensor("self"), node.flag("keepdim")
        axes = (node.axis(node.integer("dim"), len(x.shape)),)
        rows = x if x.shape else reshape(x, (1,))
        found = [over(name, rows, axes, keep, node), call(where, rows, axis=axes, keepdims=keep)]
        return [reshape(found[0], node.shape), cast(reshape(found[1], node.shape), "int64")]

    return convert


def cumulative(name: str) -> Converter:
    """cumsum and cumprod along an axis."""

    def convert(node: Aten) -> Expr:
        node.argument("dtype")
        x = node.operand("self", node.wide)
        rows = x if x.shape else reshape(x, (1,))
        axis = node.axis(node.integer("dim"), len(x.shape))
        return x if 0 in x.shape else reshape(call(name, rows, axis=axis), x.shape)

    return convert


def top(node: Aten) -> Sequence[Expr]:
    """topk: the k largest or smallest along an axis in order, and where they are."""
    x, k = node.tensor("self"), node.integer("k")
    node.flag("sorted", True)
    axis, largest = node.axis(node.integer("dim", -1), len(x.shape)), node.flag("largest", True)
    return node.onnx("TopK", x, const([k], "int64"), outputs=2, axis=axis, largest=int(largest), sorted=1)


def sort(node: Aten) -> Sequence[Expr]:
    """sort along an axis, and where the elements were; equal ones stay in order."""
    x = node.tensor("self")
    node.flag("stable")
    axis, largest = node.axis(node.integer("dim", -1), len(x.shape)), node.flag("descending")
    if not x.shape:
        return x, const(0, "int64")
    k = const([x.shape[axis]], "int64")
    return node.onnx("TopK", x, k, outputs=2, axis=axis, largest=int(largest), sorted=1)


def vector_norm(node: Aten) -> Expr:
    """linalg_vector_norm: the root of the sum of squares, the sum or the largest of the absolute values."""
    node.argument("dtype")
    x, order = node.operand("self", node.wide), node.number("ord", 2)
    node.require(order in (1, 2, np.inf), "ord must be 1, 2 or infinity", ord=order)
    axes, keep = node.axes("dim", len(x.shape)), node.flag("keepdim")
    if order == 2:
        return call("sqrt", over("sum", mul(x, x), axes, keep, node))
    return over("sum" if order == 1 else "max", call("abs", x), axes, keep, node)


def log_sum_exp(node: Aten) -> Expr:
    """logsumexp, of infinities, too."""
    x, keep = node.operand("self", node.wide), node.flag("keepdim")
    axes = node.axes("dim", len(x.shape))
    return reshape(of_onnx(x if x.shape else reshape(x, (1,)), axes, keep), node.shape)


CONVERTERS: Converters = {
    **{f"aten.{name}{o}": reduced(name) for name in ("sum", "mean", "prod") for o in ("", ".dim", ".dim_int")},
    "aten.sum.dim_IntList": reduced("sum"),
    "aten.amax": reduced("max"),
    "aten.amin": reduced("min"),
    "aten.max": reduced("max"),
    "aten.min": reduced("min"),
    **{f"aten.{name}{o}": reduced(name, boolean=True) for name in ("any", "all") for o in ("", ".dim", ".dims")},
    "aten.max.dim": with_position("max", "argmax"),
    "aten.min.dim": with_position("min", "argmin"),
    "aten.argmax": position("argmax"),
    "aten.argmin": position("argmin"),
    "aten.var.correction": variance(pair=False),
    "aten.var_mean.correction": variance(pair=True),
    "aten.cumsum": cumulative("cumsum"),
    "aten.cumprod": cumulative("cumprod"),
    "aten.topk": top,
    "aten.sort": sort,
    "aten.sort.stable": sort,
    "aten.logsumexp": log_sum_exp,
    "aten.linalg_vector_norm": vector_norm,
}
