"""How much the loops of a row run through: values of axes, elements of tensors.

Level l of a row with L loops means: the loops outside stand still, loops l .. L-1 run; at level L nothing runs.
A *row value* is a float or a float64 array with one lane per program; nothing here asks for the truth of one.

    own loops of an axis       product of their extents, at most the axis's
    loops around the stage     what they move the start of its region by (the region's terms, from bound inference)
    loops of a fused iterator  that was split again: a run through its digits, innermost first
    index of several axes      1 + sum of |coefficient| * (values - 1), at most the product of the values
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.bounds import Bounds
from te_lite.loop_value import split_strides
from te_lite.reads import Affine, Form, Quotient, Scaled, Sum
from te_lite.region import Linear, LoopAtom
from te_lite.state import SplitRel

from ..space.trace import recorded
from .row_loops import Loop, Nest
from .row_plans import Access

Value = Any
"""A float, or float64 [lanes]."""

Interval = tuple[Value, Value, Value]
"""Smallest value, largest value, number of different values at most."""


_INTEGERS = (int, np.integer)


@recorded
def _floats(lanes: Any) -> Value:
    return np.asanyarray(lanes).astype(np.float64)


class Lanes:
    """Reads the extents and coefficients of `n` lanes as float64: those of `chunk`, or all (None)."""

    def __init__(self, bounds: Bounds, n: Any, chunk: slice | None = None) -> None:
        self.bounds, self.n, self.chunk = bounds, n, chunk
        self._extents: dict[tuple[int, int], Value] = {}
        self._sizes: dict[int, list[Value]] = {}
        self._strides: dict[int, dict[int, Value]] = {}
        self._values: dict[int, tuple[Any, Value]] = {}

    def value(self, x: Any) -> Value:
        """An int, or int lanes, as a row value; the same lanes are converted once."""
        if isinstance(x, _INTEGERS):
            return float(x)
        known = self._values.get(id(x))
        if known is None:
            known = self._values[id(x)] = (x, _floats(x if self.chunk is None else x[self.chunk]))
        return known[1]

    def extent(self, stage: int, uid: int) -> Value:
        """The extent of an iterator."""
        key = (stage, uid)
        if key not in self._extents:
            self._extents[key] = self.value(self.bounds.state.stages[stage].vars[uid].extent)
        return self._extents[key]

    def strides(self, k: int) -> dict[int, Value]:
        """By how much one turn of each iterator of stage k moves the axis or fused iterator that it comes from."""
        if k not in self._strides:
            found: dict[int, Value] = {}
            stage = self.bounds.state.stages[k]
            for rel in stage.relations:
                if isinstance(rel, SplitRel):
                    for child, stride in zip(rel.children, split_strides(stage, rel), strict=True):
                        found[child] = found.get(rel.parent, 1.0) * self.value(stride)
            self._strides[k] = found
        return self._strides[k]

    def region(self, k: int) -> list[Value]:
        """The extents of the regions of all axes of stage k."""
        if k not in self._sizes:
            self._sizes[k] = [self.value(r.extent) for r in self.bounds.regions[k]]
        return self._sizes[k]

    def sizes(self, access: Access) -> list[Value]:
        """The extents of the dimensions of a storage."""
        shape = self.bounds.state.ops[access.producer].shape
        return [float(d) for d in shape] if access.whole else self.region(access.producer)[: len(shape)]


class Cover:
    """`values[axis][level]`; `steps[j]` is by how much one turn of loop j moves each axis that it moves.

    The loops `fixed` never run: what is left is what one storage inside of them sees.
    """

    def __init__(self, nest: Nest, lanes: Lanes, fixed: frozenset[int] = frozenset()) -> None:
        self.nest, self.lanes, self.fixed = nest, lanes, fixed
        op = lanes.bounds.state.ops[nest.stage]
        self.region = lanes.region(nest.stage)
        self.shape = [float(d) for d in op.shape]
        self.levels = len(nest.loops)
        self.extents = [lanes.extent(loop.stage, loop.uid) for loop in nest.loops]
        self.steps: list[dict[int, Value]] = [{} for _ in nest.loops]
        self._changes: list[dict[int, Value]] = [{} for _ in nest.loops]
        self._own()
        self._around()
        self.values = [self._table(axis) for axis in range(len(self.region))]

    def _table(self, axis: int) -> list[Value]:
        table: list[Value] = [1.0] * (self.levels + 1)
        for j in reversed(range(self.levels)):
            table[j] = self._changes[j].get(axis, table[j + 1])
        return table

    # --------------------------------------------------------------------------------------------- own loops

    def _own(self) -> None:
        plain: list[Value] = [1.0] * len(self.region)
        digits: list[Value] = [1.0] * len(self.region)
        runs: dict[int, Value] = {}
        strides = self.lanes.strides(self.nest.stage)
        for j in sorted(set(range(self.nest.around, self.levels)) - self.fixed, reverse=True):
            loop = self.nest.loops[j]
            moved: Sequence[int] = ()
            if loop.axis >= 0:
                moved = (loop.axis,)
                self.steps[j][loop.axis] = strides.get(loop.uid, 1.0)
                plain[loop.axis] = plain[loop.axis] * self.extents[j]
            elif loop.fused >= 0:
                moved = sorted({part.axis for part in self.nest.parts[loop.fused]})
                self._flat_steps(j, loop, strides)
                runs[loop.fused] = runs.get(loop.fused, 1.0) * self.extents[j]
                self._flat_digits(loop, runs[loop.fused], digits)
            for axis in moved:
                self._changes[j][axis] = np.minimum(plain[axis] * digits[axis], self.region[axis])

    def _digits(self, loop: Loop) -> list[tuple[int, Value]]:
        return [(p.axis, self.lanes.extent(loop.stage, p.uid)) for p in self.nest.parts[loop.fused]]

    def _flat_digits(self, loop: Loop, run: Value, digits: list[Value]) -> None:
        """The values that a run from the start of a fused iterator gives each axis."""
        found = {axis: 1.0 for axis, _ in self._digits(loop)}
        for axis, extent in self._digits(loop):
            taken = np.minimum(extent, run)
            found[axis] = found[axis] * taken
            run = np.ceil(run / taken)
        for axis, value in found.items():
            digits[axis] = value

    def _flat_steps(self, j: int, loop: Loop, strides: dict[int, Value]) -> None:
        """One turn of a loop moves the digit in which the turns inside it end."""
        run = strides.get(loop.uid, 1.0)
        inner: Value = 1.0
        for part in self.nest.parts[loop.fused]:
            extent = self.lanes.extent(loop.stage, part.uid)
            here = (run >= inner) & (run < inner * extent)
            step = np.where(here, np.floor(run / inner), 0.0) * strides.get(part.uid, 1.0)
            self.steps[j][part.axis] = self.steps[j].get(part.axis, 0.0) + step
            inner = inner * extent

    # ------------------------------------------------------------------------------------------ loops around

    def _around(self) -> None:
        place = {(loop.stage, loop.uid): j for j, loop in enumerate(self.nest.loops[: self.nest.around])}
        for axis, size in enumerate(self.shape):
            total = self.region[axis]
            for j, step, delta in self._events(self.lanes.bounds.regions[self.nest.stage][axis].min, place):
                total = total + delta
                self.steps[j][axis] = self.steps[j].get(axis, 0.0) + step
                self._changes[j][axis] = np.minimum(total, size)

    def _events(self, start: Linear, place: dict[tuple[int, int], int]) -> list[tuple[int, Value, Value]]:
        """`(loop, step, growth)`, innermost first: what each loop that begins to run adds to the range of `start`."""
        events = []
        for atom, coefficient in start.terms.items():
            c = np.abs(self.lanes.value(coefficient))
            if isinstance(atom, LoopAtom):
                j = place.get((atom.stage, atom.uid), 0)
                runs = bool(place) and j not in self.fixed
                events += [(j, c, c * (self.lanes.value(atom.extent) - 1))] if runs else []
                continue
            span: Value = 0.0
            before: Value = 0.0
            divisor = self.lanes.value(atom.divisor)
            for j, step, growth in self._events(atom.base, place):
                span = span + growth
                after = np.minimum(span, divisor - 1) if atom.mod else np.ceil(span / divisor)
                moved = np.fmod(step, divisor) if atom.mod else np.floor(step / divisor)
                events.append((j, c * moved, c * (after - before)))
                before = after
        return sorted(events, key=lambda event: -event[0])


def touched(access: Access, cover: Cover) -> list[Value]:
    """The bytes of a storage that each level touches: a list over levels 0 .. L.  `cover` leaves out `access.fixed`."""
    sizes = cover.lanes.sizes(access)
    axes = frozenset().union(*access.axes)
    dims = dims_at(access, cover, cover.levels)
    out = [_product(dims, float(access.element))]
    for level in reversed(range(cover.levels)):
        moved = axes & cover.steps[level].keys()
        for d, size in enumerate(sizes):
            if access.axes[d] & moved:
                dims[d] = np.minimum(_values(access, d, cover, level), size)
        total = _product(dims, float(access.element)) if moved else out[-1]
        out.append(total * cover.extents[level] if level in access.copies else total)
    return out[::-1]


def _product(values: Sequence[Value], total: Value) -> Value:
    for value in values:
        total = total * value
    return total


def dims_at(access: Access, cover: Cover, level: int) -> list[Value]:
    """The different values of each dimension's index at a level."""
    sizes = cover.lanes.sizes(access)
    return [np.minimum(_values(access, d, cover, level), size) for d, size in enumerate(sizes)]


