"""How far the loops of a nest reach: axes, elements of buffers, contiguous runs, strides; ints, floats and lanes alike.

Two questions are asked of a nest, and where loops leave gaps they have different answers:

    Cover       the innermost loops run, level by level: how many *different values* does each axis take?
    Footprint   some loops run, maybe in part: from where *to where* does each axis go?

Features want elements: a strided loop counts its own iterations, a run through a fused loop that was split again counts
the digits it passes, a step is that of most iterations.  The analytical models let any loops run that some hardware
runs together (lanes, the threads of a warp, what is unrolled) and want what lies between the first element and the
last: rows of cache lines, room in shared memory; a step is the first one, exactly.  Nothing here asks for the truth of
an extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..expr.lanes import ceildiv, product, row_major, smaller
from ..schedule.loop_value import split_strides
from ..schedule.region import Linear, LoopAtom, start_span, start_step
from ..schedule.state import FuseRel, SplitRel, Stage
from .bounds import Bounds
from .index_span import IndexTuples, first_step, index_span, values_at_most
from .loop_scope import LoopKey
from .nest import Loop, Nest
from .reads import Form

Value = Any  # an int, a float, or lanes of them


# -------------------------------------------------------------------------------------------------------- buffers


def contiguous_run(spans: Sequence[Value], sizes: Sequence[Value]) -> Value:
    """Elements that lie side by side when the dimensions of a buffer, `sizes` long, are met over `spans`.

    Those of the innermost dimension, and of the next one where that one is whole.
    """
    run: Value = 1.0
    whole: Value = True
    for span, size in zip(reversed(spans), reversed(sizes), strict=True):
        if whole is np.False_:
            break
        run = run * (span if whole is True else np.where(whole, span, 1.0))
        whole = whole & np.greater_equal(span, size)
    return run


@dataclass(frozen=True, slots=True)
class Reach:
    """What an access reaches: `elements`, gaps included but those of dilated windows, of which `run` lie side by side.

    One has `element` bytes.
    """

    elements: Value
    run: Value
    element: int

    @property
    def rows(self) -> Value:
        """How many runs there are."""
        return self.elements / self.run

    def unit_bytes(self, unit: int) -> Value:
        """Bytes of the cache lines or sectors, of `unit` bytes, that they lie in."""
        return self.rows * ceildiv(self.run * self.element, unit) * unit


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """A buffer of `shape` that a nest reads (`forms`: one index per dimension), or writes (None: at its own axes)."""

    buffer: int
    forms: tuple[Form, ...] | None
    shape: tuple[Value, ...]
    scope: str
    element: int

    def spans(self, axes: Sequence[Value]) -> tuple[Value, ...]:
        """How many values each index takes while the axes of the nest's stage reach over `axes` values."""
        if self.forms is None:
            return tuple([smaller(axes[d], size) for d, size in enumerate(self.shape)])
        return tuple([index_span(f, axes, size) for f, size in zip(self.forms, self.shape, strict=True)])

    def reach(self, axes: Sequence[Value]) -> Reach:
        """What is reached meanwhile."""
        spans = self.spans(axes)
        if self.forms is not None:
            spans = tuple([smaller(n, values_at_most(f, axes)) for n, f in zip(spans, self.forms, strict=True)])
        return Reach(product(spans), contiguous_run(spans, self.shape), self.element)

    def elements(self, axes: Sequence[Value]) -> Value:
        """The elements, gaps included, that are reached meanwhile."""
        return product(self.spans(axes))

    def move(self, steps: Sequence[Value]) -> Value:
        """By how many elements the address moves when the axes move by `steps` (negative: back; 0: it stays)."""
        total: Value = 0
        for d, stride in reversed(list(enumerate(row_major(self.shape)))):
            total = total + (steps[d] if self.forms is None else first_step(self.forms[d], steps)) * stride
        return total


# ------------------------------------------------------------------------------------------- how far axes reach


Runs = Mapping[LoopKey, Value]
"""How many values each loop runs through; a loop that is missing is invariant."""


