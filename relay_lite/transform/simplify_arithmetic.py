"""Rules for arithmetic: constants meet constants, so that fewer operators touch the large tensors."""

from __future__ import annotations

import numpy as np

from te_lite.expr.dtype import python_number
from te_lite.expr.laws import OTHER, law

from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr, const
from ..ir.visit import constant_value, is_op

_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


def identity(node: Call) -> Expr | None:
    """x - 0, x * 1, x / 1 and, for integers, x + 0 are x, for a constant of one element: the laws of its dtype."""
    left, right = node.args
    for constant, side, other in ((right, "right", left), (left, "left", right)):
        number = _number(constant)
        if number is not None and law(_OPERATORS[node.op.name], side, number, node.dtype) == OTHER:
            return other
    return None


def empty_mask(node: Call) -> Expr | None:
    """x + m is x for a constant of -0.0 everywhere, as a mask is that hides nothing."""
    x, mask = node.args
    value = constant_value(mask)
    nothing = value is not None and value.dtype.kind == "f" and np.all((value == 0) & np.signbit(value))
    return x if nothing else None


def known_choice(node: Call) -> Expr | None:
    """where(c, x, y) of a constant that is true everywhere, or nowhere."""
    condition, x, y = node.args
    value = constant_value(condition)
    if value is None or (np.any(value) and not np.all(value)):
        return None
    return x if np.any(value) else y


def fill_to_scalar(node: Call) -> Expr | None:
    """A tensor of one number as an operand is that number, if broadcasting gives the same shape without it."""
    for k, operand in enumerate(node.args):
        number = _fill(operand)
        other = node.args[1 - k]
        if number is not None and other.shape == node.shape:
            return Call(node.op, (other, number) if k else (number, other), node.attrs)
    return None


def fill_like(node: Call) -> Expr:
    """zeros_like, ones_like and full_like need the shape of their argument only."""
    data, *value = node.args
    return call(node.op.name.removesuffix("_like"), *value, shape=data.shape, dtype=data.dtype)


def add_twice(node: Call) -> Expr | None:
    """x + x is x * 2."""
    left, right = node.args
    return call("multiply", left, const(2, node.dtype)) if left is right else None


def merge_constants(node: Call) -> Expr | None:
    """(x * c1) * c2 is x * (c1 * c2), and so for sums."""
    inner, outer = _with_constant(node)
    if inner is None or outer is None or not is_op(inner, node.op.name):
        return None
    x, constant = _with_constant(inner)
    both = _combine(node.op.name, constant, outer) if constant is not None else None
    return call(node.op.name, x, both) if x is not None and both is not None else None


def multiply_first(node: Call) -> Expr | None:
    """(x + c1) * c2 is x * c2 + c1 * c2: the scale stands where it can be folded into what made x."""
    inner, factor = _with_constant(node)
    if inner is None or factor is None or not is_op(inner, "add"):
        return None
    x, addend = _with_constant(inner)
    finite = addend is not None and bool(np.all(np.isfinite(addend.value))) and bool(np.all(np.isfinite(factor.value)))
    shift = _combine("multiply", addend, factor) if addend is not None and finite else None
    return call("add", call("multiply", x, factor), shift) if x is not None and shift is not None else None


def reciprocal_root(node: Call) -> Expr | None:
    """a / sqrt(b) is a * rsqrt(b)."""
    left, right = node.args
    return call("multiply", left, call("rsqrt", right.args[0])) if is_op(right, "sqrt") else None


def merge_clips(node: Call) -> Expr | None:
    """clip(clip(x)) is a clip to what both ranges share, if they share anything."""
    (inner,) = node.args
    if not is_op(inner, "clip"):
        return None
    low = max(node.attrs["a_min"], inner.attrs["a_min"])
    high = min(node.attrs["a_max"], inner.attrs["a_max"])
    return call("clip", inner.args[0], a_min=low, a_max=high) if low <= high else None


def _number(node: Expr) -> int | float | bool | None:
    """The only element of a constant."""
    value = constant_value(node)
    return python_number(value) if value is not None and value.size == 1 else None


def _fill(node: Expr) -> Expr | None:
    """The number that fills a tensor, with rank 0."""
    if is_op(node, "zeros", "ones"):
        return const(0 if node.op.name == "zeros" else 1, node.dtype)
    if is_op(node, "full"):
        (value,) = node.args
        return value if value.dtype == node.dtype else call("cast", value, dtype=node.dtype)
    return None


def _with_constant(node: Call) -> tuple[Expr | None, Constant | None]:
    """The operands of a sum or product as (the other one, the constant one); None for what there is not."""
    left, right = node.args
    if isinstance(right, Constant):
        return (None if isinstance(left, Constant) else left), right
    return (right, left) if isinstance(left, Constant) else (None, None)


def _combine(name: str, a: Constant, b: Constant) -> Constant | None:
    """The sum or product of two constants; None where finite numbers overflow, or others than 0 give 0.

    There an x that is small, or infinite, would show the difference.
    """
    if a.dtype != b.dtype:
        return None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        value = np.add(a.value, b.value) if name == "add" else np.multiply(a.value, b.value)
        sound = np.isfinite(value) | ~(np.isfinite(a.value) & np.isfinite(b.value))
        if name == "multiply":
            sound = sound & ((value != 0) | (a.value == 0) | (b.value == 0))
    return Constant(value) if bool(np.all(sound)) else None
