"""Statements of what is computed along a loop (`lower_along.py`): a tile that is folded in, and what that scales."""

from __future__ import annotations

from ..expr.expr import BufferLoad, Combiner, Const, Expr, Reduce, Var, binary, compare, logical_and, select
from ..expr.visit import transform
from ..loops.stmt import Stmt, Store
from .lower_point import Point, Points


def combined(combiner: Combiner, lhs: list[Expr], rhs: list[Expr]) -> list[Expr]:
    """The results of the combiner for these operands."""
    env = dict(zip((*combiner.lhs, *combiner.rhs), (*lhs, *rhs), strict=True))
    return [transform(r, lambda e: env.get(e) if isinstance(e, Var) else None) for r in combiner.result]


def scale_at(points: Points, k: int, point: Point) -> Expr:
    """What a sum of stage k is multiplied by at a point, since the extreme that it follows has grown."""
    extreme, follows = points.low.followers[k]
    at = points.value(follows.at, point)
    assert isinstance(at, BufferLoad)
    return BufferLoad(points.low.grown[extreme].scale, at.index)


def folded_in(points: Points, k: int, value: Expr, point: Point, main: BufferLoad) -> list[Stmt]:
    """Fold the value of a tile into stage k, whose element at the point is `main`."""
    low, body = points.low, points.low.bodies[k][0]
    assert isinstance(body, Reduce)
    if k not in low.grown:
        kept = binary("*", main, scale_at(points, k, point)) if k in low.followers else main
        return [Store(main.buffer, main.index, combined(body.combiner, [kept], [value])[0])]
    grown, at = low.grown[k], main.index
    running = BufferLoad(grown.running, at)
    (new,) = combined(body.combiner, [running], [value])
    law = next(follows.law for extreme, follows in low.followers.values() if extreme == k)
    one, zero, neutral = Const(1.0, value.dtype), Const(0.0, value.dtype), body.combiner.identity[0]
    scale = select(compare("==", running, new), one, law.carry(one, running, new))
    attach = low.stages[k].attach
    assert attach is not None
    turn, turns = low.vars[attach.stage][attach.iter], low.stages[attach.stage].vars[attach.iter].length
    empty = logical_and(compare("==", running, neutral), compare("<", turn, turns - 1))
    stores = [Store(grown.scale, at, scale), Store(grown.running, at, new)]
    return [*stores, Store(main.buffer, at, select(empty, zero, running))]
