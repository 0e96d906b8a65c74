"""Bound inference: how far every loop runs and which region every stage computes.

Consumers come before producers.  A stage that is computed inside a loop of another one covers what its consumers
read while the loops outside that point are invariant and the loops inside vary; loops bound to threads that
share the stage's storage count as running (`loop_scope.py`).  The same code serves one program and many (extents as
lanes): nothing here asks for the truth of an extent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import Any

from ..errors import LowerError, require
from ..expr.lanes import ceildiv, product, smaller
from ..expr.storage import storage_class
from ..schedule.loop_value import fused_strides, split_strides, tiled_extent
from ..schedule.region import ZERO, Linear, LoopAtom, Region, chosen, clip, floordiv, floormod, unite
from ..schedule.state import ATTACHED, INLINED, ROOT, SPECIAL, FuseRel, Iter, SplitRel, Stage, State, root_extent
from .loop_scope import (
    BLOCKS,
    THREAD_RANK,
    THREADS,
    LoopKey,
    enclosing_loops,
    privacy,
    scope_of,
    shared_out,
    standing_loops,
    thread_ranks,
)
from .overrun import index_beyond, reach_beyond, runs_over
from .reads import Affine, Form, Quotient, Read, Scaled, Sum, Unknown, counted_through, reads_by_producer

Atoms = frozenset[LoopKey]


@dataclass(frozen=True, slots=True)
class Keeper:
    """Who keeps a stage: how private its storage is, and the threads that share its points out all the same."""

    rank: int
    shared_out: frozenset[str]


@dataclass(frozen=True)
class Bounds:
    """`state` with all extents; `regions[k]` is the region of each root axis of stage k, `scopes[k]` its storage."""

    state: State
    regions: tuple[tuple[Region, ...], ...]
    scopes: tuple[str, ...]

    def storage(self, k: int) -> str:
        """The class of the storage of stage k: `global`, `shared` or `local`."""
        return storage_class(self.scopes[k])

    def kept_points(self, k: int) -> Any:
        """The points of stage k that one storage keeps: its region, or a thread's part of what is shared out."""
        stage = self.state.stages[k]
        points = product([r.extent for r in self.regions[k][: len(stage.op.axis)]])
        tags = shared_out(stage, self.scopes[k])
        threads = [it.extent for it in stage.iters if it.annotation in tags]
        return ceildiv(points, product(threads)) if threads else points


def infer_bounds(state: State) -> Bounds:
    """Infer all extents.

    Raises LowerError when a split length is undecided or a consumer stands outside its producer's attach point.
    """
    return _Inference(state).run()


def fill_extents(stage: Stage, roots: Sequence[Region]) -> Stage:
    """The stage with the extents of all iterators, given the regions of its root axes."""
    extents: dict[int, Any] = {it.uid: 1 for it in stage.vars if it.kind == SPECIAL}
    extents |= {uid: r.extent for uid, r in enumerate(roots)}
    kept = {*thread_ranks(stage, THREAD_RANK), *[it.uid for it in stage.iters if it.annotation == "tensorize"]}
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            extents[rel.fused] = product([extents[p] for p in rel.parts])
        else:
            if any(length is None for length in rel.lengths):
                raise LowerError(f"{stage.op.name}: the split of {stage.vars[rel.parent].name} is not decided yet")
            extents.update(_split_extents(rel, extents[rel.parent], kept))
    starts = [r.min for r in roots]
    return replace(stage, vars=tuple([_filled(v, extents, starts) for v in stage.vars]))


def _split_extents(rel: SplitRel, rest: Any, kept: Collection[int]) -> dict[int, Any]:
    """The extents of the loops of a split, from that of its parent; those `kept` stay as long where it is shorter.

    They are threads, which a block has as many of, and instructions, which have one size.
    """
    out: dict[int, Any] = {}
    named = rel.children[1:] if rel.inner_to_outer else rel.children[:-1]
    order = list(zip(named, rel.lengths, strict=True))
    for child, length in reversed(order) if rel.inner_to_outer else order:
        out[child] = length if child in kept else smaller(length, rest)
        rest = ceildiv(rest, length)
    out[rel.children[0] if rel.inner_to_outer else rel.children[-1]] = rest
    return out


def _filled(v: Iter, extents: dict[int, Any], starts: list[Linear]) -> Iter:
    start = starts[v.uid] if v.uid < len(starts) else None
    return Iter(v.uid, v.name, extents.get(v.uid, v.extent), v.kind, v.annotation, start)


