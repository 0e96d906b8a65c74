"""Bound inference: how far every loop goes, and which region of its tensor each stage computes.

Consumers come before producers.  A stage that is computed inside a loop covers what its consumers read while the loops
around that place are fixed and those inside vary; which are fixed depends on who shares the storage of the stage.  A
region is an interval in every dimension; where it begins is linear in the fixed loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from .expr import ONE, Axis, Const, Expr, Load, Op, index_value, loads, span, substitute, terms, total, transform
from .program import THREADS, FuseRel, SplitRel, Stage, State, StepError

RANK = {"vthread": 1, **{tag: int(tag.startswith("thread")) for tag in THREADS}}
"""Blocks and threads, which are fixed for storage of a higher rank alone; other loops are always fixed."""
PRIVACY = {"global": 0, "shared": 1, "local": 2}


# ----------------------------------------------------------------------------------------------------------- regions
@dataclass(frozen=True)
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
        """All `a + factor * b`; a negative factor reverses the interval."""
        reach = other.extent - 1
        start = self.start + other.start * factor + min(factor, 0) * reach
        return Region(total(terms(start)), self.extent + reach * abs(factor))

    def divide(self, op: str, n: int) -> Region:
        """The hull of the quotients, or remainders; these are exact where no multiple of n is crossed."""
        # Modulo n, the start is `const` plus a multiple of `period`: at most n - period + const % period.
        found = terms(self.start)
        const = found.pop(ONE, 0)
        period = gcd(n, *[0 if isinstance(t, Axis) and t.extent == 1 else c for t, c in found.items()])
        most = n - period + const % period + self.extent
        if op == "//":
            return Region(self.start // n, (most - 1) // n + 1)
        return Region(self.start % n, self.extent) if most <= n else whole(n)

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


def index_region(e: Expr, axes: dict[Axis, Region]) -> Region | None:
    """The values of an index while the axes take the values of their regions; None when nothing is known."""
    return index_value(e, lambda x: Region(x, 1) if isinstance(x, Const) else axes[x], Region.add, Region.divide)


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
Loop = tuple[int, int]  # by the numbers of its stage and iterator


def enclosing(stages: Sequence[Stage], k: int) -> list[Loop]:
    """The loops that stage k is computed in: those of the nearest stage first, its outermost loop first."""
    at = stages[k].at
    if at is None:
        return []
    loops = stages[at[0]].loops
    return [*[(at[0], i) for i in loops[: loops.index(at[1]) + 1]], *enclosing(stages, at[0])]


def fixed_loops(stages: Sequence[Stage], scopes: Sequence[str], k: int, rank: int = 2) -> list[Loop]:
    """Those of the loops around stage k that are fixed while it is computed once, for storage of at most a rank."""
    # If several threads share a stage, they share all that is computed inside it: outwards, levels only fall.
    at, rank = stages[k].at, min(rank, PRIVACY[scopes[k]])
    if at is None:
        return []
    ranks = {i: RANK.get(stages[s].iters[i].annotation) for s, i in enclosing(stages, k) if s == at[0]}
    found = [(at[0], i) for i, own in ranks.items() if own is None or rank > own]
    return [*found, *fixed_loops(stages, scopes, at[0], rank)]


def _scope(stages: Sequence[Stage], k: int) -> str:
    """Where stage k is kept: at root for the whole program; else as its cache step says, or by the threads around."""
    if stages[k].where != "iter" or stages[k].op.scope:
        return stages[k].op.scope if stages[k].where == "iter" else "global"
    ranks = [RANK.get(stages[s].iters[i].annotation) for s, i in enclosing(stages, k)]
    return ("global", "shared", "local")[1 + max([r for r in ranks if r is not None], default=-1)]


class Bounds:
    """`state` with all extents; for each stage the region of each axis, its storage, and its expanded body."""

    def __init__(self, state: State) -> None:
        """Raises StepError for a length that is not decided."""
        self.state, self.stages = state, list(state.stages)
        self.bodies = expanded_bodies(state)
        self.scopes = [_scope(self.stages, k) for k in range(len(self.stages))]
        self.regions: list[list[Region]] = [[] for _ in self.stages]
        self.reads: list[list[tuple[int, tuple[Expr, ...]]]] = [[] for _ in self.stages]
        index = {op.key: k for k, op in enumerate(state.ops)}
        for k, body in enumerate(self.bodies):
            for load in loads(body):
                self.reads[index[load.op.key]].append((k, load.indices))
        for k, stage in reversed(list(enumerate(state.stages))):
            if self.bodies[k] is not None:
                self.regions[k] = [*self._space(k), *[whole(a.extent) for a in stage.op.reduce_axes]]
                self.stages[k] = filled(stage, [r.extent for r in self.regions[k]])
        self.state = replace(state, stages=tuple(self.stages))

    def _space(self, k: int) -> list[Region]:
        """The region of the space axes of stage k: all that its consumers read."""
        stage, shape = self.stages[k], self.stages[k].op.shape
        wanted = self.state.dag.is_output(k) or (stage.where == "root" and self.state.is_argument(k))
        if wanted or not self.reads[k]:
            return [whole(n) for n in shape]
        seen = _Seen(self, fixed_loops(self.stages, self.scopes, k), PRIVACY[self.scopes[k]])
        around, out = set(enclosing(self.stages, k)), list[Region]()
        for reader, indices in self.reads[k]:
            if stage.at is not None and reader != stage.at[0] and not around <= set(enclosing(self.stages, reader)):
                raise StepError(f"{stage.op.name}: {self.stages[reader].op.name} reads it outside its loop")
            axes = dict(zip(self.stages[reader].op.all_axes, seen.axes(reader), strict=True))
            found = [index_region(e, axes) for e in indices]
            new = [whole(n) if r is None else r.clip(n) for r, n in zip(found, shape, strict=True)]
            out = [a.unite(b) for a, b in zip(out, new, strict=True)] if out else new
        return out


@dataclass(frozen=True)
class _Seen:
    bounds: Bounds
    fixed: list[Loop]  # while these are fixed, other stages are seen
    rank: int  # of the storage

    def axes(self, k: int) -> list[Region]:
        """The region of each axis of stage k: where the region of the stage starts, and its own loops."""
        starts = [index_value(r.start, self._start, Region.add, Region.divide) for r in self.bounds.regions[k]]
        return [self._iterator(k, n).add(start) for n, start in enumerate(starts) if start is not None]

    def _start(self, x: LoopVar | Const) -> Region:
        return self._loop(x.stage, x.id) if isinstance(x, LoopVar) else Region(x, 1)

    def _loop(self, k: int, i: int) -> Region:
        """An iterator that is a loop or part of one: its value where this is fixed, else all of its values."""
        stage = self.bounds.stages[k]
        threads, it = _threads(stage), stage.iters[i]
        fixed = self.rank > threads[i] if i in threads else (k, stage.fused_into(i)) in self.fixed
        return Region(LoopVar(it.name, it.length, k, i), 1) if fixed else whole(it.length)

    def _iterator(self, k: int, i: int) -> Region:
        """The region of iterator `i` of stage k over its own loops."""
        stage = self.bounds.stages[k]
        extent, split = stage.iters[i].length, stage.split_of(i)
        if split is not None:
            parts = [self._iterator(k, p) for p in split.parts]
            if all(r == whole(stage.iters[p].length) for r, p in zip(parts, split.parts, strict=True)):
                return whole(extent)  # the sum would be longer where the lengths do not divide
            out = whole(1)
            for r, stride in zip(parts, split.strides, strict=True):
                out = out.add(r, stride)
            return out
        if stage.split_of(stage.fused_into(i)) is None:
            return self._loop(k, i)
        # Fused with others, and that was split: its value is a digit of the fused one's.
        rel = next(rel for rel in stage.relations if isinstance(rel, FuseRel) and i in rel.parts)
        fused = self._iterator(k, rel.fused)
        if fused == whole(stage.iters[rel.fused].length):
            return whole(extent)
        inner = prod(stage.iters[p].length for p in rel.parts[rel.parts.index(i) + 1 :])
        outer = fused.divide("//", inner) if inner > 1 else fused
        return outer if i == rel.parts[0] else outer.divide("%", extent)


def _threads(stage: Stage, virtual: bool = False) -> dict[int, int]:
    """The rank of the block or thread that each iterator takes part in; virtual threads are loops like others."""
    ranks: dict[int, int] = {}
    for it in stage.current:
        rank = RANK.get(it.annotation)
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
        for part, length in reversed(list(zip(rel.parts[1:], rel.lengths, strict=True))):
            if length is None:
                raise StepError(f"{stage.op.name}: the split of {stage.iters[rel.parent].name} is not decided")
            # A block has as many threads as the step says, whether or not there is work for all.
            extents[part] = length if part in threads else min(length, rest)
            rest = -(-rest // length)
        extents[rel.parts[0]] = rest
    iters = tuple(replace(it, extent=extents.get(it.id, it.extent)) for it in stage.iters)
    return replace(stage, iters=iters)
