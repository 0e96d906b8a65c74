"""Steps on the loops of one stage, and on how it is stored: storage_align, storage_order, swizzle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import ScheduleError, require
from ..expr.lanes import ceildiv, product
from .state import MAX_NAME, MIXED, REDUCE, SPECIAL, Attach, Extent, FuseRel, Iter, Relation, SplitRel, Stage, State
from .step import (
    ANNOTATIONS,
    Annotate,
    FollowFusedSplit,
    FollowSplit,
    FreePragma,
    Fuse,
    Length,
    Pragma,
    Reorder,
    Split,
    StorageAlign,
    StorageOrder,
    Swizzled,
)

KNOWN_ANNOTATIONS = ANNOTATIONS[1:]
"""Those that a step may give: a loop without one is never annotated with "none"."""
AUTO_UNROLL = "auto_unroll_max_step"
REDUCTION_ANNOTATIONS = ("none", "unroll", "threadIdx.x", "threadIdx.y", "threadIdx.z", "tensorize")


def loop_at(state: State, k: int, position: int, what: str) -> Iter:
    """The loop at `position` of stage `k`, refused with the range when there is none."""
    stage = state.stages[k]
    ok = 0 <= position < len(stage.leaf)
    require(ok, ScheduleError, f"{what} {stage.op.name}", f"has {len(stage.leaf)} loops", loop=position)
    return stage.vars[stage.leaf[position]]


def _split_extents(extent: Extent | None, lengths: Sequence[Length], inner_to_outer: bool) -> list[Extent | None]:
    """Extents of the new loops, outer to inner; unknown from the first unknown length on."""
    out: list[Extent | None] = []
    rest = extent
    for length in reversed(lengths) if inner_to_outer else lengths:
        known = rest is not None and length is not None
        out.append(length if known else None)
        rest = ceildiv(rest, length) if known else None
    out.append(rest)
    return out[::-1] if inner_to_outer else out


def _move_attached(state: State, k: int, old: Sequence[int], new: int) -> tuple[Stage, ...]:
    """Stages attached to loops `old` of stage `k` move to loop `new`."""
    return tuple(
        [
            replace(s, attach=Attach(k, new, s.attach.seq))
            if s.attach is not None and s.attach.stage == k and s.attach.iter in old
            else s
            for s in state.stages
        ]
    )


def split_loop(state: State, k: int, position: int, lengths: Sequence[Length], inner_to_outer: bool) -> State:
    """Replace one loop by `len(lengths) + 1` loops."""
    parent = _splittable(state, k, position, lengths)
    stage = state.stages[k]
    extents = _split_extents(parent.extent, lengths, inner_to_outer)
    first = len(stage.vars)
    uids = tuple(range(first, first + len(extents)))
    loops = tuple(
        [
            Iter(u, f"{parent.name}.{j}"[:MAX_NAME], e, parent.kind)
            for j, (u, e) in enumerate(zip(uids, extents, strict=True))
        ]
    )
    rel = SplitRel(parent.uid, uids, tuple(lengths), inner_to_outer)
    leaf = (*stage.leaf[:position], *uids, *stage.leaf[position + 1 :])
    stages = _move_attached(state, k, (parent.uid,), uids[-1])
    return replace(state, stages=stages).with_stage(k, _grow(stages[k], loops, leaf, rel))


def _splittable(state: State, k: int, position: int, lengths: Sequence[Length]) -> Iter:
    """The loop at `position` of stage `k`, refused where it cannot be split so."""
    loop = loop_at(state, k, position, "split")
    name = f"split {state.stages[k].op.name}.{loop.name}"
    for length in lengths:
        ok = not isinstance(length, int) or length > 0
        require(ok, ScheduleError, name, "every factor must be positive", factors=tuple(lengths))
    require(loop.annotation == "none", ScheduleError, name, "the loop is annotated", annotation=loop.annotation)
    return loop


def _grow(stage: Stage, loops: tuple[Iter, ...], leaf: tuple[int, ...], rel: Relation) -> Stage:
    return replace(stage, vars=stage.vars + loops, leaf=leaf, relations=(*stage.relations, rel))


def apply_split(state: State, step: Split) -> State:
    return split_loop(state, step.stage, step.iter, step.lengths, step.inner_to_outer)


def _source_split(state: State, k: int) -> Split:
    source = state.steps[k] if 0 <= k < len(state.steps) else None
    if not isinstance(source, Split):
        raise ScheduleError(f"follow split: the source must be an earlier split, got step={k!r}")
    return source


def apply_follow_split(state: State, step: FollowSplit) -> State:
    source = _source_split(state, step.source).lengths
    n = step.n_split
    ok = 1 <= n <= len(source) + 1
    require(ok, ScheduleError, "follow split", f"n_split must be 1 to {len(source) + 1}", n_split=n)
    lengths = [*source[: n - 1], product(source[n - 1 :])]
    return split_loop(state, step.stage, step.iter, lengths, inner_to_outer=True)


def apply_follow_fused_split(state: State, step: FollowFusedSplit) -> State:
    sources = [_source_split(state, s).lengths for s in step.sources]
    for lengths in sources:
        ok = step.level < len(lengths)
        require(ok, ScheduleError, "follow fused split", f"the source has {len(lengths)} lengths", level=step.level)
    length = product([lengths[step.level] for lengths in sources])
    return split_loop(state, step.stage, step.iter, [length], inner_to_outer=step.factor)


def apply_fuse(state: State, step: Fuse) -> State:
    """Fuse consecutive loops; an empty list makes an outermost loop of extent 1 (for stages without space loops)."""
    stage = state.stages[step.stage]
    uid = len(stage.vars)
    if not step.iters:
        unit = Iter(uid, "", 1, SPECIAL)
        return state.with_stage(step.stage, replace(stage, vars=(*stage.vars, unit), leaf=(uid, *stage.leaf)))
    parts = _fusable(state, step)
    uids = tuple([part.uid for part in parts])
    stages = _move_attached(state, step.stage, uids, uid)
    first, last = step.iters[0], step.iters[-1]
    leaf = (*stage.leaf[:first], uid, *stage.leaf[last + 1 :])
    grown = _grow(stages[step.stage], (_fused(uid, parts),), leaf, FuseRel(uids, uid))
    return replace(state, stages=stages).with_stage(step.stage, grown)


def _fusable(state: State, step: Fuse) -> list[Iter]:
    """The loops that a step fuses, refused where they are not free neighbours."""
    subject = f"fuse {state.stages[step.stage].op.name}"
    run = tuple(range(step.iters[0], step.iters[0] + len(step.iters)))
    own = state.stages[step.stage].iters
    loops = [own[p].name if 0 <= p < len(own) else p for p in step.iters]
    law = f"the loops must be neighbours in order, as in {', '.join([it.name for it in own])}"
    require(step.iters == run, ScheduleError, subject, law, loops=loops)
    parts = [loop_at(state, step.stage, p, "fuse") for p in step.iters]
    for part in parts:
        ok = part.annotation == "none"
        require(ok, ScheduleError, subject, "the loop is annotated", loop=part.name, annotation=part.annotation)
    for part in parts[:-1]:
        ok = not state.attached_to(step.stage, part.uid)
        require(ok, ScheduleError, subject, "only the last loop may have stages attached to it", loop=part.name)
    return parts


def _fused(uid: int, parts: Sequence[Iter]) -> Iter:
    """The loop `uid` that counts through `parts`."""
    kinds = {part.kind for part in parts}
    extents = [part.extent for part in parts]
    name = "".join(f"{part.name}@" for part in parts)[:MAX_NAME]
    extent = None if any(e is None for e in extents) else product(extents)
    return Iter(uid, name, extent, kinds.pop() if len(kinds) == 1 else MIXED)


def apply_reorder(state: State, step: Reorder) -> State:
    stage = state.stages[step.stage]
    ok = sorted(step.order) == list(range(len(stage.leaf)))
    law = f"every one of the {len(stage.leaf)} loops must be named once"
    require(ok, ScheduleError, f"reorder {stage.op.name}", law, order=step.order)
    return state.with_stage(step.stage, replace(stage, leaf=tuple([stage.leaf[p] for p in step.order])))


def _set_iter(stage: Stage, it: Iter) -> Stage:
    return replace(stage, vars=(*stage.vars[: it.uid], it, *stage.vars[it.uid + 1 :]))


def apply_annotate(state: State, step: Annotate) -> State:
    law = f"the annotation is unknown, known are {', '.join(KNOWN_ANNOTATIONS)}"
    known = step.annotation in KNOWN_ANNOTATIONS
    require(known, ScheduleError, f"annotate {state.stages[step.stage].op.name}", law, got=step.annotation)
    it = loop_at(state, step.stage, step.iter, step.annotation)
    subject = f"{step.annotation} {state.stages[step.stage].op.name}.{it.name}"
    require(it.annotation == "none", ScheduleError, subject, "the loop is annotated already", annotation=it.annotation)
    ok = it.kind != REDUCE or step.annotation in REDUCTION_ANNOTATIONS
    require(ok, ScheduleError, subject, "the turns of a reduction loop depend on each other", loop=it.name)
    return state.with_stage(step.stage, _set_iter(state.stages[step.stage], replace(it, annotation=step.annotation)))


def apply_pragma(state: State, step: Pragma | FreePragma) -> State:
    stage = state.stages[step.stage]
    name, _, value = step.text.partition("$")
    if isinstance(step, FreePragma):
        return state.with_stage(step.stage, replace(stage, pragmas=(*stage.pragmas, (name, value))))
    ok = name == AUTO_UNROLL and value.isascii() and value.isdigit() and len(value) < 10
    require(ok, ScheduleError, f"pragma {stage.op.name}", f"known is {AUTO_UNROLL}$N", text=step.text)
    return state.with_stage(step.stage, replace(stage, auto_unroll_max_step=int(value)))


def apply_storage_align(state: State, step: StorageAlign) -> State:
    it = loop_at(state, step.stage, step.iter, "storage_align")
    stage = state.stages[step.stage]
    ok = it.uid < len(stage.op.axis)
    require(ok, ScheduleError, f"storage_align {stage.op.name}", "needs an unsplit spatial axis", loop=it.name)
    integers = isinstance(step.factor, int) and isinstance(step.offset, int)
    ok = integers and step.factor > 0 and step.offset >= 0
    law = "needs a positive factor and an offset of at least 0"
    require(ok, ScheduleError, f"storage_align {stage.op.name}", law, factor=step.factor, offset=step.offset)
    return state.with_stage(step.stage, replace(stage, storage_align=(it.uid, step.factor, step.offset)))


def apply_storage_order(state: State, step: StorageOrder) -> State:
    stage = state.stages[step.stage]
    subject = f"storage_order {stage.op.name}"
    own = not stage.is_placeholder and not state.access.is_output(step.stage)
    require(own, ScheduleError, subject, "arguments of the program are stored as their caller does")
    ok = sorted(step.order) == list(range(len(stage.op.axis)))
    require(
        ok, ScheduleError, subject, f"every axis from 0 to {len(stage.op.axis) - 1} must be there once", got=step.order
    )
    return state.with_stage(step.stage, replace(stage, storage_order=step.order))


def apply_swizzled(state: State, step: Swizzled) -> State:
    """Whether it is in shared memory, and how long its rows are, is looked at when it is lowered."""
    stage = state.stages[step.stage]
    subject = f"swizzle {stage.op.name}"
    own = not stage.is_placeholder and not state.access.is_output(step.stage)
    require(own, ScheduleError, subject, "arguments of the program are stored as their caller does")
    require(not stage.swizzled, ScheduleError, subject, "it is swizzled already")
    return state.with_stage(step.stage, replace(stage, swizzled=True))
