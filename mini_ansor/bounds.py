"""Bound inference: how far every loop runs, and which region of its tensor each stage computes.

Consumers come before producers.  A stage that is computed inside a loop covers what its consumers read while the loops
around that place stand still and those inside run.  A region is an interval in every dimension; where it begins is
linear in the loops that stand still.

Which loops stand still depends on who shares the storage of the stage:

    storage   is shared by              blocks    threads   virtual threads   other loops
    global    the whole program         run       run       run               stand still
    shared    the threads of a block    stand     run       run               stand still
    local     nobody                    stand     stand     stand             stand still
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fmod, gcd, inf, prod
from typing import Any

from .expr import ONE, Axis, Binary, Const, Expr, Interval, Load, Op, affine, index_value, interval_quotient
from .expr import interval_sum, loads, span, substitute, terms, total, transform
from .program import FuseRel, Iter, SplitRel, Stage, State, StepError
from .steps import split_strides

RANK = {"blockIdx": 0, "threadIdx": 1, "vthread": 1}
"""A loop stands still for storage of a higher rank."""
PRIVACY = {"global": 0, "shared": 1, "local": 2}


def thread_rank(annotation: str) -> int | None:
    """The rank of a block, thread or virtual thread; threads along x stand still for local storage only."""
    return RANK.get(annotation.partition(".")[0])


# ----------------------------------------------------------------------------------------------------------- regions


@dataclass(frozen=True, eq=False)
class LoopVar(Axis):
    """The value of iterator `id` of a stage."""

    stage: int = 0
    id: int = 0


@dataclass(frozen=True)
class Region:
    """`start .. start + extent - 1` in one dimension; `start` is a sum of loops, and of quotients of such sums."""

    start: Expr
    extent: int

    def add(self, other: Region, factor: int = 1) -> Region:
        """All `a + factor * b`; a negative factor turns the interval round."""
        reach = other.extent - 1
        start = self.start + other.start * factor + min(factor, 0) * reach
        return Region(total(terms(start)), self.extent + reach * abs(factor))

    def divide(self, op: str, n: int) -> Region:
        """The hull of the quotients, or remainders; these are exact where no multiple of n is crossed."""
        most = _largest_remainder(self.start, n) + self.extent
        if op == "//":
            return Region(self.start // n, (most - 1) // n + 1)
        return Region(self.start % n, self.extent) if most <= n else Region(Const(0), n)

    def unite(self, other: Region) -> Region:
        """The hull of both."""
        low, high = span(total(terms(other.start - self.start)))
        first = int(min(low, 0))
        return Region(self.start + first, int(max(self.extent, high + other.extent)) - first)

    def clip(self, size: int) -> Region:
        """The whole dimension where the region surely covers it, else the region as it is."""
        low, high = span(self.start)
        return whole(size) if high <= 0 and low + self.extent >= size else self


def whole(extent: int) -> Region:
    return Region(Const(0), extent)


def _largest_remainder(start: Expr, n: int) -> int:
    found = terms(start)
    const, step = found.pop(ONE, 0), 0
    for t, c in found.items():
        step = gcd(step, 0 if isinstance(t, Axis) and t.extent == 1 else c)
    period = gcd(step, n)
    return n - period + const % period


def index_region(e: Expr, axes: dict[Expr, Region]) -> Region | None:
    """The values of an index while the axes run through their regions; None when nothing is known."""

    def linear(found: dict[Any, int], const: int) -> Region:
        out = Region(Const(const), 1)
        for axis, c in found.items():
            out = out.add(axes[axis], c)
        return out

    return index_value(e, linear, Region.add, lambda op, r, n: r.divide(op, n))


# --------------------------------------------------------------------------------------------------------- expansion


def expanded_bodies(state: State) -> list[Expr | None]:
    """The bodies of all stages with inlined stages put where they are read; None for these and for inputs."""
    inlined: dict[str, tuple[Op, Expr]] = {}

    def expand(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.op.key not in inlined:
            return None
        op, body = inlined[e.op.key]
        return substitute(body, dict(zip(op.axes, [transform(i, expand) for i in e.indices], strict=True)))

    out: list[Expr | None] = []
    for stage in state.stages:
        body = None if stage.op.body is None else transform(stage.op.body, expand)
        if body is not None and stage.where == "inlined":
            inlined[stage.op.key] = stage.op, body
        out.append(None if stage.where == "inlined" else body)
    return out


# ---------------------------------------------------------------------------------------------------------- inference


@dataclass(frozen=True)
class Bounds:
    """`state` with all extents; for each stage the region of each axis, its storage, and its expanded body."""

    state: State
    regions: tuple[tuple[Region, ...], ...]
    scopes: tuple[str, ...]
    bodies: tuple[Expr | None, ...]


def infer_bounds(state: State) -> Bounds:
    """All extents of a state without holes.  Raises StepError for a length that is not decided."""
    return _Inference(state).run()


def enclosing(stages: Sequence[Stage], k: int) -> list[tuple[int, int]]:
    """The loops, as stage and id, that stage k is computed in: the nearest stage first, its outermost loop first."""
    found, at = [], stages[k].at
    while at is not None:
        target = stages[at[0]]
        found += [(at[0], i) for i in target.loops[: target.loops.index(at[1]) + 1]]
        at = target.at
    return found


def standing(stages: Sequence[Stage], scopes: Sequence[str], k: int) -> list[tuple[int, int]]:
    """Those of the loops around stage k that stand still while it is computed once.

    What is computed once for several threads is so with all that is computed inside of it.
    """
    found, at, rank = [], stages[k].at, PRIVACY[scopes[k]]
    while at is not None:
        target = stages[at[0]]
        for i in target.loops[: target.loops.index(at[1]) + 1]:
            own = thread_rank(target.iters[i].annotation)
            if own is None or rank > own:
                found.append((at[0], i))
        rank, at = min(rank, privacy(target, scopes[at[0]])), target.at
    return found


def privacy(stage: Stage, scope: str) -> int:
    """The rank of the storage of a stage; at root it is there for the whole program."""
    return PRIVACY[scope] if stage.where == "iter" else 0


def _scope(stages: Sequence[Stage], k: int) -> str:
    """Where stage k is kept: as its cache step says, else by the threads around it."""
    if stages[k].op.scope:
        return stages[k].op.scope
    tags = [stages[s].iters[i].annotation for s, i in enclosing(stages, k)]
    ranks = [2 if tag == "threadIdx.x" else thread_rank(tag) for tag in tags]
    rank = max([r for r in ranks if r is not None], default=-1)
    return {-1: "global", 0: "shared"}.get(rank, "local")


class _Inference:
    def __init__(self, state: State) -> None:
        self.state, self.stages = state, list(state.stages)
        self.bodies = expanded_bodies(state)
        self.scopes = [_scope(self.stages, k) for k in range(len(self.stages))]
        self.regions: list[tuple[Region, ...]] = [()] * len(self.stages)
        self.vars: dict[tuple[int, int], LoopVar] = {}
        index = {op.key: k for k, op in enumerate(state.ops)}
        self.reads: list[list[tuple[int, tuple[Expr, ...]]]] = [[] for _ in self.stages]
        for k, body in enumerate(self.bodies):
            for load in loads(body):
                self.reads[index[load.op.key]].append((k, load.indices))

    def run(self) -> Bounds:
        for k in reversed(range(len(self.stages))):
            stage = self.stages[k]
            if self.bodies[k] is not None:
                reduced = [whole(a.extent) for a in stage.op.reduce_axes]
                self.regions[k] = (*self._space(k), *reduced)
                self.stages[k] = filled(stage, [r.extent for r in self.regions[k]])
        state = replace(self.state, stages=tuple(self.stages))
        return Bounds(state, tuple(self.regions), tuple(self.scopes), tuple(self.bodies))

    def _space(self, k: int) -> list[Region]:
        """The region of the axes of stage k: all that its consumers read."""
        stage, shape = self.stages[k], self.stages[k].op.shape
        wanted = self.state.dag.is_output(k) or (stage.where == "root" and self.state.is_argument(k))
        if wanted or not self.reads[k]:
            return [whole(n) for n in shape]
        fixed = standing(self.stages, self.scopes, k)
        rank = privacy(stage, self.scopes[k])
        around = set(enclosing(self.stages, k))
        out: list[Region] = []
        for reader, indices in self.reads[k]:
            if stage.at is not None and reader != stage.at[0] and not around <= set(enclosing(self.stages, reader)):
                raise StepError(f"{stage.op.name}: {self.stages[reader].op.name} reads it outside its loop")
            op = self.stages[reader].op
            axes: dict[Expr, Region] = dict(zip(op.all_axes, self._axes(reader, set(fixed), rank), strict=True))
            found = [index_region(e, axes) for e in indices]
            new = [whole(n) if r is None else r.clip(n) for r, n in zip(found, shape, strict=True)]
            out = [a.unite(b) for a, b in zip(out, new, strict=True)] if out else new
        return out

    def _axes(self, k: int, fixed: set[tuple[int, int]], rank: int) -> list[Region]:
        """The region of each axis of stage k while the loops `fixed` stand still, for storage of a rank."""
        own = [self._iterator(k, n, fixed, rank) for n in range(len(self.regions[k]))]
        return [region.add(self._relaxed(r.start, fixed, rank)) for region, r in zip(own, self.regions[k], strict=True)]

    def _relaxed(self, start: Expr, fixed: set[tuple[int, int]], rank: int) -> Region:
        """The values of `start` while only the loops `fixed` stand still."""
        out = Region(Const(0), 1)
        for t, c in terms(start).items():
            match t:
                case LoopVar(stage=stage, id=i):
                    out = out.add(self._loop(stage, i, fixed, rank), c)
                case Binary(op, base, Const(n)):
                    out = out.add(self._relaxed(base, fixed, rank).divide(op, int(n)), c)
                case _:
                    out = out.add(Region(t, 1), c)
        return out

    def _loop(self, k: int, i: int, fixed: set[tuple[int, int]], rank: int) -> Region:
        """An iterator that is a loop or part of one: its value where this stands still, else all of its values."""
        stage, threads = self.stages[k], _threads(self.stages[k])
        loop = stage.fused_into(i)
        still = rank > threads[i] if i in threads else not {(k, i), (k, loop)}.isdisjoint(fixed)
        extent = stage.iters[i].length
        return (
            Region(self.vars.setdefault((k, i), LoopVar(stage.iters[i].name, extent, k, i)), 1)
            if still
            else whole(extent)
        )

    def _iterator(self, k: int, i: int, fixed: set[tuple[int, int]], rank: int) -> Region:
        """The region of iterator `i` of stage k over its own loops."""
        stage = self.stages[k]
        extent = stage.iters[i].length
        split = stage.split_of(i)
        if split is not None:
            parts = [self._iterator(k, p, fixed, rank) for p in split.parts]
            if all(r == whole(stage.iters[p].length) for r, p in zip(parts, split.parts, strict=True)):
                return whole(extent)
            out = Region(Const(0), 1)
            for r, stride in zip(parts, split_strides(stage, split), strict=True):
                out = out.add(r, stride)
            return out
        if stage.split_of(stage.fused_into(i)) is None:
            return self._loop(k, i, fixed, rank)
        rel = next(rel for rel in stage.relations if isinstance(rel, FuseRel) and i in rel.parts)
        fused = self._iterator(k, rel.fused, fixed, rank)
        if fused == whole(stage.iters[rel.fused].length):
            return whole(extent)
        inner = prod(stage.iters[p].length for p in rel.parts[rel.parts.index(i) + 1 :])
        outer = fused.divide("//", inner) if inner > 1 else fused
        return outer if i == rel.parts[0] else outer.divide("%", extent)


def _threads(stage: Stage, virtual: bool = False) -> dict[int, int]:
    """The rank of the block or thread that each iterator takes part in; virtual threads are loops like others."""
    ranks: dict[int, int] = {}
    for it in stage.current:
        rank = thread_rank(it.annotation)
        if rank is not None and (virtual or it.annotation != "vthread"):
            ranks[it.id] = rank
    for rel in reversed(stage.relations):
        if isinstance(rel, FuseRel) and rel.fused in ranks:
            ranks.update(dict.fromkeys(rel.parts, ranks[rel.fused]))
        elif isinstance(rel, SplitRel) and any(p in ranks for p in rel.parts):
            ranks[rel.parent] = max(ranks[p] for p in rel.parts if p in ranks)
    return ranks


def filled(stage: Stage, roots: Sequence[int]) -> Stage:
    """The stage with the extents of all iterators, from those of its axes."""
    extents: dict[int, int] = dict(enumerate(roots))
    threads = _threads(stage, virtual=True)
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            extents[rel.fused] = prod(extents[p] for p in rel.parts)
            continue
        rest = extents[rel.parent]
        order = list(zip(rel.parts[1:] if rel.inner_to_outer else rel.parts[:-1], rel.lengths, strict=True))
        for part, length in reversed(order) if rel.inner_to_outer else order:
            if length is None:
                raise StepError(f"{stage.op.name}: the split of {stage.iters[rel.parent].name} is not decided")
            # A block has as many threads as the step says, whether or not there is work for all.
            extents[part] = length if part in threads else min(length, rest)
            rest = -(-rest // length)
        extents[rel.parts[0] if rel.inner_to_outer else rel.parts[-1]] = rest
    iters = tuple(Iter(it.id, it.name, extents.get(it.id, it.extent), it.kind, it.annotation) for it in stage.iters)
    return replace(stage, iters=iters)


# ------------------------------------------------------------------------------------------------ tensors that are read


class Indices:
    """The different index tuples with which one tensor is read; axes are named by their number."""

    def __init__(self, tuples: Sequence[tuple[Expr, ...]], axes: Sequence[Axis]) -> None:
        self.tuples = list(dict.fromkeys(tuples))
        self.number: dict[Expr, int] = {a: n for n, a in enumerate(axes)}

    def count(self, d: int, values: Sequence[float]) -> float:
        """How many different values index d takes while the axes take `values` values each, from 0 on."""
        sums = affine(self.tuples[0][d])
        if len(self.tuples) == 1 and sums is not None and [abs(c) for c in sums[0].values()] == [1]:
            return values[self.number[next(iter(sums[0]))]]

        def linear(sums: dict[Any, int], const: int) -> tuple[Interval, float]:
            """The smallest and the largest value, and the number of points that the index depends on."""
            ends: Interval = (float(const), float(const))
            for a, c in sums.items():
                ends = interval_sum(ends, (0.0, values[self.number[a]] - 1), c)
            return ends, prod(values[self.number[a]] for a in sums)

        def add(x: tuple[Interval, float], y: tuple[Interval, float], c: int) -> tuple[Interval, float]:
            return interval_sum(x[0], y[0], c), x[1] * y[1]

        def divide(op: str, x: tuple[Interval, float], n: int) -> tuple[Interval, float]:
            return interval_quotient(op, x[0], n), x[1]

        known = [f for t in self.tuples if (f := index_value(t[d], linear, add, divide)) is not None]
        if len(known) < len(self.tuples):
            return inf
        reach = max(ends[1] for ends, _ in known) - min(ends[0] for ends, _ in known) + 1
        return min(sum(points for _, points in known), reach)

    def axis_steps(self, sizes: Sequence[float]) -> dict[int, float]:
        """By how many elements a step of each axis moves the address, in most places."""

        def linear(sums: dict[Any, int], _: int) -> dict[int, float]:
            return {self.number[a]: float(c) for a, c in sums.items()}

        def add(x: dict[int, float], y: dict[int, float], c: int) -> dict[int, float]:
            return {n: x.get(n, 0.0) + c * y.get(n, 0.0) for n in {**x, **y}}

        def divide(op: str, x: dict[int, float], n: int) -> dict[int, float]:
            return {a: float(int(step / n)) if op == "//" else fmod(step, n) for a, step in x.items()}

        out: dict[int, float] = {}
        for indices in reversed(self.tuples):
            found: dict[int, float] = {}
            for d, e in enumerate(indices):
                for a, step in (index_value(e, linear, add, divide) or {}).items():
                    found[a] = found.get(a, 0.0) + step * prod(sizes[d + 1 :])
            out.update(found)
        return out
