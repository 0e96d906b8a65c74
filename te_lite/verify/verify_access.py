"""Is an access in bounds wherever it happens?  Proven, refuted with a point that shows it, or left open.

Three arguments, cheapest first; the walk has tried the range of the index over the boxes of the loops already:

    few points   all points of the loops that the index depends on, where those are few
    forms        the index as a linear form, bounded by the conditions (`verify_bounds.py`)
    all points   up to `MOST_POINTS` of them
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..expr.expr import Var
from ..loops.stmt_text import pretty
from .verify_bounds import inside
from .verify_points import MOST_POINTS, Point, computable, range_at_points, range_of_conditions, value_at
from .verify_scope import Access, Read
from .verify_span import Boxes

FEW_POINTS = 1 << 13
_TRIED = 512


@dataclass(frozen=True)
class Shown:
    """In bounds; `points` were looked at (0: by an argument over ranges alone)."""

    points: int = 0


@dataclass(frozen=True)
class Counterexample:
    """Not in bounds: the sentence names a point."""

    sentence: str


@dataclass(frozen=True)
class Open:
    """Neither: the sentence says why."""

    sentence: str


def settle(access: Access | Read) -> Shown | Counterexample | Open:
    """What is known of an access."""
    spans, conditions, size = access.scope.spans, access.scope.conditions, access.size
    found = range_at_points(access.index, conditions, spans, FEW_POINTS)
    if found is None:
        if inside(access.index, size, conditions, access.forms, access.forms.ends(spans)):
            return Shown()
        found = range_at_points(access.index, conditions, spans, MOST_POINTS)
    if found is None:
        return _tried(access)
    if found.low > found.high or (found.low >= 0 and found.high < size):
        return Shown(found.points)
    value, point = (found.low, found.lowest) if found.low < 0 else (found.high, found.highest)
    rest = range_of_conditions(conditions, spans, point.keys())
    if rest is not None and rest.low > rest.high:
        return Shown(found.points + rest.points)
    if not found.exact:
        reach = f"as far as it does not depend on memory, it runs from {found.low} to {found.high}"
        return _open(access, f"{reach}; an index that is read from memory must be clipped")
    if rest is None:
        return _open(access, f"it runs from {found.low} to {found.high}, if the conditions around it hold together")
    return _outside(access, value, point | rest.lowest)


def _open(access: Access | Read, reason: str) -> Open:
    element = access.element(pretty(access.index))
    return Open(f"nothing shows that {element} is inside of {access.size} elements: {reason}")


def _outside(access: Access | Read, value: int, point: Point) -> Counterexample:
    loops = [x.var for x in access.scope.loops]
    where = ", ".join(f"{v.name}={point.get(v, access.scope.spans.boxes[v][0])}" for v in loops)
    return Counterexample(f"{access.element(value)} is outside of {access.size} elements where {where}")


def _tried(access: Access | Read) -> Counterexample | Open:
    """A few points of an access that has too many."""
    spans, size = access.scope.spans, access.size
    if all(computable(e, spans) for e in (access.index, *access.scope.conditions)):
        points = _walk_through(spans.boxes)
        alive = np.logical_and.reduce([value_at(c, points) for c in access.scope.conditions], initial=np.True_)
        index = value_at(access.index, points)
        bad = np.flatnonzero(alive & ((index < 0) | (index >= size)))
        if bad.size:
            at = int(bad[0])
            return _outside(access, int(index[at]), {v: int(x[at]) for v, x in points.items()})
    return _open(access, f"it has more than {MOST_POINTS} points")


def _walk_through(boxes: Boxes) -> dict[Var, Any]:
    """The first, the last, and points between, of all loops; integers of Python."""
    counts = {v: high - low + 1 for v, (low, high) in boxes.items()}
    total = math.prod(counts.values())
    step = max(1, int(total * 0.6180339887) | 1)
    flat = [k * step % total for k in range(_TRIED)] + [total - 1]
    out: dict[Var, Any] = {}
    for v, n in counts.items():
        out[v] = np.array([boxes[v][0] + x % n for x in flat], object)
        flat = [x // n for x in flat]
    return out
