"""What a computation means at a few points: the values of its tensors there, without whole arrays.

The same expressions as in `te_lite/meaning/reference.py`, evaluated on demand: a read of another tensor is the value of
its body at the indices that are read, a read of an input asks a function.  What reductions give is kept by point, so
each is folded once, on boxes so small that temporaries stay in a cache; several threads take those of long ones, and
reductions over the same axes are folded together where they do not need each other.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from te_lite.computation.computation import Computation
from te_lite.computation.tensor import ComputeOp, PlaceholderOp, Tensor
from te_lite.errors import InterpError, require
from te_lite.expr.expr import Expr, IterVar, Load, Reduce, Select, Var
from te_lite.expr.visit import free_vars
from te_lite.meaning.reference import Box, boxes
from te_lite.meaning.reference_expr import Array, Evaluator, np_dtype
from te_lite.meaning.reference_fold import Folding
from te_lite.meaning.reference_scan import scanned

from .expr_numbers import ExprNumbers

Given = Callable[[Sequence[Array]], Array]
"""The elements of an input at indices, one array a dimension, which broadcast."""
CHUNK = 1 << 16
"""Elements of a temporary: few enough for a cache."""
MOST_THREADS = 32
DEEPEST = 20_000
REAL = "float64"


class PointReference:
    """The values of `tensors`, and of all that they depend on, at points; floats are computed in float64.

    `given` are the inputs, and what else is known already.
    """

    def __init__(self, tensors: Sequence[Tensor], given: Mapping[Tensor, Given]) -> None:
        self.given, self.numbers, self._siblings = given, ExprNumbers(), _siblings(Computation(tensors))
        self._scans: dict[Any, list[Array]] = {}
        self._folded = {op.key: _Folded(op) for group in self._siblings.values() for op in group}

    def at(self, tensors: Sequence[Tensor], indices: Sequence[Array]) -> list[Array]:
        """The values of tensors of one shape at `n` points, given by an array of `n` indices a dimension.

        Raises InterpError as `te_lite.meaning.reference.evaluate` does.
        """
        count = len(indices[0]) if indices else 1
        out: list[list[Array]] = [[] for _ in tensors]
        with np.errstate(all="ignore"), _deep_calls():
            for start in range(0, count, CHUNK):
                part = [np.asarray(i[start : start + CHUNK], np.int64) for i in indices]
                frame = _Frame(self)
                for values, tensor in zip(out, tensors, strict=True):
                    found = frame.read(tensor, part, 1)
                    values.append(np.broadcast_to(found, (min(CHUNK, count - start),)))
                frame.forget()
        return [np.concatenate(values) for values in out]

    def folded(self, tensor: Tensor, indices: Sequence[Array], alone: bool) -> Array:
        """The values of a reduction at indices that broadcast; `alone`: this is a thread among others."""
        op = tensor.op
        assert isinstance(op, ComputeOp)
        shape = np.broadcast_shapes(*[i.shape for i in indices]) if indices else (1,)
        place: Any = np.zeros(shape, np.int64)
        for index, extent in zip(indices, op.shape, strict=True):
            place = place * extent + index
        wanted, where = np.unique(place, return_inverse=True)
        known = self._folded[op.key]
        missing = known.missing(wanted)
        if missing.size:
            group = self._siblings[_alike(op, self.depths[op.key])]
            for one, values in zip(group, self._fold(group, missing, alone), strict=True):
                self._folded[one.key].add(missing, values)
        found = known.at(wanted)[tensor.value_index]
        return found[where.reshape(-1)].reshape(shape)

    def scanned(self, op: ComputeOp) -> list[Array]:
        """The values of a scan everywhere: an element takes all before it on its line."""
        if op.key not in self._scans:
            self._scans[op.key] = scanned(op, lambda env, e: _Scope(1, env, {}, REAL, _Frame(self)).value(e), REAL)
        return self._scans[op.key]

    @cached_property
    def depths(self) -> dict[Any, int]:
        """How many reductions each reduction needs, one after the other."""
        return {op.key: key[-1] for key, group in self._siblings.items() for op in group}

    def _fold(self, group: Sequence[ComputeOp], places: Array, alone: bool) -> list[list[Array]]:
        """The values of reductions over the same axes at flat places."""
        points = [np.asarray(i) for i in np.unravel_index(places, group[0].shape)] if group[0].shape else []
        return _Fold(self, group, points, len(places), alone).run()


@contextmanager
def _deep_calls() -> Iterator[None]:
    """An operation is read through those that read it, each of which takes some ten calls inside each other."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class _Folded:
    """What is known of a reduction: `places`, which rise, and the values of each of its outputs there."""

    def __init__(self, op: ComputeOp) -> None:
        values = [np.empty(0, np_dtype(body.dtype, REAL)) for body in op.body]
        self._known: tuple[Array, list[Array]] = (np.empty(0, np.int64), values)  # exchanged whole: threads read it
        self._adding = threading.Lock()  # or what one of two threads has added would be lost

    def missing(self, wanted: Array) -> Array:
        """Those of some places, which rise, of which nothing is known."""
        return wanted[_absent(wanted, self._known[0])]

    def add(self, places: Array, values: Sequence[Array]) -> None:
        """Keep the values of each output at places, which rise."""
        with self._adding:
            known, before = self._known
            new = _absent(places, known)
            joined = np.concatenate([known, places[new]])
            order = np.argsort(joined, kind="stable")
            after = [np.concatenate([a, b[new].astype(a.dtype)])[order] for a, b in zip(before, values, strict=True)]
            self._known = joined[order], after

    def at(self, wanted: Array) -> list[Array]:
        """The values of each output at places that are known."""
        places, values = self._known
        found = np.searchsorted(places, wanted)
        return [v[found] for v in values]


