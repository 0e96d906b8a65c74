"""Shifts of integers by a known amount: how a fixed-point number changes its scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import binary, const
from te_lite.topi.elementwise import map_elements

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import Type
from .define import define, integer, tensors

MOST = 30


def _define(name: str, numpy: Callable[..., object], sign: str) -> None:
    """In tensor expressions a shift is a floored quotient by, or a product with, a power of two."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensors(types, 1, name)
        require(x.dtype == "int32", GraphError, name, "a tensor of int32 is needed", dtype=x.dtype)
        amount = integer(attrs["amount"], name, "amount", 0)
        require(amount <= MOST, GraphError, name, f"amount must be at most {MOST}", got=amount)
        return x

    define(
        name,
        OpPattern.ELEMWISE,
        infer,
        lambda args, attrs: numpy(args[0], np.int32(attrs["amount"])),
        lambda args, attrs, target: [
            map_elements(args[0], lambda e: binary(sign, e, const(1 << attrs["amount"], "int32")), name)
        ],
        amount=0,
    )


_define("right_shift", np.right_shift, "//")
_define("left_shift", np.left_shift, "*")


def right_shift(data: Expr, amount: int | Expr) -> Call:
    """`data`, int32, divided by `2**amount` and rounded down; `amount` is a number or a scalar constant."""
    return call("right_shift", data, amount=_number(amount))


def left_shift(data: Expr, amount: int | Expr) -> Call:
    """`data`, int32, times `2**amount`, wrapped around; `amount` is a number or a scalar constant."""
    return call("left_shift", data, amount=_number(amount))


def _number(amount: int | Expr) -> int:
    if not isinstance(amount, Expr):
        return amount
    known = isinstance(amount, Constant) and amount.value.ndim == 0
    require(known, GraphError, "shift", "the amount must be a number or a scalar constant", got=amount)
    assert isinstance(amount, Constant)
    return int(amount.value)
