"""The range of an index by looking at every point of the loops that it and its conditions depend on.

An index is a sum of terms.  Terms and conditions that share variables, directly or through others, belong together;
what does not share any is independent, so the range of a sum is the sum of the ranges, and only the points of one group
at a time are looked at.  A group of one bare loop variable without a condition needs no points at all.  The result is
exact, with a point for each end, unless a term or condition depends on memory: a condition is left out then, which can
only make the range larger, and a term takes the range of its span.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..expr.expr import Binary, Call, Cast, Compare, Const, Expr, Logical, Not, Select, Var
from ..expr.visit import free_vars, walk
from .verify_span import INDICES, Span, Spans

MOST_POINTS = 1 << 24
"""How many points one access may take."""

_BLOCK = 1 << 18
_WIDE = 1 << 62
Point = dict[Var, int]
Values = Any  # np.ndarray of int64, bool or object
Terms = dict[Expr, int]

_ARITHMETIC: dict[str, Callable[[Any, Any], Values]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "min": np.minimum,
    "max": np.maximum, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal,
    "!=": np.not_equal, "&&": np.logical_and, "||": np.logical_or,
}  # fmt: skip


@dataclass(frozen=True)
class Range:
    """What was found: the ends, a point for each, how many points were looked at, and whether nothing was left out.

    `low > high` says that the conditions hold nowhere.
    """

    low: int
    high: int
    lowest: Point
    highest: Point
    points: int
    exact: bool


def sum_of(e: Expr) -> tuple[Terms, int]:
    """An index as a sum of scaled terms and a constant."""
    terms: Terms = {}
    constant = _add(e, 1, terms)
    return {e: c for e, c in terms.items() if c}, constant


def _add(e: Expr, scale: int, terms: Terms) -> int:
    match e:
        case Const(value=value):
            return int(value) * scale
        case Binary() if e.dtype not in INDICES:
            pass
        case Binary(op="+", a=a, b=b):
            return _add(a, scale, terms) + _add(b, scale, terms)
        case Binary(op="-", a=a, b=b):
            return _add(a, scale, terms) + _add(b, -scale, terms)
        case Binary(op="*", a=a, b=Const(value=value)) | Binary(op="*", a=Const(value=value), b=a):
            return _add(a, scale * int(value), terms)
    terms[e] = terms.get(e, 0) + scale
    return 0


def computable(e: Expr, spans: Spans) -> bool:
    """Whether the value of `e` is known at a point of the loops: integers and bools, no division by what may be 0."""
    return all(_computable(x, spans) for x in walk(e))


def _computable(e: Expr, spans: Spans) -> bool:
    match e:
        case Const() | Var():
            return e.dtype in INDICES or e.dtype == "bool"
        case Binary(op="//" | "%", a=a, b=b):
            low, high = spans.of(b) if b.dtype in INDICES else (0, 0)
            return a.dtype in INDICES and not low <= 0 <= high
        case Binary(op=op, a=a):
            return a.dtype in INDICES and op in _ARITHMETIC
        case Compare() | Logical() | Not():
            return True
        case Select() | Cast() | Call(func="if_then_else" | "index_xor"):
            return e.dtype in INDICES or e.dtype == "bool"
    return False


def value_at(e: Expr, grid: Mapping[Var, Values]) -> Values:
    """The values of a computable expression at the points of `grid`."""
    match e:
        case Var():
            return grid[e]
        case Const(value=value):
            return bool(value) if e.dtype == "bool" else int(value)
        case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b) | Logical(op=op, a=a, b=b):
            return _ARITHMETIC[op](value_at(a, grid), value_at(b, grid))
        case Not(a=a):
            return np.logical_not(value_at(a, grid))
        case Cast(a=a):
            return np.not_equal(value_at(a, grid), 0) if e.dtype == "bool" else np.multiply(value_at(a, grid), 1)
        case Call(func="index_xor", args=(a, b)):
            return np.bitwise_xor(value_at(a, grid), value_at(b, grid))
        case Select(cond=cond, a=a, b=b) | Call(args=(cond, a, b)):
            return np.where(value_at(cond, grid), value_at(a, grid), value_at(b, grid))
    raise TypeError(f"no value at a point: {type(e).__name__}")


@dataclass(frozen=True)
class _Group:
    """Terms and conditions that share variables."""

    variables: tuple[Var, ...]
    terms: Terms
    conditions: tuple[Expr, ...]


def groups_of(terms: Terms, conditions: tuple[Expr, ...]) -> list[_Group]:
    """The independent parts of a sum and its conditions."""
    parts: list[tuple[set[Var], Terms, list[Expr]]] = []
    entries: list[tuple[set[Var], Terms, list[Expr]]] = [(free_vars(e), {e: c}, []) for e, c in terms.items()]
    entries += [(free_vars(c), {}, [c]) for c in conditions]
    for used, own, holds in entries:
        linked = [p for p in parts if p[0] & used]
        parts = [p for p in parts if not p[0] & used]
        merged: tuple[set[Var], Terms, list[Expr]] = (set(used), dict(own), list(holds))
        for p in linked:
            merged = (merged[0] | p[0], p[1] | merged[1], p[2] + merged[2])
        parts.append(merged)
    return [_Group(tuple(sorted(v, key=lambda x: x.name)), t, tuple(c)) for v, t, c in parts]


def _bare(group: _Group) -> bool:
    return not group.conditions and all(isinstance(e, Var) for e in group.terms)


def _count(group: _Group, spans: Spans) -> int:
    return 1 if _bare(group) else math.prod(high - low + 1 for low, high in map(spans.of, group.variables))


def range_at_points(index: Expr, conditions: tuple[Expr, ...], spans: Spans, most: int = MOST_POINTS) -> Range | None:
    """The range of an index where all conditions hold; None when that takes more than `most` points.

    Conditions on variables that the index does not depend on are left out: they cannot make it larger.
    """
    terms, constant = sum_of(index)
    holds = tuple([c for c in conditions if computable(c, spans)])
    known = {e: c for e, c in terms.items() if computable(e, spans)}
    groups = [g for g in groups_of(known, holds) if g.terms]
    points = sum(_count(g, spans) for g in groups)
    if points > most:
        return None
    exact = len(holds) == len(conditions) and len(known) == len(terms)
    out = Range(constant, constant, {}, {}, points, exact)
    for e, c in terms.items():
        if e not in known:
            ends = sorted(c * x for x in spans.of(e))
            out = _sum(out, Range(ends[0], ends[1], {}, {}, 0, False))
    return reduce(_sum, [_range_of(g, spans) for g in groups], out)


def range_of_conditions(conditions: tuple[Expr, ...], spans: Spans, known: Collection[Var]) -> Range | None:
    """Whether, and where, the conditions hold that do not depend on the variables `known`: an empty range, or a point.

    None when that takes too many points.  Conditions that depend on memory are left out.
    """
    holds = tuple([c for c in conditions if computable(c, spans)])
    groups = [g for g in groups_of({}, holds) if not any(v in known for v in g.variables)]
    points = sum(_count(g, spans) for g in groups)
    if points > MOST_POINTS:
        return None
    return reduce(_sum, [_range_of(g, spans) for g in groups], Range(0, 0, {}, {}, points, True))


def _sum(a: Range, b: Range) -> Range:
    if a.low > a.high or b.low > b.high:
        return Range(1, 0, {}, {}, a.points, a.exact)
    low, high = a.lowest | b.lowest, a.highest | b.highest
    return Range(a.low + b.low, a.high + b.high, low, high, a.points, a.exact and b.exact)


def _range_of(group: _Group, spans: Spans) -> Range:
    if _bare(group):
        ((e, c),) = group.terms.items()
        first, last = spans.of(e) if c > 0 else reversed(spans.of(e))
        assert isinstance(e, Var)
        return Range(c * first, c * last, {e: first}, {e: last}, 0, True)
    out = Range(1, 0, {}, {}, 0, True)
    for grid in grids({v: spans.of(v) for v in group.variables}, _machine_words(group, spans)):
        out = _wider(out, _range_on(group, grid))
    return out


def _range_on(group: _Group, grid: Mapping[Var, Values]) -> Range:
    """The range on one block of points."""
    shape = np.broadcast_shapes(*[x.shape for x in grid.values()])
    total = reduce(np.add, [np.multiply(value_at(e, grid), c) for e, c in group.terms.items()], np.int64(0))
    total = np.broadcast_to(total, shape)
    alive = np.broadcast_to(reduce(np.logical_and, [value_at(c, grid) for c in group.conditions], np.True_), shape)
    where = np.flatnonzero(alive)
    if not where.size:
        return Range(1, 0, {}, {}, 0, True)
    values = total.reshape(-1)[where]
    at = [int(where[k]) for k in (int(np.argmin(values)), int(np.argmax(values)))]
    low, high = [{v: int(np.broadcast_to(x, shape).reshape(-1)[k]) for v, x in grid.items()} for k in at]
    return Range(int(values.min()), int(values.max()), low, high, 0, True)


def _wider(a: Range, b: Range) -> Range:
    if a.low > a.high or b.low > b.high:
        return b if a.low > a.high else a
    low, high = min(a, b, key=lambda x: x.low), max(a, b, key=lambda x: x.high)
    return Range(low.low, high.high, low.lowest, high.highest, 0, True)


def _machine_words(group: _Group, spans: Spans) -> bool:
    """Whether no value on the way to a sum leaves 64 bits."""
    nodes = [x for e in (*group.terms, *group.conditions) for x in walk(e)]
    ends = [x for e in nodes for x in spans.of(e)]
    total = sum(abs(c) * max(map(abs, spans.of(e))) for e, c in group.terms.items())
    return max(total, *map(abs, ends)) < _WIDE


def grids(boxes: Mapping[Var, Span], machine_words: bool) -> Iterator[dict[Var, Values]]:
    """All points of some loops in blocks, each variable an array along an axis of its own.

    Integers are Python's own where 64 bits are too few.
    """
    if not boxes:
        yield {}
        return
    dtype = np.int64 if machine_words else object
    order = sorted(boxes, key=lambda v: boxes[v][0] - boxes[v][1])
    rest = math.prod(boxes[v][1] - boxes[v][0] + 1 for v in order[1:])
    low, high = boxes[order[0]]
    step = max(1, _BLOCK // rest)
    for start in range(low, high + 1, step):
        ends = {**boxes, order[0]: (start, min(start + step - 1, high))}
        yield {
            v: np.array(range(ends[v][0], ends[v][1] + 1), dtype).reshape(
                [-1 if j == k else 1 for j in range(len(order))]
            )
            for k, v in enumerate(order)
        }