def _absent(wanted: Array, known: Array) -> Array:
    """Which of `wanted` are not among `known`, which rise."""
    if not known.size:
        return np.ones(wanted.shape, np.bool_)
    found = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return np.asarray(known[found] != wanted)


def _alike(op: ComputeOp, depth: int) -> tuple[Any, ...]:
    return (*map(id, op.axis), None, *map(id, op.reduce_axis), depth)


def _siblings(dag: Computation) -> dict[tuple[Any, ...], list[ComputeOp]]:
    """The reductions over the same axes that need as many others, one after the other, and so not each other."""
    depths: dict[Any, int] = {}
    groups: dict[tuple[Any, ...], list[ComputeOp]] = {}
    for op in dag.ops:
        depth = max([depths[t.op.key] for t in op.input_tensors()], default=0)
        if isinstance(op, ComputeOp) and op.reduction is not None:
            groups.setdefault(_alike(op, depth), []).append(op)
            depth += 1
        depths[op.key] = depth
    return groups


# ------------------------------------------------------------------------------------------------------ expressions


@dataclass
class _Frame:
    """A set of points that are evaluated together; `scopes` are the operations that are read at the same indices."""

    source: PointReference
    alone: bool = False
    scopes: dict[tuple[int, ...], _Scope] = field(default_factory=dict)

    def scope(self, axes: Sequence[IterVar], indices: Sequence[Array], ndim: int) -> _Scope:
        """Where `axes` have the values `indices`: one for the same arrays."""
        key = (*map(id, axes), *map(id, indices))
        if key not in self.scopes:
            self.scopes[key] = _Scope(ndim, dict(zip(axes, indices, strict=True)), {}, REAL, self)
        return self.scopes[key]

    def forget(self) -> None:
        """Let go of the values, which would otherwise stay until circles of references are looked for."""
        for scope in self.scopes.values():
            scope.seen.clear()
        self.scopes.clear()

    def read(self, tensor: Tensor, indices: Sequence[Array], ndim: int) -> Array:
        """The elements of a tensor at indices within its shape."""
        op = tensor.op
        if tensor in self.source.given:
            values = self.source.given[tensor](indices)
            return values.astype(np_dtype(tensor.dtype, REAL), copy=False)
        require(not isinstance(op, PlaceholderOp), InterpError, op.name, "no array is given for this input")
        assert isinstance(op, ComputeOp)
        if op.reduction is not None:
            values = self.source.folded(tensor, indices, self.alone)
            return values if indices else values.reshape((1,) * ndim)
        if op.scans:
            return self.source.scanned(op)[tensor.value_index][tuple(indices)]
        body = op.body[tensor.value_index]
        return self.scope(op.axis, indices, ndim).value(body).astype(np_dtype(body.dtype, REAL), copy=False)


