"""From axes to indices: what the index of a read does while the axes of its reader run; ints, floats and lanes alike.

    index_span       how far it reaches, from the smallest value to the largest (analytical models)
    values_at_most   how many values it takes, with the gaps of its smallest step (analytical models)
    span_at_least    the same, but what is not sure counts one value (the estimate of shared memory)
    IndexTuples      how many different values the indices of several reads take, the axes beginning at 0 (features)
    first_step       how far it moves when axes go from 0 to their first steps (analytical models)
    usual_steps      how far it moves with each axis, in most places (features)

The figures differ where an index divides.  A span is that of a tile anywhere in its tensor, and nothing is known of
where it lies between two multiples: its quotient is as long as if it began at one, its remainder a period at most.
Features count the tile that begins at 0, know its ends, and look whether they are in one period.  A limit must not
refuse what fits, so it takes a remainder as one value, and lets an axis stand still along which one part of an index
may fall while another rises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..expr.lanes import ceildiv, smaller
from .reads import Affine, Form, Quotient, Scaled, Sum, Unknown

UNKNOWN_SPAN = 1 << 40
"""More values than a dimension has."""

Interval = tuple[Any, Any, Any]
"""Smallest value, largest value, number of different values at most."""


def form_axes(form: Form) -> set[int]:
    """The axes that occur in an index."""
    match form:
        case Affine(terms=terms):
            return {axis for axis, _ in terms}
        case Sum(parts=parts):
            return {axis for part in parts for axis in form_axes(part)}
        case Scaled(part=part) | Quotient(part=part):
            return form_axes(part)
        case Unknown():
            return set()


# ---------------------------------------------------------------------------------------------------------- spans


def index_span(form: Form, axes: Sequence[Any], size: Any) -> Any:
    """How many values an index reaches over, at most `size`, while the axes reach over `axes` values each."""
    return smaller(_span(form, axes, sure=False), size)


def values_at_most(form: Form, axes: Sequence[Any]) -> Any:
    """How many values an index takes at most: the terms of a dilated window lie apart, and what is between is not met.

    Of its smallest step the gaps count, too: lines of a cache hold them.
    """
    if not isinstance(form, Affine) or not form.terms:
        return UNKNOWN_SPAN
    return math.prod([axes[a] for a, _ in form.terms]) * min(abs(c) for _, c in form.terms)


def span_at_least(form: Form, axes: Sequence[Any]) -> Any:
    """How many values, at least, an index reaches over while the axes reach over `axes` values each."""
    return _span(form, axes, sure=True)


def _span(form: Form, axes: Sequence[Any], sure: bool) -> Any:
    match form:
        case Affine(terms=terms):
            return 1 + sum([abs(c) * (axes[a] - 1) for a, c in terms])
        case Sum(parts=parts):
            held = _opposed(parts) if sure else frozenset()
            moving = [1 if a in held else n for a, n in enumerate(axes)] if held else axes
            return 1 + sum([_span(p, moving, sure) - 1 for p in parts])
        case Scaled(part=part, factor=factor):
            return 1 + abs(factor) * (_span(part, axes, sure) - 1)
        case Quotient(part=part, divisor=divisor, mod=False):
            return ceildiv(_span(part, axes, sure), divisor)
        case Quotient(part=part, divisor=divisor):
            return 1 if sure else smaller(_span(part, axes, sure), divisor)
        case Unknown():
            return 1 if sure else UNKNOWN_SPAN


def _opposed(parts: Sequence[Form]) -> frozenset[int]:
    """The axes in several parts along which one part may fall while another rises."""
    found: dict[int, list[int]] = {}
    for part in parts:
        for axis, way in _ways(part).items():
            found.setdefault(axis, []).append(way)
    return frozenset([axis for axis, ways in found.items() if len(ways) > 1 and (len(set(ways)) > 1 or 0 in ways)])


def _ways(form: Form) -> dict[int, int]:
    """For each axis of an index 1 if it never falls while the axis rises, -1 if it never rises, 0 if it may do both."""
    match form:
        case Affine(terms=terms):
            return {axis: 1 if c > 0 else -1 for axis, c in terms}
        case Sum(parts=parts):
            found = [_ways(p) for p in parts]
            axes = {axis for ways in found for axis in ways}
            every = {axis: {ways[axis] for ways in found if axis in ways} for axis in axes}
            return {axis: ways.pop() if len(ways) == 1 else 0 for axis, ways in every.items()}
        case Scaled(part=part, factor=factor):
            return {axis: way if factor > 0 else -way for axis, way in _ways(part).items()}
        case Quotient(part=part, mod=mod):
            return {axis: 0 if mod else way for axis, way in _ways(part).items()}
        case Unknown():
            return {}


# ---------------------------------------------------------------------------------------------------------- steps


def first_step(form: Form, steps: Sequence[Any]) -> Any:
    """How far an index moves from where all axes are 0 when each makes its step; where nothing is known, by one."""
    match form:
        case Affine(terms=terms):
            return sum([c * steps[a] for a, c in terms])
        case Sum(parts=parts):
            return sum([first_step(p, steps) for p in parts])
        case Scaled(part=part, factor=factor):
            return factor * first_step(part, steps)
        case Quotient(part=part, divisor=divisor, mod=mod):
            here = _first_value(part)
            there = here + first_step(part, steps)
            return there % divisor - here % divisor if mod else there // divisor - here // divisor
        case Unknown():
            return 1


def _first_value(form: Form) -> int:
    """The index where all axes are 0; 0 where nothing is known."""
    match form:
        case Affine(const=const):
            return const
        case Sum(parts=parts, const=const):
            return const + sum([_first_value(p) for p in parts])
        case Scaled(part=part, factor=factor):
            return factor * _first_value(part)
        case Quotient(part=part, divisor=divisor, mod=mod):
            return _first_value(part) % divisor if mod else _first_value(part) // divisor
        case Unknown():
            return 0


def usual_steps(form: Form) -> dict[int, float]:
    """By how much one step of each axis moves an index, in most places (it may carry in some).

    A quotient carries in some places only, forward and backward alike; in the middle of a period a remainder moves as
    far back as forth, so a step keeps its direction here.
    """
    return {axis: _usual_step(form, axis) for axis in form_axes(form)}


def _usual_step(form: Form, axis: int) -> float:
    match form:
        case Affine(terms=terms):
            return float(sum([c for a, c in terms if a == axis]))
        case Sum(parts=parts):
            return sum([_usual_step(p, axis) for p in parts], 0.0)
        case Scaled(part=part, factor=factor):
            return factor * _usual_step(part, axis)
        case Quotient(part=part, divisor=divisor, mod=mod):
            inner = _usual_step(part, axis)
            return math.fmod(inner, divisor) if mod else float(math.trunc(inner / divisor))
        case Unknown():
            return 1.0


# --------------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class IndexTuples:
    """The different index tuples `forms` with which one storage is read, all of the same length."""

    forms: tuple[tuple[Form, ...], ...]

    @cached_property
    def axes(self) -> tuple[frozenset[int], ...]:
        """The axes that occur in each dimension."""
        return tuple([frozenset().union(*[form_axes(form) for form in dim]) for dim in zip(*self.forms, strict=True)])

    @cached_property
    def plain(self) -> tuple[int | None, ...]:
        """The axis that each index is, up to a constant and direction; None where it is more."""
        if len(self.forms) > 1:
            return (None,) * len(self.axes)
        return tuple([_plain(form) for form in self.forms[0]])

    @cached_property
    def steps(self) -> tuple[tuple[dict[int, float], ...], ...]:
        """The `usual_steps` of every index."""
        return tuple([tuple([usual_steps(form) for form in forms]) for forms in self.forms])

    def count(self, d: int, values: Sequence[Any]) -> Any:
        """The number of different values of index d while the axes take `values` values each, from 0 on.

        At most as many as there are points of the axes; infinite when nothing is known of the index.
        """
        axis = self.plain[d]
        if axis is not None:
            return values[axis]
        found = [_interval(forms[d], values) for forms in self.forms]
        known = [interval for interval in found if interval is not None]
        if len(known) < len(found):
            return np.inf
        low, high, points = known[0]
        for other in known[1:]:
            low, high, points = np.minimum(low, other[0]), np.maximum(high, other[1]), points + other[2]
        return np.minimum(points, high - low + 1)


def _plain(form: Form) -> int | None:
    match form:
        case Affine(terms=((axis, 1 | -1),)):
            return axis
        case _:
            return None


def _interval(form: Form, values: Sequence[Any]) -> Interval | None:
    match form:
        case Affine(terms=terms, const=const):
            low = high = float(const)
            points: Any = 1.0
            for axis, c in terms:
                run = values[axis]
                low, high = low + min(c, 0) * (run - 1), high + max(c, 0) * (run - 1)
                points = points * run
            return low, high, points
        case Sum(parts=parts, const=const):
            total: Interval = (float(const), float(const), 1.0)
            for part in parts:
                inner = _interval(part, values)
                if inner is None:
                    return None
                total = (total[0] + inner[0], total[1] + inner[1], total[2] * inner[2])
            return total
        case Scaled(part=part, factor=factor):
            inner = _interval(part, values)
            if inner is None:
                return None
            a, b = inner[0] * factor, inner[1] * factor
            return np.minimum(a, b), np.maximum(a, b), inner[2]
        case Quotient(part=part, divisor=divisor, mod=mod):
            inner = _interval(part, values)
            return None if inner is None else _quotient(inner, float(divisor), mod)
        case Unknown():
            return None


def _quotient(inner: Interval, divisor: float, mod: bool) -> Interval:
    low, high, points = inner
    first = np.floor(low / divisor)
    if not mod:
        return first, np.floor(high / divisor), points
    within = np.floor(high / divisor) <= first
    return np.where(within, low - first * divisor, 0.0), np.where(within, high - first * divisor, divisor - 1), points
