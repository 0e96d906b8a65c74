"""Operators on the bits of integers."""

from __future__ import annotations

import numpy as np

from te_lite.expr.dtype import INTEGER_BITS, is_unsigned

from ...ir.nodes import Expr
from .elementwise import two
from .emit import binary, call, cast, const, mul, sub
from .node import Converters, Node


def bitwise_not(node: Node) -> Expr:
    """BitwiseNot: -1 - x; without a sign the largest number - x."""
    x = node.input(0)
    return sub(const(-1 if np.iinfo(x.dtype).min < 0 else np.iinfo(x.dtype).max, x.dtype), x)


def bit_shift(node: Node) -> Expr:
    """BitShift of numbers without a sign: products with, or quotients by, powers of two; 0 beyond the width."""
    x, amount, direction = node.input(0), node.input(1), node.text("direction")
    node.require(direction in ("LEFT", "RIGHT"), "direction is LEFT or RIGHT", direction=direction)
    node.require(is_unsigned(x.dtype), "numbers without a sign are needed", dtype=x.dtype)
    bits = INTEGER_BITS[x.dtype]
    inside = binary("less", amount, const(bits, amount.dtype))
    table = const(np.left_shift(np.uint64(1), np.arange(bits, dtype=np.uint64)), x.dtype)
    powers = call("take", table, cast(call("where", inside, amount, const(0, amount.dtype)), "int32"), axis=0)
    moved = mul(x, powers) if direction == "LEFT" else binary("divide", x, powers)
    return call("where", inside, moved, const(0, x.dtype))


CONVERTERS: Converters = {
    "BitwiseAnd": {18: two("bitwise_and")},
    "BitwiseOr": {18: two("bitwise_or")},
    "BitwiseXor": {18: two("bitwise_xor")},
    "BitwiseNot": {18: bitwise_not},
    "BitShift": {11: bit_shift},
}
