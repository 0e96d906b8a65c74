"""`a + b`, `a * 2.0`, `-a`, `a / b` on tensors: the broadcast operations behind Python's operators."""

from __future__ import annotations

from typing import Any

from ..computation.tensor import Tensor
from ..expr.element import TENSOR_NEGATIVE, TENSOR_OPERATOR
from ..expr.expr import FLOATS, const
from .broadcast import add, divide, floor_divide, floor_mod, multiply, subtract

_OPERATORS = {"+": add, "-": subtract, "*": multiply, "/": divide, "//": floor_divide, "%": floor_mod}


def operate(op: str, a: Any, b: Any) -> Any:
    """`a op b`, one of them a tensor and the other one a tensor, an expression or a number."""
    return _OPERATORS[op](a, b)


def negative(x: Tensor) -> Any:
    """`-x`."""
    return multiply(x, const(-1.0 if x.dtype in FLOATS else -1, x.dtype))


TENSOR_OPERATOR.provide(operate)
TENSOR_NEGATIVE.provide(negative)
