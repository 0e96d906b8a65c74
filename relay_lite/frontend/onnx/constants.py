"""Operators whose result is known when the model is read: constants, shapes, ranges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ansor.core.values.checks import require_computed

from ...ir.extents import greatest, product
from ...ir.nodes import Constant, Expr
from .emit import call, const
from .model import dtype_name
from .node import Converters, Node
from .sizes import numbers


def constant(node: Node) -> Expr:
    """Constant, in each of its forms; numbers are float32 and int64."""
    forms = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
    for name, dtype in forms.items():
        if node.has(name):
            found = node.attrs[name]
            node.require(found is not None, f"attribute {name} must be numbers", value=found)
            return const(found, dtype)
    node.require(node.has("value"), "a tensor or numbers are needed", attributes=tuple(node.attrs))
    return Constant(node.tensor("value", np.zeros(1)))


def constant_of_shape(node: Node) -> Expr:
    """ConstantOfShape: a shape filled with one value, by default 0 of float32."""
    shape = node.list_at(0, "shape", since=0)
    node.require(shape is not None and min(greatest(shape), default=0) >= 0, "a shape is needed", shape=shape)
    assert shape is not None
    value = node.tensor("value", np.zeros(1, np.float32))
    node.require(value.size == 1, "value must be a tensor of one element", shape=value.shape)
    return call("full", const(value.reshape(()), str(value.dtype)), shape=shape, dtype=str(value.dtype))


def shape_of(node: Node) -> Expr:
    """Shape: the extents of the axes from `start` to below `end` as int64."""
    shape = node.input(0).shape
    end = node.integer("end") if node.has("end") else len(shape)
    return numbers(shape[node.integer("start", 0) : end])


def size_of(node: Node) -> Expr:
    """Size: the number of elements as int64."""
    return numbers(product(node.input(0).shape))


def arange(node: Node) -> Expr:
    """Range: start, start + delta, ... below limit."""
    if (end := node.extent(1)) is not None:
        node.require((node.scalar(0), node.scalar(2)) == (0, 1), "up to an open extent it is from 0 in steps of 1")
        return call("arange", start=0, stop=end, step=1, dtype=node.input(0).dtype)
    start, limit, delta = (node.scalar(i) for i in range(3))
    given = None not in (start, limit, delta)
    node.require(given and delta != 0, "start, limit and a delta that is not 0 are needed", delta=delta)
    dtype = node.input(0).dtype
    count = _count(node, start, limit, delta)
    return const(start + np.arange(count) * delta, dtype)


def _count(node: Node, start: float, limit: float, delta: float) -> int:
    """How many numbers a range has."""
    with np.errstate(all="ignore"):
        count = np.ceil(np.float64(limit - start) / np.float64(delta))
    node.require(np.isfinite(count), "the range must end", start=start, limit=limit, delta=delta)
    require_computed((max(int(count), 0),), "int64", str(node))
    return max(int(count), 0)


def has_element(node: Node) -> Expr:
    """OptionalHasElement: of a value yes, of nothing no."""
    return const(node.optional(0) is not None, "bool")


def non_zero(node: Node) -> Sequence[Expr]:
    """NonZero: the positions of what is not zero, of a value that is known; those of a scalar have no row."""
    found = node.value(0)
    node.require(found is not None, "an input is needed")
    assert found is not None
    return [const(np.argwhere(found).T, "int64")]


def eye_like(node: Node) -> Expr:
    """EyeLike: ones on the diagonal `k` of a matrix of the input's shape."""
    x = node.input(0)
    node.require(len(x.shape) == 2, "a matrix is needed", shape=x.shape)
    dtype = dtype_name(node.integer("dtype"), str(node)) if node.has("dtype") else x.dtype
    return const(np.eye(x.shape[0], x.shape[1], node.integer("k", 0)), dtype)


CONVERTERS: Converters = {
    "Constant": {1: constant},
    "ConstantOfShape": {9: constant_of_shape},
    "Shape": {1: shape_of},
    "Size": {1: size_of},
    "EyeLike": {9: eye_like},
    "Range": {11: arange},
    "NonZero": {9: non_zero},
    "OptionalHasElement": {15: has_element},
    "OptionalGetElement": {15: lambda node: node.input(0)},
}
