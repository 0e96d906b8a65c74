"""What a vector access needs to know of an index: how it moves with the lane, and what divides it."""

from __future__ import annotations

from math import gcd

from te_lite.expr import Binary, Const, Expr, Var, binary, const
from te_lite.visit import free_vars

ANY = 1 << 30


def divisor(e: Expr) -> int:
    """A number that divides every value of the integer expression `e` (`ANY` for 0)."""
    match e:
        case Const(value=value):
            return abs(int(value)) or ANY
        case Binary(op="+" | "-" | "%", a=a, b=b):
            return gcd(divisor(a), divisor(b))
        case Binary(op="*", a=a, b=b):
            return min(divisor(a) * divisor(b), ANY)
        case Binary(op="//", a=a, b=Const(value=value)) if value > 0 and divisor(a) % int(value) == 0:
            return divisor(a) // int(value)
    return 1


def split_lane(e: Expr, lane: Var) -> tuple[int, Expr] | None:
    """`(c, rest)` with `e == c * lane + rest` and no lane in `rest`; None when `e` is not of that form."""
    match e:
        case Var() if e is lane:
            return 1, const(0, e.dtype)
        case Binary(op="+" | "-" as op, a=a, b=b):
            x, y = split_lane(a, lane), split_lane(b, lane)
            if x is None or y is None:
                return None
            return x[0] + (y[0] if op == "+" else -y[0]), binary(op, x[1], y[1])
        case Binary(op="*", a=a, b=Const(value=value) as c):
            x = split_lane(a, lane)
            return None if x is None else (x[0] * int(value), binary("*", x[1], c))
    return None if lane in free_vars(e) else (0, e)


def vector_start(index: Expr, lane: Var, width: int) -> Expr | None:
    """The index in lane 0 when lanes are neighbours and lane 0 is at a multiple of `width`; else None."""
    split = split_lane(index, lane)
    if split is None or split[0] != 1 or divisor(split[1]) % width:
        return None
    return split[1]
