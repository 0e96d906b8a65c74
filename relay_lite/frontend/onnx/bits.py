"""Operators on the bits of integers."""

from __future__ import annotations

import numpy as np

from ...ir.nodes import Expr
from .elementwise import two
from .emit import binary, call, cast, const, mul, sub
from .node import Converters, Node


def bitwise_not(node: Node) -> Expr:
    """BitwiseNot: -1 - x; without a sign the largest number - x."""
    x = node.input(0)
    return sub(-1 if np.iinfo(x.dtype).min < 0 else int(np.iinfo(x.dtype).max), x)


def bit_shift(node: Node) -> Expr:
    """BitShift of numbers without a sign: products with, or quotients by, powers of two; 0 beyond the width."""
    x, amount, direction = node.input(0), cast(node.input(1), "int32"), node.text("direction")
    node.require(direction in ("LEFT", "RIGHT"), "direction is LEFT or RIGHT", direction=direction)
    node.require(x.dtype == "uint8", "numbers without a sign are needed", dtype=x.dtype)
    powers = call("take", const([1 << k for k in range(8)], "uint8"), amount, axis=0)
    moved = mul(x, powers) if direction == "LEFT" else binary("divide", x, powers)
    return call("where", binary("less", amount, 8), moved, const(0, x.dtype))


CONVERTERS: Converters = {
    "BitwiseAnd": {18: two("bitwise_and")},
    "BitwiseOr": {18: two("bitwise_or")},
    "BitwiseXor": {18: two("bitwise_xor")},
    "BitwiseNot": {18: bitwise_not},
    "BitShift": {11: bit_shift},
}
