"""Arithmetic on data stays arithmetic on data, whatever the passes that follow take out of it.

Inlining a stage that is made of loop variables only, or deciding a condition, takes the read of memory away that made
an operation one on data, which wraps around; what is left would be index arithmetic, which has no width.  Where that
changes a value, an operand is put into `trunc`, which is the identity on integers and always data (`width.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from ..expr.expr import FLOATS, Binary, Call, Cast, Const, Expr, Load, Select
from ..expr.interval import INDEX_DTYPES, binary_interval
from ..expr.visit import children, rebuild
from ..loops.width import Widths, fits

Kept = Callable[[Load], bool]


def kept_as_data(e: Expr, widths: Widths, kept: Kept) -> Expr:
    """`e` with the operands in `trunc` that keep its operations data arithmetic; itself where none is needed.

    `widths` knows the axes of the stage, `kept(load)` says whether a read certainly stays one of data.
    """
    old = children(e)
    new = tuple([kept_as_data(x, widths, kept) for x in old])
    sure = isinstance(e, Binary) and any(stays_data(x, kept) for x in old)
    if e.dtype in INDEX_DTYPES and not sure and not widths.range(e)[1] and _leaves(e, widths):
        new = tuple([_held(x, y, widths, kept) for x, y in zip(old, new, strict=True)])
    return e if all(x is y for x, y in zip(old, new, strict=True)) else rebuild(e, new)


def kept_as_value(e: Expr, widths: Widths, kept: Kept) -> Expr:
    """As `kept_as_data`, and where `e` itself is index arithmetic that does not fit its dtype, data of that dtype."""
    new = kept_as_data(e, widths, kept)
    wide = e.dtype in INDEX_DTYPES and not fits(widths.range(e)[0], e.dtype)
    return Call("trunc", (new,), e.dtype) if wide else new


def _leaves(e: Expr, widths: Widths) -> bool:
    """Whether an operation of integers, or an operand of it, may leave its dtype."""
    match e:
        case Binary(op=op, a=a, b=b):
            x, y = widths.range(a)[0], widths.range(b)[0]
            whole = op in ("//", "/") or fits(binary_interval(op, x, y), e.dtype)
            lowest = op in ("//", "/") and not fits((-x[1], -x[0]), e.dtype)
            return lowest or not (whole and fits(x, e.dtype) and fits(y, e.dtype))
        case Call(func="abs", args=(a,)):
            lo, hi = widths.range(a)[0]
            return not fits((-hi, -lo), e.dtype)
        case Select(a=a, b=b) | Call(func="if_then_else", args=(_, a, b)):
            return not all(fits(widths.range(x)[0], e.dtype) for x in (a, b))
    return False


def _held(old: Expr, new: Expr, widths: Widths, kept: Kept) -> Expr:
    if old.dtype not in INDEX_DTYPES or isinstance(old, Const) or stays_data(old, kept):
        return new
    index = widths.range(old)[1]
    return new if index and fits(widths.range(old)[0], old.dtype) else Call("trunc", (new,), new.dtype)


def stays_data(e: Expr, kept: Kept) -> bool:
    """Whether no pass can make index arithmetic, or a constant, of `e`."""
    match e:
        case Load():
            return kept(e)
        case Cast(a=a) if e.dtype != "bool":
            return stays_data(a, kept)
        case Binary(op=op, a=a, b=b) if op in ("+", "-") or e.dtype in FLOATS:
            return stays_data(a, kept) or stays_data(b, kept)
        case Binary(op="*", a=a, b=Const() as b) | Binary(op="*", a=Const() as b, b=a):
            return b.value != 0 and stays_data(a, kept)
        case Binary(op="*" | "min" | "max", a=a, b=b) | Select(a=a, b=b) | Call(func="if_then_else", args=(_, a, b)):
            return stays_data(a, kept) and stays_data(b, kept)
        case Call(func=func, args=args) if func != "isnan":
            return any(stays_data(a, kept) for a in args)
    return False
