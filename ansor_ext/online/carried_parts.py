"""Shares of a whole that are summed up in parts, each of which refers to an extreme of its own.

    M[i] = max_j v[i, j]        W[i] = sum_j term(v[i, j], M[i])
    O[i, d] = sum_j term(v[i, j], M[i]) * w[i, j, d] / W[i]

    M[p, i]    = max_j v[i, p * n + j]                           of the n points of part p, fewer in the last one
    W[p, i]    = sum_j term(v[i, p * n + j], M[p, i])
    O[p, i, d] = sum_j term(v[i, p * n + j], M[p, i]) * w[i, p * n + j, d]
    (M, W, O)  = sum_p (M[p, i], W[p, i], O[p, i, d])            carried, by the laws of `online.py`

Parts know nothing of each other, so that different blocks can compute them.  What a part gives is a triple, which is
added to another as pairs are, with two sums instead of one.  A part of nothing but the identity of the extreme (keys
that are masked) is left out; a row of nothing but such parts is NaN by definition, and 0 / 0.

One array holds the three: the columns of O, and M and W behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from te_lite.computation.derive import REMEMBERED
from te_lite.computation.tensor import ComputeOp, Operation
from te_lite.expr.expr import (
    INDEX,
    Binary,
    Expr,
    IterVar,
    Load,
    Reduce,
    Var,
    as_expr,
    compare,
    const,
    if_then_else,
    same,
    select,
)
from te_lite.expr.lanes import ceildiv
from te_lite.expr.node import binary
from te_lite.expr.visit import substitute, transform, walk

from .online import Law, combined
from .rescaling import Carried, carried, element_wise, is_extreme

NUMBERS = 2
"""Columns behind those of the sums: the extreme, and the whole."""


@dataclass(frozen=True)
class Whole:
    """Sums `total`, of which `quotient` divides the `copy` by the sum `whole`: both sums follow the `extreme`.

    `own` are these, and what reads them element by element: terms, and what nobody reads any more; in program order.
    """

    law: Law
    own: tuple[ComputeOp, ...]
    extreme: ComputeOp
    whole: ComputeOp
    total: ComputeOp
    copy: ComputeOp
    quotient: ComputeOp

    @property
    def length(self) -> int:
        return self.extreme.reduce_axis[0].length


def whole_of(quotient: ComputeOp, ops: Sequence[Operation]) -> Whole | None:
    """What a quotient divides; `ops` are all operations.  None where a law does not say how its parts are carried."""
    now = {op.key: op for op in ops if isinstance(op, ComputeOp)}
    match quotient.body[0]:
        case Binary(op="/", a=Load(tensor=above), b=Load(tensor=below)):
            copy, whole = now.get(above.op.key), now.get(below.op.key)
        case _:
            return None
    total = now.get(copy.body[0].tensor.op.key) if copy is not None and isinstance(copy.body[0], Load) else None
    if copy is None or whole is None or total is None or whole.reduction is None or total.reduction is None:
        return None
    for extreme in filter(is_extreme, ops):
        found = [x for sums in (whole, total) for x in [carried(sums, extreme, ops)] if x is not None]
        if len(found) == 2:
            own = _own((extreme, whole, total), copy, quotient, ops)
            plain = _of_own_rows((whole, total), found) and len(copy.axis) == len(total.axis) and len(own) > 3
            return Whole(found[0].law, own, extreme, whole, total, copy, quotient) if plain else None
    return None


def _of_own_rows(sums: Sequence[ComputeOp], found: Sequence[Carried]) -> bool:
    """Whether sums of all points refer to the extreme of their own row, by terms that are stages (parts are made of
    these)."""
    whole = all(op.reduction is not None and op.reduction.condition is None for op in sums)
    rows = [zip(x.at.indices, op.axis, strict=False) for x, op in zip(found, sums, strict=True)]
    return whole and all(same(i, v) for pairs in rows for i, v in pairs)


def _own(
    parts: Sequence[ComputeOp], copy: ComputeOp, quotient: ComputeOp, ops: Sequence[Operation]
) -> tuple[ComputeOp, ...]:
    """What parts have of their own; nothing where the quotient is not all that comes of it, point by point."""
    known, own, sums = element_wise(ops), {op.key: op for op in parts}, {op.key for op in parts[1:]}
    after = {copy.key: {parts[-1].key}, quotient.key: {copy.key, parts[-2].key}}
    for op in ops:
        read = {e.tensor.op.key for e in _reads(op)}
        if op.key in after:
            points = all(same(i, v) for e in _reads(op) for i, v in zip(e.indices, op.axis, strict=False))
            if not points or not read & {*own, copy.key} <= after[op.key]:
                return ()
        elif op.key in known and read & own.keys():
            own[op.key] = known[op.key]
            sums |= {op.key} if read & sums else set()
        elif read & ({*own, copy.key} if op.key not in own else sums):
            return ()  # what a sum of a part reads is no sum of all
    return tuple([op for op in ops if isinstance(op, ComputeOp) and op.key in own])


def _reads(op: Operation) -> list[Load]:
    return [e for body in op.body[:1] for e in walk(body) if isinstance(e, Load)] if isinstance(op, ComputeOp) else []


@dataclass(frozen=True)
class InParts:
    """The operations that stand in for those of a whole, by key, and the sum of triples, which is new."""

    stands_for: Mapping[object, ComputeOp]
    triples: ComputeOp


@lru_cache(maxsize=REMEMBERED)
def in_parts(made: Whole, length: int) -> InParts:
    """A whole in parts of `length` points each, the last one of what is left."""
    count, new = ceildiv(made.length, length), dict[object, ComputeOp]()
    for op in made.own:
        new[op.key] = _of_part(op, new, count, length)
    packed = _packed(made, new, count)
    triples = _triples(made, packed, count)
    divided = binary("/", *[Load(triples.output(k), made.quotient.axis) for k in (2, 1)])
    new |= {made.copy.key: packed, made.quotient.key: replace(made.quotient, body=(divided,))}
    return InParts(new, triples)


def _of_part(op: ComputeOp, new: Mapping[object, ComputeOp], count: int, length: int) -> ComputeOp:
    """The same operation of part p, the first axis: terms of all points, and what folds those of the part."""
    part, condition = IterVar("p", INDEX, count, "spatial"), None
    axis = tuple([IterVar(v.name, INDEX, v.extent, "spatial") for v in op.axis])
    summed = tuple([IterVar(v.name, INDEX, length, "reduce") for v in op.reduce_axis])
    points = [part * length + v for v in summed]
    env: dict[Var, Expr] = dict(zip((*op.axis, *op.reduce_axis), (*axis, *points), strict=True))

    def moved(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.tensor.op.key in new:
            return Load(new[e.tensor.op.key].output(), (part, *[substitute(i, env) for i in e.indices]))
        return env.get(e) if isinstance(e, IterVar) else None

    body = op.body[0]
    if isinstance(body, Reduce):
        whole = op.reduce_axis[0].length
        condition = compare("<", points[0], whole) if whole % length else None
        out: Expr = Reduce(body.combiner, (transform(body.sources[0], moved),), summed, condition, 0)
    else:
        out = transform(body, moved)
    return replace(op, axis=(part, *axis), body=(out,), reduce_axis=summed)


def _packed(made: Whole, new: Mapping[object, ComputeOp], count: int) -> ComputeOp:
    """Sums, extreme and whole of each part in one array."""
    *rows, columns = made.copy.axis
    axis = [IterVar("p", INDEX, count, "spatial"), *[IterVar(v.name, INDEX, v.extent, "spatial") for v in rows]]
    last = IterVar(columns.name, INDEX, columns.length + NUMBERS, "spatial")
    total, extreme, whole = [new[op.key].output() for op in (made.total, made.extreme, made.whole)]
    numbers = select(compare("==", last, columns.length), Load(extreme, tuple(axis)), Load(whole, tuple(axis)))
    body = if_then_else(compare("<", last, columns.length), Load(total, (*axis, last)), numbers)
    return replace(made.copy, axis=(*axis, last), body=(body,))


def _triples(made: Whole, packed: ComputeOp, count: int) -> ComputeOp:
    """The sum of all parts."""
    axis = tuple([IterVar(v.name, INDEX, v.extent, "spatial") for v in made.quotient.axis])
    part, columns = IterVar("p", INDEX, count, "reduce"), made.copy.axis[-1].length
    below = [Load(packed.output(), (part, *axis[:-1], as_expr(columns + k))) for k in range(2)]
    reduction = made.extreme.reduction
    assert reduction is not None
    neutral, zero = reduction.combiner.identity[0], const(0, packed.dtype)
    empty = compare("==", below[0], neutral)
    sums = [select(empty, zero, e) for e in (below[1], Load(packed.output(), (part, *axis)))]
    combiner = combined(made.law, packed.dtype, neutral, 2)
    body = tuple([Reduce(combiner, (below[0], *sums), (part,), None, k) for k in range(3)])
    return ComputeOp(f"{made.quotient.name}.parts", axis, body, ("CPT", made.quotient.key), reduce_axis=(part,))
