"""Facts about the index of a vector access: its stride from lane to lane, and its known divisor."""

from __future__ import annotations

from math import gcd

from te_lite.bounds.loop_scope import BLOCKS, THREADS
from te_lite.expr.expr import Binary, Call, Const, Expr, Var, as_expr, binary, const, index_xor
from te_lite.expr.visit import free_vars

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
    return None if split is None or split[0] != 1 or divisor(split[1]) % width else split[1]


def around_xor(e: Call) -> Expr:
    """`index_xor(8 * a + b, c % 8)` as `8 * a + index_xor(b, c % 8)`, and so for other powers of two.

    Only the lowest digits change, so what counts whole lines of swizzled chunks can be added behind: that is the same
    for all steps of a loop, or a constant, and needs no instruction of its own.
    """
    a, b = e.args
    match b:
        case Binary(op="%", b=Const(value=value)) if value > 0 and int(value) & (int(value) - 1) == 0:
            parts = list(_addends(a))
        case _:
            return e
    whole = [x for x in parts if divisor(x) % int(value) == 0]
    rest = [x for x in parts if divisor(x) % int(value)]
    if not whole:
        return e
    return _sum([*whole, index_xor(_sum(rest), b) if rest else b])


def _addends(e: Expr) -> list[Expr]:
    match e:
        case Binary(op="+", a=a, b=b):
            return [*_addends(a), *_addends(b)]
    return [e]


def _sum(parts: list[Expr]) -> Expr:
    total = parts[0]
    for x in parts[1:]:
        total = binary("+", total, x)
    return total


def by_lane(e: Expr) -> tuple[Expr, Expr]:
    """An index as the sum of what differs from thread to thread, and of what does not."""
    parts: tuple[list[Expr], list[Expr]] = [], []
    for term, factor in _terms(e, 1):
        alike = not any(v.name in THREADS + BLOCKS for v in free_vars(term))
        parts[alike].append(binary("*", term, factor))
    own, same = [_sum(x) if x else as_expr(0) for x in parts]
    return own, same


def _terms(e: Expr, factor: int) -> list[tuple[Expr, int]]:
    """The terms that `factor * e` is a sum of, with their factors."""
    match e:
        case Binary(op="+", a=a, b=b):
            return [*_terms(a, factor), *_terms(b, factor)]
        case Binary(op="*", a=a, b=Const(value=value)):
            return _terms(a, factor * int(value))
        case Call(func="index_xor") if (apart := around_xor(e)) is not e:
            return _terms(apart, factor)
    return [(e, factor)]