class _Inference:
    def __init__(self, state: State) -> None:
        self.state = state
        self.stages = list(state.stages)
        inlined = frozenset(k for k, s in enumerate(self.stages) if s.where == INLINED)
        self.reads = reads_by_producer(state.ops, inlined)
        self.regions: list[tuple[Region, ...]] = [()] * len(self.stages)
        self.scopes = [scope_of(self.stages, k) for k in range(len(self.stages))]
        self.keepers = [
            Keeper(privacy(stage, scope), shared_out(stage, scope))
            for stage, scope in zip(self.stages, self.scopes, strict=True)
        ]
        self.listed = {t.op.key for t in state.dag.tensors}
        tags = frozenset(BLOCKS + THREADS)
        apart = {keeper.shared_out for keeper in self.keepers}
        self.ranks = {own: [thread_ranks(s, tags - own) for s in self.stages] for own in apart}
        self.backward = any(read.backward for reads in self.reads for read in reads)
        """Whether the coefficient of a loop in the start of a region may be negative."""
        self._axis_cache: dict[tuple[int, Atoms, Keeper], tuple[Region, ...]] = {}

    def run(self) -> Bounds:
        for k in reversed(range(len(self.stages))):
            stage = self.stages[k]
            if stage.is_placeholder or stage.where == INLINED:
                continue
            spatial = self._region(k)
            reduce = self._along(k) if stage.along else self._reduced(k)
            self.regions[k] = (*spatial, *reduce)
            self.stages[k] = fill_extents(stage, self.regions[k])
            if self._keeps_tiles(k):
                self._round_up(k)
        return Bounds(replace(self.state, stages=tuple(self.stages)), tuple(self.regions), tuple(self.scopes))

    def _reduced(self, k: int) -> list[Region]:
        return [Region(ZERO, root_extent(v, self.stages[k].op.axis)) for v in self.stages[k].op.reduce_axis]

    def _along(self, k: int) -> list[Region]:
        """What a stage folds in an iteration of the loop that it is computed along: what the stage of the loop does
        there.
        """
        attach = self.stages[k].attach
        assert attach is not None
        fixed = frozenset(enclosing_loops(self.stages, k))
        axes = self._axis_regions(attach.stage, fixed, self.keepers[k])
        return list(axes[len(self.stages[attach.stage].op.axis) :])

    def _keeps_tiles(self, k: int) -> bool:
        """Whether stage k runs over in whole tiles: in fragments, or a reduction that threads do not share out."""
        stage = self.stages[k]
        threads = any(it.annotation in BLOCKS + THREADS for it in stage.iters)
        tiles = storage_class(self.scopes[k]) == "fragment" or (stage.op.reduce_axis and not threads)
        return bool(tiles and runs_over(self.state, k, self.listed))

    def _round_up(self, k: int) -> None:
        """Give stage k room for whole tiles where its own do not divide its region.

        An axis that is split into a number of parts stays: how long they are follows from its extent.
        """
        stage, rank = self.stages[k], len(self.stages[k].op.axis)
        parted = {r.parent for r in stage.relations if isinstance(r, SplitRel) and not r.inner_to_outer}
        extents = [stage.vars[uid].extent if uid in parted else tiled_extent(stage, uid) for uid in range(rank)]
        roots = [replace(v, extent=e) for v, e in zip(stage.vars, extents, strict=False)]
        self.stages[k] = replace(stage, vars=(*roots, *stage.vars[rank:]))
        self.regions[k] = (*map(Region, [r.min for r in self.regions[k]], extents), *self.regions[k][rank:])

    def _region(self, k: int) -> tuple[Region, ...]:
        """The region of the spatial axes of stage k."""
        stage, shape = self.stages[k], self.stages[k].op.shape
        wanted = self.state.access.is_output(k) or (stage.where == ROOT and stage.op.key in self.listed)
        if wanted or not self.reads[k]:
            return tuple([Region(ZERO, d) for d in shape])
        fixed = frozenset(standing_loops(self.stages, self.scopes, k))
        if stage.where == ATTACHED:
            self._check_inside(k)
        dims: list[Region] | None = None
        for read in self.reads[k]:
            new = self._read_region(k, read, fixed, shape)
            dims = new if dims is None else [unite(a, b) for a, b in zip(dims, new, strict=True)]
        assert dims is not None
        return (*dims[:-1], Region(ZERO, shape[-1])) if stage.op.scans else tuple(dims)

    def _computed_with(self, k: int) -> int:
        """The stage at whose place stage k is complete: itself, or the one whose loop it is computed along."""
        attach = self.stages[k].attach
        return attach.stage if self.stages[k].along and attach is not None else k

    def _check_inside(self, k: int) -> None:
        computed = self._computed_with(k)
        attach = self.stages[computed].attach
        if attach is None:
            return
        target, around = self.stages[attach.stage], set(enclosing_loops(self.stages, computed))
        for read in self.reads[k]:
            inside = read.reader == attach.stage or around <= set(enclosing_loops(self.stages, read.reader))
            require(
                inside,
                LowerError,
                self.stages[k].op.name,
                "every consumer must be inside the loop it is computed at",
                loop=f"{target.op.name}.{target.vars[attach.iter].name}",
                consumer=self.stages[read.reader].op.name,
            )

    def _read_region(self, k: int, read: Read, fixed: Atoms, shape: tuple[int, ...]) -> list[Region]:
        axes = self._axis_regions(read.reader, fixed, self.keepers[k])
        over = self._over(read.reader) if runs_over(self.state, k, self.listed) else []
        out = []
        for form, size in zip(read.forms, shape, strict=True):
            region = _form_region(form, axes)
            for counted in reversed([*counted_through(self.stages[read.reader], form)]):
                rest = _form_region(counted.rest, axes)
                fused = self._fused_region(read.reader, counted.rel, fixed, self.keepers[k]).scale(counted.factor)
                region = None if rest is None or region is None else chosen(counted.same, rest.add(fused), region)
            room = size + index_beyond(form, over)
            out.append(Region(ZERO, size) if region is None else clip(region, room))
        return out

    def _over(self, k: int) -> list[Any]:
        """How far stage k is computed behind the end of each axis (`overrun.py`)."""
        if not runs_over(self.state, k, self.listed):
            return []
        stage, rank = self.stages[k], len(self.stages[k].op.axis)
        space = [reach_beyond(r, d) for r, d in zip(self.regions[k], stage.op.shape, strict=False)]
        return space + [tiled_extent(stage, uid) - stage.vars[uid].extent for uid in range(rank, stage.num_roots)]

    def _stands(self, stage: int, uid: int, fixed: Atoms, keeper: Keeper) -> bool:
        """Whether iterator `uid` is invariant: fixed outside, or a thread that does not share the storage.

        The axes of real threads are there in the whole kernel, those of virtual threads only inside their loop.
        """
        thread = self.ranks[keeper.shared_out][stage].get(uid)
        return keeper.rank > thread if thread is not None else (stage, uid) in fixed

    def _axis_regions(self, k: int, fixed: Atoms, keeper: Keeper) -> tuple[Region, ...]:
        """The region of each root axis of stage k while the loops `fixed` are invariant, for what `keeper` keeps."""
        key = (k, fixed, keeper)
        if key not in self._axis_cache:
            stage = self.stages[k]
            over = runs_over(self.state, k, self.listed)
            reduced = range(len(stage.op.axis), stage.num_roots) if over else range(0)
            local = _LocalRegions(k, stage, lambda uid: self._stands(k, uid, fixed, keeper), reduced)
            out = []
            for root, base in enumerate(self.regions[k]):
                inner = local.region(root)
                out.append(inner.add(self._relax(base.min, fixed, keeper)))
            self._axis_cache[key] = tuple(out)
        return self._axis_cache[key]

    def _fused_region(self, k: int, rel: FuseRel, fixed: Atoms, keeper: Keeper) -> Region:
        """The region of a loop that was fused of axes of stage k, as `_axis_regions`."""
        local = _LocalRegions(k, self.stages[k], lambda uid: self._stands(k, uid, fixed, keeper), ())
        region = local.region(rel.fused)
        for part, stride in fused_strides(self.stages[k], rel).items():
            region = region.add(self._relax(self.regions[k][part].min, fixed, keeper).multiple(stride, False))
        return region

    def _relax(self, low: Linear, fixed: Atoms, keeper: Keeper) -> Region:
        """The values of `low` while only the loops `fixed` are invariant."""
        terms: dict[Any, Any] = {}
        region = Region(ZERO, 1)
        for atom, c in low.terms.items():
            if isinstance(atom, LoopAtom):
                if self._stands(atom.stage, atom.uid, self._part_of(fixed, atom), keeper):
                    terms[atom] = c
                else:
                    reach = atom.extent - 1
                    start = region.min.add(Linear({}, smaller(c, 0) * reach)) if self.backward else region.min
                    region = Region(start, region.extent + reach * abs(c))
            else:
                base = self._relax(atom.base, fixed, keeper)
                value = floormod(base, atom.divisor) if atom.mod else floordiv(base, atom.divisor)
                region = region.add(value.multiple(c, self.backward))
        return region.add(Region(Linear(terms, low.const), 1))

    def _part_of(self, fixed: Atoms, atom: LoopAtom) -> Atoms:
        """`fixed`, with the iterator itself when the loop it was fused into is invariant."""
        stage = self.stages[atom.stage]
        uid = atom.uid
        for rel in stage.relations:
            if isinstance(rel, FuseRel) and uid in rel.parts:
                uid = rel.fused
        return fixed | {(atom.stage, atom.uid)} if (atom.stage, uid) in fixed else fixed


