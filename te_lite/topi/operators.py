"""`a + b`, `a * 2.0`, `-a`, `a / b` on tensors: the broadcast operations behind Python's operators."""

from __future__ import annotations

from typing import Any

from ..expr.element import TENSOR_OPERATOR
from .broadcast import add, divide, floor_divide, floor_mod, multiply, subtract

_OPERATORS = {"+": add, "-": subtract, "*": multiply, "/": divide, "//": floor_divide, "%": floor_mod}


def operate(op: str, a: Any, b: Any) -> Any:
    """`a op b`, one of them a tensor and the other one a tensor, an expression or a number."""
    return _OPERATORS[op](a, b)


TENSOR_OPERATOR.provide(operate)