@dataclass(frozen=True)
class _Scope(Evaluator):
    """Evaluates the expressions of operations at the same points, each that comes twice once."""

    frame: _Frame
    seen: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)

    def value(self, e: Expr, mask: Array | None = None) -> Array:
        """As of Evaluator."""
        numbers = self.frame.source.numbers
        number = numbers.of(e)
        if not numbers.is_shared(number):
            return self._found(e, mask)
        key = (number, id(mask))
        if key not in self.seen:  # the mask is kept with the value, so that nothing else gets its id
            self.seen[key] = (self._found(e, mask), mask)
        found: Array = self.seen[key][0]
        return found

    def _found(self, e: Expr, mask: Array | None) -> Array:
        if isinstance(e, Load):
            return self.frame.read(e.tensor, self._places(e, mask), self.ndim)
        if isinstance(e, Select) and not self.value(e.cond, mask).any():
            return self._own(e, self.value(e.b, mask))  # an error's infinite value mostly, and choosing takes long
        return super().value(e, mask)

    def _places(self, e: Load, mask: Array | None) -> Sequence[Array]:
        """The indices of a read, the same arrays for the same indices; where `mask` is false any that are in range."""
        key = (e.tensor.shape, *map(self.frame.source.numbers.of, e.indices), id(mask))
        if key not in self.seen:
            values = [self.value(i, mask) for i in e.indices]
            self.seen[key] = ([_within(e.tensor, k, i, mask) for k, i in enumerate(values)], mask)
        found: Sequence[Array] = self.seen[key][0]
        return found

    def _choose(self, cond: Expr, a: Expr, b: Expr, mask: Array | None) -> Array:
        """As of Evaluator; the masks are the same arrays for the same conditions."""
        key = ("masks", self.frame.source.numbers.of(cond), id(mask))
        if key not in self.seen:
            chosen = self.value(cond, mask)
            both = (chosen, ~chosen) if mask is None else (chosen & mask, ~chosen & mask)
            self.seen[key] = (chosen, *both, mask)
        chosen, in_a, in_b, _ = self.seen[key]
        if chosen.all():
            return self.value(a, mask)
        return np.where(chosen, self.value(a, in_a), self.value(b, in_b)) if chosen.any() else self.value(b, mask)


def _within(tensor: Tensor, k: int, index: Array, mask: Array | None) -> Array:
    """Indices of dimension `k`, those cut off to its extent that nobody looks at.  Raises InterpError for others."""
    size = tensor.shape[k]
    if index.min(initial=0) >= 0 and index.max(initial=0) < size:
        return index
    outside = (index < 0) | (index >= size)
    wrong = outside if mask is None else outside & mask
    if wrong.any():
        got = int(np.broadcast_to(index, wrong.shape)[wrong][0])
        raise InterpError(f"{tensor.name}: read out of range, got dimension={k} index={got} extent={size}")
    return np.clip(index, 0, size - 1)


# ------------------------------------------------------------------------------------------------------- reductions


@dataclass(frozen=True)
class _Space:
    """Dimension 0 counts points, each other one is an axis that is reduced."""

    axes: tuple[IterVar, ...]
    reduced: tuple[IterVar, ...]
    dims: tuple[int, ...]
    spatial: int = 1

    def dims_of(self, e: Expr) -> set[int]:
        used = free_vars(e)
        found = {0} if used.intersection(self.axes) else set()
        found |= {k for k, v in enumerate(self.reduced, 1) if v in used}
        return {d for d in found if self.dims[d] > 1}


def _reduction(op: ComputeOp) -> Reduce:
    assert op.reduction is not None
    return op.reduction