class _LocalRegions:
    """The regions of a stage's iterators over its own loops, some of which are invariant.

    The axes `whole_tiles` (uids) run to the end of their last tile, the others end at their extents.
    """

    def __init__(self, k: int, stage: Stage, stands: Callable[[int], bool], whole_tiles: Collection[int]) -> None:
        self.k = k
        self.stage = stage
        self.stands = stands
        self.whole_tiles = whole_tiles
        self.split_of = {rel.parent: rel for rel in stage.relations if isinstance(rel, SplitRel)}
        self.fuse_of = {p: rel for rel in stage.relations if isinstance(rel, FuseRel) for p in rel.parts}
        self.done: dict[int, Region] = {}
        self.full: dict[int, bool] = {}

    def region(self, uid: int) -> Region:
        if uid not in self.done:
            self.done[uid] = self._compute(uid)
        return self.done[uid]

    def _fused_leaf(self, uid: int) -> int | None:
        """The loop that `uid` was fused into, through further fusing only; None when it was split later."""
        while uid in self.fuse_of:
            uid = self.fuse_of[uid].fused
        return None if uid in self.split_of else uid

    def _compute(self, uid: int) -> Region:
        extent = self.stage.vars[uid].extent
        if uid in self.split_of:
            return self._of_split(uid, self.split_of[uid])
        leaf = self._fused_leaf(uid)
        if leaf is not None:
            if self.stands(leaf):
                self.full[uid] = False
                return Region(Linear({LoopAtom(self.k, uid, extent): 1}), 1)
            self.full[uid] = True
            return Region(ZERO, extent)
        return self._of_part(uid, self.fuse_of[uid])

    def _of_split(self, uid: int, rel: SplitRel) -> Region:
        """The sum of the parts; parts that all run, from the side where splitting ended, are one range."""
        extent = self.stage.vars[uid].extent
        strides = split_strides(self.stage, rel)
        parts = [(self.region(c), stride) for c, stride in zip(rel.children, strides, strict=True)]
        runs = [self.full[c] for c in (rel.children if rel.inner_to_outer else rel.children[::-1])]
        count = len(list(takewhile(bool, runs)))
        self.full[uid] = count == len(runs)
        if self.full[uid]:
            return Region(ZERO, tiled_extent(self.stage, uid) if uid in self.whole_tiles else extent)
        if count > 1 and rel.inner_to_outer:
            parts = [(Region(ZERO, ceildiv(extent, strides[count - 1])), strides[count - 1]), *parts[count:]]
        elif count > 1:
            parts = [*parts[:-count], (Region(ZERO, strides[-count - 1]), 1)]
        return _sum_of_parts(parts)

    def _of_part(self, uid: int, rel: FuseRel) -> Region:
        """A part of a fused loop that was split again."""
        fused = self.region(rel.fused)
        extent = self.stage.vars[uid].extent
        self.full[uid] = self.full[rel.fused]
        if self.full[uid]:
            return Region(ZERO, extent)
        inner = product([self.stage.vars[p].extent for p in rel.parts[rel.parts.index(uid) + 1 :]])
        outer = floordiv(fused, inner)
        return outer if uid == rel.parts[0] else floormod(outer, extent)