def _values(access: Access, d: int, cover: Cover, level: int) -> Value:
    """The number of different values of index d; infinite when nothing is known of it."""
    axis = access.plain[d]
    if axis is not None:
        return cover.values[axis][level]
    intervals = [_interval(forms[d], cover, level) for forms in access.forms]
    if any(i is None for i in intervals):
        return np.inf
    low, high, points = intervals[0]  # type: ignore[misc]
    for other in intervals[1:]:
        assert other is not None
        low, high = np.minimum(low, other[0]), np.maximum(high, other[1])
        points = points + other[2]
    return np.minimum(points, high - low + 1)


def _interval(form: Form, cover: Cover, level: int) -> Interval | None:
    match form:
        case Affine(terms=terms, const=const):
            low = high = float(const)
            points: Value = 1.0
            for axis, c in terms:
                run = cover.values[axis][level]
                low, high = low + min(c, 0) * (run - 1), high + max(c, 0) * (run - 1)
                points = points * run
            return low, high, points
        case Sum(parts=parts, const=const):
            total: Interval = (float(const), float(const), 1.0)
            for part in parts:
                inner = _interval(part, cover, level)
                if inner is None:
                    return None
                total = (total[0] + inner[0], total[1] + inner[1], total[2] * inner[2])
            return total
        case Scaled(part=part, factor=factor):
            inner = _interval(part, cover, level)
            if inner is None:
                return None
            a, b = inner[0] * factor, inner[1] * factor
            return np.minimum(a, b), np.maximum(a, b), inner[2]
        case Quotient(part=part, divisor=divisor, mod=mod):
            inner = _interval(part, cover, level)
            return None if inner is None else _quotient(inner, float(divisor), mod)
        case _:
            return None


def _quotient(inner: Interval, divisor: float, mod: bool) -> Interval:
    low, high, points = inner
    first = np.floor(low / divisor)
    if not mod:
        return first, np.floor(high / divisor), points
    within = np.floor(high / divisor) <= first
    return np.where(within, low - first * divisor, 0.0), np.where(within, high - first * divisor, divisor - 1), points


def coefficients(form: Form) -> dict[int, float]:
    """By how much one step of each axis moves an index, in most places (it may carry in some)."""
    match form:
        case Affine(terms=terms):
            return {axis: float(c) for axis, c in terms}
        case Sum(parts=parts):
            total: dict[int, float] = {}
            for part in parts:
                for axis, c in coefficients(part).items():
                    total[axis] = total.get(axis, 0.0) + c
            return total
        case Scaled(part=part, factor=factor):
            return {axis: c * factor for axis, c in coefficients(part).items()}
        case Quotient(part=part, divisor=divisor, mod=mod):
            return {a: math.fmod(c, divisor) if mod else c // divisor for a, c in coefficients(part).items()}
        case _:
            return {}
