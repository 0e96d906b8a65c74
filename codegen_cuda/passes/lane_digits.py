"""Loops over fused virtual threads as one loop for each axis, around accumulations.

    for v in 0..8: acc[v] += a[v // 4] * b[v % 4]           for v.0 in 0..2, v.1 in 0..4:
                                                                acc[4 * v.0 + v.1] += a[v.0] * b[v.1]

Then it shows which operand a loop moves, and that an operand does not move with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from te_lite.expr.expr import Binary, BufferLoad, Const, Expr, Var, as_expr, binary
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute, walk
from te_lite.loops.perfect_nest import nested, perfect_nest
from te_lite.loops.stmt import For, ForKind, Stmt, Store, bodies, exprs_of, map_exprs, with_bodies


def with_lane_digits(body: Stmt, simplifier: Simplifier) -> Stmt:
    """A kernel whose unrolled accumulations have no loops over numbers that are taken apart.

    `simplifier` knows the ranges of all loops; it learns those of new ones.
    """
    if isinstance(body, For) and body.kind is ForKind.UNROLLED:
        s = _accumulation(body)
        strides = _strides(body, s) if s is not None else []
        if strides:
            return with_lane_digits(_separated(body, strides, simplifier), simplifier)
    return with_bodies(body, tuple([with_lane_digits(b, simplifier) for b in bodies(body)]))


def _accumulation(s: Stmt) -> Store | None:
    """The statement in perfectly nested loops, where it adds to a register."""
    _, inner = perfect_nest(s)
    if not isinstance(inner, Store) or inner.buffer.storage != "local":
        return None
    return inner if any(isinstance(e, BufferLoad) and e.buffer is inner.buffer for e in walk(inner.value)) else None


def _strides(loop: For, s: Store) -> list[int]:
    """What the loop's variable is divided by, in rising order, where each divides the next one and the extent."""
    found = {n for root in exprs_of(s) for e in walk(root) for n in _ends(e, loop.var)}
    strides = sorted(n for n in found if 1 < n < loop.extent)
    return strides if all(b % a == 0 for a, b in pairwise([*strides, loop.extent])) else []


def _ends(e: Expr, var: Var) -> Iterator[int]:
    """Where a digit of `var` begins or ends."""
    match e:
        case Binary(op="//" | "%", a=a, b=Const(value=n)) if a is var:
            yield int(n)
        case Binary(op="%", a=Binary(op="//", a=a, b=Const(value=m)), b=Const(value=n)) if a is var:
            yield int(m) * int(n)


def _separated(loop: For, strides: list[int], simplifier: Simplifier) -> Stmt:
    """The loop as one for each digit."""
    ends = [*strides, loop.extent]
    digits: list[For] = []
    number: Expr = as_expr(0)
    for stride, end in zip([1, *strides], ends, strict=True):
        digit = Var(loop.var.name)
        simplifier.bind(digit, 0, end // stride - 1)
        digits.insert(0, replace(loop, var=digit, extent=end // stride))
        number = binary("+", binary("*", digit, stride), number)
    return nested(digits, map_exprs(loop.body, lambda e: simplifier.simplify(substitute(e, {loop.var: number}))))