class Footprint:
    """How far the axes of stage `k` reach; `extents` are the lengths of the loops of its nest, outermost first."""

    def __init__(self, bounds: Bounds, k: int, extents: Runs) -> None:
        self.k, self.extents = k, extents
        self.stage: Stage = bounds.state.stages[k]
        self.starts = [region.min for region in bounds.regions[k]]
        self._steps: dict[LoopKey, tuple[Value, ...]] = {}
        self._alone: dict[LoopKey, tuple[Value, ...]] = {}

    @cached_property
    def strides(self) -> dict[int, list[Value]]:
        """How much one step of each child advances the parent, by the parent of each split."""
        splits = [rel for rel in self.stage.relations if isinstance(rel, SplitRel)]
        return {rel.parent: split_strides(self.stage, rel) for rel in splits}

    def spans(self, runs: Runs) -> tuple[Value, ...]:
        """How far each root axis reaches (number of values, hull) while the loops `runs` run."""
        stage = self.stage
        span: dict[int, Value] = {uid: run for (k, uid), run in runs.items() if k == self.k}
        for rel in reversed(stage.relations):
            match rel:
                case FuseRel(parts=parts, fused=fused) if fused in span:
                    rest = span[fused]
                    for part in reversed(parts):
                        extent = stage.vars[part].extent
                        span[part] = smaller(rest, extent)
                        rest = ceildiv(rest, extent)
                case SplitRel(parent=parent, children=children):
                    moving = [(c, s) for c, s in zip(children, self.strides[parent], strict=True) if c in span]
                    if moving:
                        reach = 1 + sum([(span[c] - 1) * s for c, s in moving])
                        span[parent] = smaller(reach, stage.vars[parent].extent)
        outside = [start_span(low, lambda atom: runs.get((atom.stage, atom.uid), 1) - 1) for low in self.starts]
        return tuple([span.get(root, 1) + moved for root, moved in enumerate(outside)])

    def steps(self, loop: LoopKey) -> tuple[Value, ...]:
        """How far each root axis moves when `loop` goes from 0 to 1 (negative: back)."""
        if loop not in self._steps:
            self._steps[loop] = self._first_steps(loop)
        return self._steps[loop]

    def _first_steps(self, loop: LoopKey) -> tuple[Value, ...]:
        stage = self.stage
        move: dict[int, Value] = {loop[1]: 1} if loop[0] == self.k else {}
        for rel in reversed(stage.relations):
            match rel:
                case FuseRel(parts=parts, fused=fused) if fused in move:
                    rest = move[fused]
                    for part in reversed(parts):
                        extent = stage.vars[part].extent
                        move[part] = rest % extent
                        rest = rest // extent
                case SplitRel(parent=parent, children=children):
                    moving = [(c, s) for c, s in zip(children, self.strides[parent], strict=True) if c in move]
                    if moving:
                        move[parent] = sum([move[c] * s for c, s in moving])
        outside = [start_step(low, loop) for low in self.starts]
        return tuple([move.get(root, 0) + moved for root, moved in enumerate(outside)])

    def move(self, access: BufferAccess, loop: LoopKey) -> Value:
        """How many elements an access moves in its buffer when `loop` goes from 0 to 1 (negative: back)."""
        return access.move(self.steps(loop))

    def stride(self, access: BufferAccess, loop: LoopKey) -> Value:
        """How many elements an access moves in its buffer, either way, when `loop` goes from 0 to 1 (0: it stays)."""
        return abs(self.move(access, loop))

    def moves(self, access: BufferAccess, loop: LoopKey) -> Value:
        """Whether an access reaches more than one element while `loop` runs (a truth value or lanes of it)."""
        return np.greater(access.elements(self.spans_alone(loop)), 1)

    def spans_alone(self, loop: LoopKey) -> tuple[Value, ...]:
        """How far each root axis reaches while `loop` runs; the int 1 for those that it does not move."""
        if loop not in self._alone:
            self._alone[loop] = self.spans({loop: self.extents[loop]})
        return self._alone[loop]

    def distinct(self, access: BufferAccess, runs: Runs, axes: Sequence[Value]) -> Value:
        """Elements that an access reaches while the loops `runs` run: the hull, or less when it has gaps."""
        points = product([np.where(self.moves(access, loop), runs[loop], 1) for loop in self.extents if loop in runs])
        return smaller(access.elements(axes), points)