def _sum_of_parts(parts: Iterable[tuple[Region, Any]]) -> Region:
    """The region of the sum of `value * stride`."""
    region = Region(ZERO, 1)
    for part, stride in parts:
        region = region.add(Region(part.min.scale(stride), (part.extent - 1) * stride + 1))
    return region


def _form_region(form: Form, axes: tuple[Region, ...]) -> Region | None:
    """The region of an index over the regions of the reader's axes; None when nothing is known."""
    match form:
        case Affine(terms=terms, const=const):
            known = [axes[axis] if c == 1 else axes[axis].scale(c) for axis, c in terms]
            return reduce(Region.add, known, Region(Linear({}, const), 1))
        case Sum(parts=parts, const=const):
            regions = [_form_region(p, axes) for p in parts]
            known = [r for r in regions if r is not None]
            return reduce(Region.add, known, Region(Linear({}, const), 1)) if len(known) == len(regions) else None
        case Scaled(part=part, factor=factor):
            inner = _form_region(part, axes)
            return None if inner is None else inner.scale(factor)
        case Quotient(part=part, divisor=divisor, mod=mod):
            inner = _form_region(part, axes)
            if inner is None:
                return None
            return floormod(inner, divisor) if mod else floordiv(inner, divisor)
        case Unknown():
            return None
