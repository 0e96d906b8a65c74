"""What converters here are made of: nodes of ONNX's own operators with other inputs and attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import const
from ..onnx.node import Converter, Node
from ..onnx.quantized import dequantize, quantize


def other(node: Node, *inputs: Expr | None, outputs: int = 1, **attrs: Any) -> Node:
    """A node with these inputs and attributes alone, whose name is that of `node`."""
    return replace(node, inputs=inputs, outputs=("",) * outputs, attrs=attrs, asked=set())


def attrs_but(node: Node, *names: str) -> dict[str, Any]:
    """The attributes of `node` without some, which are asked for by what gets the others."""
    kept = {name: value for name, value in node.attrs.items() if name not in names}
    for name in kept:
        node.has(name)
    return kept


def made(converter: Converter, node: Node, harmless: tuple[str, ...] = ()) -> Expr:
    """The first output of a converter, which must read all that the node has."""
    found = converter(node)
    node.refuse_unread(lambda name: name in harmless)
    return found if isinstance(found, Expr) else found[0]


def floats(node: Node, x: int, scale: int, zero: int) -> Expr:
    """A quantised input as floats: (x - zero point) * scale, which are one value each."""
    return dequantize(other(node, node.input(x), _one(node, scale), _zero(node, zero, node.input(x).dtype)))


def stored(node: Node, x: Expr, scale: int, zero: int, dtype: str) -> Expr:
    """Floats as integers of a dtype: x / scale to the nearest, plus the zero point, saturated."""
    point = _zero(node, zero, dtype)
    node.require(point.dtype == dtype, "zero points must have the dtype of the data", dtype=point.dtype, wanted=dtype)
    return quantize(other(node, x, _one(node, scale), point))


def _one(node: Node, index: int) -> Expr:
    found = node.input(index)
    node.require(np.prod(found.shape, dtype=int) == 1, f"input {index} must be one value", shape=found.shape)
    return found


def _zero(node: Node, index: int, dtype: str) -> Expr:
    """A zero point; 0 where it is absent."""
    return const(0, dtype) if node.optional(index) is None else _one(node, index)