# --------------------------------------------------------------------------------------- which values axes take


class Numbers(Protocol):
    """Reads what bounds say as numbers of one kind: `n` programs, all as float64 lanes, say."""

    @property
    def bounds(self) -> Bounds: ...

    def value(self, x: Any) -> Value:
        """A coefficient or extent."""

    def extent(self, stage: int, uid: int) -> Value:
        """The extent of an iterator."""

    def strides(self, k: int) -> dict[int, Value]:
        """`iterator_strides` of stage k."""

    def region(self, k: int) -> list[Value]:
        """The extents of the regions of all axes of stage k."""


def iterator_strides(stage: Stage, number: Callable[[Value], Value]) -> dict[int, Value]:
    """By how much one iteration of each iterator moves the axis or fused iterator that it comes from."""
    found: dict[int, Value] = {}
    for rel in stage.relations:
        if isinstance(rel, SplitRel):
            for child, stride in zip(rel.children, split_strides(stage, rel), strict=True):
                found[child] = found.get(rel.parent, 1.0) * number(stride)
    return found


class Cover:
    """How many values the axes of a nest's stage take at each level; all numbers are those of `numbers`.

    Level l of a nest with L loops means: the loops outside are fixed at 0, loops l .. L-1 vary; at level L none does.
    `values[axis][level]` is that number; `steps[j]` is by how much one iteration of loop j moves each axis that
    it moves.  The loops `fixed` never vary: what is left is what one storage inside of them sees.

        own loops of an axis       product of their extents, at most the axis's
        loops around the stage     what they move the start of its region by
        loops of a fused iterator  that was split again: a run through its digits, innermost first
        index of several axes      1 + sum of |coefficient| * (values - 1), at most the product of the values
    """

    def __init__(self, nest: Nest, numbers: Numbers, fixed: frozenset[int] = frozenset()) -> None:
        self.nest, self.numbers, self.fixed = nest, numbers, fixed
        self.region = numbers.region(nest.stage)
        self.shape = [float(d) for d in numbers.bounds.state.ops[nest.stage].shape]
        self.levels = len(nest.loops)
        self.extents = [numbers.extent(loop.stage, loop.uid) for loop in nest.loops]
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

    def at(self, level: int) -> list[Value]:
        """The number of values of every axis at a level."""
        return [table[level] for table in self.values]

    # --------------------------------------------------------------------------------------------- own loops

    def _own(self) -> None:
        plain: list[Value] = [1.0] * len(self.region)
        digits: list[Value] = [1.0] * len(self.region)
        runs: dict[int, Value] = {}
        strides = self.numbers.strides(self.nest.stage)
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

    def _flat_digits(self, loop: Loop, run: Value, digits: list[Value]) -> None:
        """The values that a run from the start of a fused iterator gives each axis."""
        parts = self.nest.parts[loop.fused]
        found: dict[int, Value] = {part.axis: 1.0 for part in parts}
        for part in parts:
            taken = np.minimum(self.numbers.extent(loop.stage, part.uid), run)
            found[part.axis] = found[part.axis] * taken
            run = np.ceil(run / taken)
        for axis, value in found.items():
            digits[axis] = value

    def _flat_steps(self, j: int, loop: Loop, strides: dict[int, Value]) -> None:
        """One iteration of a loop moves the digit in which the iterations inside it end."""
        run = strides.get(loop.uid, 1.0)
        inner: Value = 1.0
        for part in self.nest.parts[loop.fused]:
            extent = self.numbers.extent(loop.stage, part.uid)
            here = (run >= inner) & (run < inner * extent)
            step = np.where(here, np.floor(run / inner), 0.0) * strides.get(part.uid, 1.0)
            self.steps[j][part.axis] = self.steps[j].get(part.axis, 0.0) + step
            inner = inner * extent

    # ------------------------------------------------------------------------------------------ loops around

    def _around(self) -> None:
        place = {(loop.stage, loop.uid): j for j, loop in enumerate(self.nest.loops[: self.nest.around])}
        if not place:
            return
        for axis, size in enumerate(self.shape):
            start = self.numbers.bounds.regions[self.nest.stage][axis].min
            for j, step in self._start_steps(start, place):
                self.steps[j][axis] = self.steps[j].get(axis, 0.0) + step
            for j in [j for j in range(self.nest.around) if axis in self.steps[j]]:
                self._changes[j][axis] = np.minimum(self.region[axis] + self._start_span(start, place, j), size)

    def _start_span(self, start: Linear, place: dict[LoopKey, int], level: int) -> Value:
        """How far the start of a region goes while the loops from `level` on run."""

        def moves(atom: LoopAtom) -> Value:
            j = place.get((atom.stage, atom.uid), 0)
            return 0 if j < level or j in self.fixed else self.numbers.value(atom.extent) - 1

        return start_span(start, moves, self.numbers.value)

    def _start_steps(self, start: Linear, place: dict[LoopKey, int]) -> Iterator[tuple[int, Value]]:
        """`(loop, step)`: by how much one iteration of each loop moves the start of a region (negative: back)."""
        number = self.numbers.value
        for atom, coefficient in start.terms.items():
            c = number(coefficient)
            if isinstance(atom, LoopAtom):
                j = place.get((atom.stage, atom.uid), 0)
                if j not in self.fixed:
                    yield j, c
                continue
            divisor = number(atom.divisor)
            for j, step in self._start_steps(atom.base, place):
                yield j, c * (np.fmod(step, divisor) if atom.mod else np.trunc(step / divisor))

    # ----------------------------------------------------------------------------------------------- storages

    def spans(self, indices: IndexTuples, sizes: Sequence[Value], level: int) -> list[Value]:
        """The different values of each index at a level; `sizes` are the lengths of the dimensions."""
        values = self.at(level)
        return [np.minimum(indices.count(d, values), size) for d, size in enumerate(sizes)]

    def axis_steps(self, indices: IndexTuples, sizes: Sequence[Value]) -> dict[int, Value]:
        """By how many elements one step of each axis moves the address in a storage of `sizes`, in most places.

        Of several index tuples that an axis occurs in, the first one counts.
        """
        out: dict[int, Value] = {}
        strides = row_major(sizes)
        for tuple_steps in reversed(indices.steps):
            found: dict[int, Value] = {}
            for steps, stride in zip(tuple_steps, strides, strict=True):
                for axis, step in steps.items():
                    found[axis] = found.get(axis, 0.0) + step * stride
            out.update(found)
        return out

    def loop_steps(self, axis_steps: Mapping[int, Value]) -> dict[int, Value]:
        """By how many elements one iteration of each loop moves that address; those that leave it are missing."""
        out: dict[int, Value] = {}
        for j, steps in enumerate(self.steps):
            moved = sorted(steps.keys() & axis_steps.keys())
            if moved:
                out[j] = np.abs(sum([axis_steps[axis] * steps[axis] for axis in moved]))
        return out

    def touched(
        self, indices: IndexTuples, sizes: Sequence[Value], element: float, copies: Sequence[int] = ()
    ) -> list[Value]:
        """The bytes of a storage that each level touches: a list over levels 0 .. L.

        Each of the loops `copies`, which are among the fixed ones, has a storage of its own.
        """
        axes = frozenset().union(*indices.axes)
        dims = self.spans(indices, sizes, self.levels)
        out = [product([element, *dims])]
        for level in reversed(range(self.levels)):
            moved = axes & self.steps[level].keys()
            total = out[-1]
            if moved:
                values = self.at(level)
                for d, size in enumerate(sizes):
                    if indices.axes[d] & moved:
                        dims[d] = np.minimum(indices.count(d, values), size)
                total = product([element, *dims])
            out.append(total * self.extents[level] if level in copies else total)
        return out[::-1]