class _Fold:
    """Reductions over the same axes at `count` points."""

    def __init__(
        self, source: PointReference, group: Sequence[ComputeOp], points: Sequence[Array], count: int, alone: bool
    ) -> None:
        self.source, self.points, self.count, self.op = source, points, count, group[0]
        extents, bounds = self._extents()
        space = _Space(self.op.axis, self.op.reduce_axis, (count, *extents))
        self.foldings = [Folding(space, bounds, op.reduction) for op in group]
        self.outputs = [[body.value_index for body in op.body if isinstance(body, Reduce)] for op in group]
        self.extents = extents
        for op, folding in zip(group, self.foldings, strict=True):
            for e in folding.factors or [*folding.conditions, *_reduction(op).sources]:
                source.numbers.use(op.key, e)
        self.threads = 1 if alone else min(MOST_THREADS, os.cpu_count() or 1)

    def _extents(self) -> tuple[tuple[int, ...], list[Expr]]:
        """Of the axes that are reduced, at most, and the conditions that cut off those that vary."""
        extents, bounds = [], []
        scope = _Frame(self.source).scope(self.op.axis, self.points, 1)
        for v in self.op.reduce_axis:
            extent = v.extent
            if isinstance(extent, Expr):
                found = scope.value(extent)
                if found.min() != found.max():
                    bounds.append(v < extent)
                extent = int(found.max())
            extents.append(extent)
        return tuple(extents), bounds

    def run(self) -> list[list[Array]]:
        """The outputs of each reduction at all points."""
        inner = self._boxes()
        step = max(1, CHUNK // math.prod(self.extents)) if len(inner) == 1 else 1
        blocks = [(k, min(k + step, self.count)) for k in range(0, self.count, step)]
        shares = max(1, min(len(inner), 4 * self.threads // len(blocks)))
        cuts = [len(inner) * k // shares for k in range(shares + 1)]
        items = [(b, inner[lo:hi]) for b in blocks for lo, hi in itertools.pairwise(cuts)]
        parts = self._parts(items)
        made = [self._joined(parts[k * shares : (k + 1) * shares], block) for k, block in enumerate(blocks)]
        return [[np.concatenate(x) for x in zip(*of_one, strict=True)] for of_one in zip(*made, strict=True)]

    def _boxes(self) -> list[Box]:
        """The points that are reduced, in order, in boxes of at most CHUNK."""
        shape, left = [], CHUNK
        for extent in reversed(self.extents):
            shape.append(min(extent, max(1, left)))
            left //= extent
        return list(boxes(self.extents, shape[::-1]))

    def _parts(self, items: Sequence[tuple[tuple[int, int], list[Box]]]) -> list[list[list[Array]]]:
        if len(items) < 2 or self.threads < 2:
            return [self._part(*item, alone=self.threads < 2) for item in items]
        block, inner = items[0]
        self._part(block, inner[:1], alone=False)  # what all of them need of others is known from now on

        def part(item: tuple[tuple[int, int], list[Box]]) -> list[list[Array]]:
            with np.errstate(all="ignore"):  # threads do not inherit it
                return self._part(*item, alone=True)

        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(part, items))

    def _part(self, block: tuple[int, int], inner: Sequence[Box], alone: bool) -> list[list[Array]]:
        """Each reduction at the points of a block, over some boxes."""
        totals: list[list[Array]] = []
        for box in inner:
            scope = self._scope(block, box, alone)
            found = [folding.reduce(scope) for folding in self.foldings]
            if totals:
                found = [f.combine(a, b, scope) for f, a, b in zip(self.foldings, totals, found, strict=True)]
            totals = found
            scope.frame.forget()
        return totals

    def _joined(self, parts: Sequence[list[list[Array]]], block: tuple[int, int]) -> list[list[Array]]:
        """The outputs at the points of a block, from the parts of the points that are reduced."""
        scope = self._scope(block, tuple([(0, 1) for _ in self.extents]), False)
        out = []
        for k, (folding, outputs) in enumerate(zip(self.foldings, self.outputs, strict=True)):
            total = parts[0][k]
            for part in parts[1:]:
                total = folding.combine(total, part[k], scope)
            total = folding.finish(total, scope)
            out.append([np.broadcast_to(total[i].reshape(-1), (block[1] - block[0],)) for i in outputs])
        scope.frame.forget()
        return out

    def _scope(self, block: tuple[int, int], box: Box, alone: bool) -> _Scope:
        ndim = 1 + len(box)
        env: dict[Var, Array] = {}
        for v, values in zip(self.op.axis, self.points, strict=True):
            env[v] = values[slice(*block)].reshape((-1,) + (1,) * len(box))
        for d, (v, ends) in enumerate(zip(self.op.reduce_axis, box, strict=True), 1):
            env[v] = np.arange(*ends, dtype=np.int64).reshape([-1 if k == d else 1 for k in range(ndim)])
        frame = _Frame(self.source, alone)
        scope = _Scope(ndim, env, {}, REAL, frame)
        key = (*map(id, self.op.axis), *[id(env[v]) for v in self.op.axis])
        frame.scopes[key] = scope
        return scope
