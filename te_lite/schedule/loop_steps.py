"""Steps on the loops of a stage: split, and what follows splits, fuse, reorder; annotations and pragmas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..errors import RecordError, ScheduleError, require
from ..expr.lanes import ceildiv, product
from .state import MAX_NAME, MIXED, REDUCE, SPECIAL, Attach, Extent, FuseRel, Iter, Relation, SplitRel, Stage, State
from .step import Length, Step, Words, integer, integers


def loop_at(state: State, k: int, position: int, what: str) -> Iter:
    """The loop at `position` of stage `k`, refused with the range when there is none."""
    stage = state.stages[k]
    ok = 0 <= position < len(stage.leaf)
    require(ok, ScheduleError, f"{what} {stage.op.name}", f"has {len(stage.leaf)} loops", loop=position)
    return stage.vars[stage.leaf[position]]


class Splitting(Step):
    """A step that splits one loop."""

    __slots__ = ()
    iter: int

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        """Lengths are positive; TVM notes extents that it does not know as null."""
        if name == "lengths":
            return integers(value, cls.where(name), minimum=1)
        return 0 if name == "extent" and value is None else super().read(name, value)

    def python(self, words: Words, before: State) -> None:
        """One call a length, innermost first (or outermost first for nparts)."""
        k = self.stage
        stage = words.state.stages[k]
        rel = stage.relations[-1]
        assert isinstance(rel, SplitRel)
        lengths, inner_to_outer, children = rel.lengths, rel.inner_to_outer, rel.children
        rest = words.loop(before, k, self.iter)
        if not lengths:
            words.loops[stage.op.key, children[0]] = rest
        word = "factor" if inner_to_outer else "nparts"
        order: Iterable[int] = range(len(lengths) - 1, -1, -1) if inner_to_outer else range(len(lengths))
        for done, j in enumerate(order):
            last = done == len(lengths) - 1
            own = words.new_loop(k, children[j + 1] if inner_to_outer else children[j])
            if last:
                other = words.new_loop(k, children[0] if inner_to_outer else children[-1])
            else:
                other = words.fresh(f"{rest}_{'o' if inner_to_outer else 'i'}")
            pair = f"{other}, {own}" if inner_to_outer else f"{own}, {other}"
            words.call(k, f"split({rest}, {word}={product([lengths[j]])})", pair)
            rest = other


@dataclass(frozen=True, slots=True)
class Split(Splitting):
    """`inner_to_outer`: lengths are the loops 1..n and loop 0 is the rest; else the loops 0..n-1.

    `extent` is advisory (0 = unknown): replay splits the real iterator and guards the tail.
    """

    tag: ClassVar[str] = "SP"
    stage: int
    iter: int
    extent: int
    lengths: tuple[Length, ...] = field()
    inner_to_outer: bool = True

    def effect(self, state: State) -> State:
        return split_loop(state, self.stage, self.iter, self.lengths, self.inner_to_outer)


@dataclass(frozen=True, slots=True)
class FollowSplit(Splitting):
    """Split like the `Split` at position `source` of the step list, into `n_split` + 1 loops."""

    tag: ClassVar[str] = "FSP"
    follows: ClassVar[tuple[str, ...]] = ("source",)
    stage: int
    iter: int
    source: int
    n_split: int

    def effect(self, state: State) -> State:
        source = _source_split(state, self.source).lengths
        n = self.n_split
        ok = 1 <= n <= len(source) + 1
        require(ok, ScheduleError, "follow split", f"n_split must be 1 to {len(source) + 1}", n_split=n)
        lengths = [*source[: n - 1], product(source[n - 1 :])]
        return split_loop(state, self.stage, self.iter, lengths, inner_to_outer=True)


@dataclass(frozen=True, slots=True)
class FollowFusedSplit(Splitting):
    """Split by the product over `sources` of their length number `level`."""

    tag: ClassVar[str] = "FFSP"
    follows: ClassVar[tuple[str, ...]] = ("sources",)
    stage: int
    iter: int
    sources: tuple[int, ...]
    level: int
    factor: bool

    def effect(self, state: State) -> State:
        sources = [_source_split(state, s).lengths for s in self.sources]
        for lengths in sources:
            ok = self.level < len(lengths)
            require(ok, ScheduleError, "follow fused split", f"the source has {len(lengths)} lengths", level=self.level)
        length = product([lengths[self.level] for lengths in sources])
        return split_loop(state, self.stage, self.iter, [length], inner_to_outer=self.factor)


def _source_split(state: State, k: int) -> Split:
    source = state.steps[k] if 0 <= k < len(state.steps) else None
    if not isinstance(source, Split):
        raise ScheduleError(f"follow split: the source must be an earlier split, got step={k!r}")
    return source


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


def _grow(stage: Stage, loops: tuple[Iter, ...], leaf: tuple[int, ...], rel: Relation) -> Stage:
    return replace(stage, vars=stage.vars + loops, leaf=leaf, relations=(*stage.relations, rel))


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Make one loop of neighbouring ones."""

    tag: ClassVar[str] = "FU"
    stage: int
    iters: tuple[int, ...]

    def effect(self, state: State) -> State:
        """Fuse consecutive loops; an empty list makes an outermost loop of extent 1 (where there are none)."""
        stage = state.stages[self.stage]
        uid = len(stage.vars)
        if not self.iters:
            unit = Iter(uid, "", 1, SPECIAL)
            return state.with_stage(self.stage, replace(stage, vars=(*stage.vars, unit), leaf=(uid, *stage.leaf)))
        parts = _fusable(state, self)
        uids = tuple([part.uid for part in parts])
        stages = _move_attached(state, self.stage, uids, uid)
        first, last = self.iters[0], self.iters[-1]
        leaf = (*stage.leaf[:first], uid, *stage.leaf[last + 1 :])
        grown = _grow(stages[self.stage], (_fused(uid, parts),), leaf, FuseRel(uids, uid))
        return replace(state, stages=stages).with_stage(self.stage, grown)

    def python(self, words: Words, before: State) -> None:
        parts = [words.loop(before, self.stage, p) for p in self.iters]
        name = words.new_loop(self.stage, len(words.state.stages[self.stage].vars) - 1)
        words.call(self.stage, f"fuse({', '.join(parts)})", name)


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
        ok = part is parts[-1] or not state.attached_to(step.stage, part.uid)
        require(ok, ScheduleError, subject, "only the last loop may have stages attached to it", loop=part.name)
    return parts


def _fused(uid: int, parts: Sequence[Iter]) -> Iter:
    """The loop `uid` that counts through `parts`."""
    kinds = {part.kind for part in parts}
    extents = [part.extent for part in parts]
    name = "".join(f"{part.name}@" for part in parts)[:MAX_NAME]
    extent = None if any(e is None for e in extents) else product(extents)
    return Iter(uid, name, extent, kinds.pop() if len(kinds) == 1 else MIXED)


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """The loops of a stage in another order; `order` lists their positions."""

    tag: ClassVar[str] = "RE"
    stage: int
    order: tuple[int, ...]

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        ok = sorted(self.order) == list(range(len(stage.leaf)))
        law = f"every one of the {len(stage.leaf)} loops must be named once"
        require(ok, ScheduleError, f"reorder {stage.op.name}", law, order=self.order)
        return state.with_stage(self.stage, replace(stage, leaf=tuple([stage.leaf[p] for p in self.order])))

    def python(self, words: Words, before: State) -> None:
        order = [words.loop(words.state, self.stage, p) for p in range(len(self.order))]
        words.call(self.stage, f"reorder({', '.join(order)})")


# ---------------------------------------------------------------------------------------------------------------- marks


ANNOTATIONS = (
    "none", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y",
    "blockIdx.z", "threadIdx.z", "tensorize",
)  # fmt: skip
KNOWN_ANNOTATIONS = ANNOTATIONS[1:]
"""Those that a step may give: a loop without one is never annotated with "none"."""
AUTO_UNROLL = "auto_unroll_max_step"
REDUCTION_ANNOTATIONS = ("none", "unroll", "threadIdx.x", "threadIdx.y", "threadIdx.z", "tensorize")


@dataclass(frozen=True, slots=True)
class Annotate(Step):
    """Mark a loop: parallel, vectorize, unroll, or a thread axis."""

    tag: ClassVar[str] = "AN"
    stage: int
    iter: int
    annotation: str

    def effect(self, state: State) -> State:
        law = f"the annotation is unknown, known are {', '.join(KNOWN_ANNOTATIONS)}"
        known = self.annotation in KNOWN_ANNOTATIONS
        require(known, ScheduleError, f"annotate {state.stages[self.stage].op.name}", law, got=self.annotation)
        it = loop_at(state, self.stage, self.iter, self.annotation)
        subject = f"{self.annotation} {state.stages[self.stage].op.name}.{it.name}"
        free = it.annotation == "none"
        require(free, ScheduleError, subject, "the loop is annotated already", annotation=it.annotation)
        ok = it.kind != REDUCE or self.annotation in REDUCTION_ANNOTATIONS
        require(ok, ScheduleError, subject, "the turns of a reduction loop depend on each other", loop=it.name)
        annotated = replace(it, annotation=self.annotation)
        return state.with_stage(self.stage, _set_iter(state.stages[self.stage], annotated))

    def python(self, words: Words, before: State) -> None:
        loop = words.loop(before, self.stage, self.iter)
        plain = self.annotation in ("vectorize", "parallel", "unroll", "tensorize")
        words.call(
            self.stage, f"{self.annotation}({loop})" if plain else f'bind({loop}, te.thread_axis("{self.annotation}"))'
        )

    def written(self, name: str) -> Any:
        return ANNOTATIONS.index(self.annotation) if name == "annotation" else getattr(self, name)

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        where = cls.where(name)
        number = integer(value, where)
        if name != "annotation":
            return number
        require(0 < number < len(ANNOTATIONS), RecordError, where, "unknown annotation", got=number)
        return ANNOTATIONS[number]


def _set_iter(stage: Stage, it: Iter) -> Stage:
    return replace(stage, vars=(*stage.vars[: it.uid], it, *stage.vars[it.uid + 1 :]))


@dataclass(frozen=True, slots=True)
class Pragma(Step):
    """A pragma of TVM on a loop: `auto_unroll_max_step$16`, `tensor_core`."""

    tag: ClassVar[str] = "PR"
    stage: int
    iter: int
    text: str

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        name, _, value = self.text.partition("$")
        ok = name == AUTO_UNROLL and value.isascii() and value.isdigit() and len(value) < 10
        require(ok, ScheduleError, f"pragma {stage.op.name}", f"known is {AUTO_UNROLL}$N", text=self.text)
        return state.with_stage(self.stage, replace(stage, auto_unroll_max_step=int(value)))

    def python(self, words: Words, before: State) -> None:
        """Nothing on a loop that is not there."""
        if self.iter < len(before.stages[self.stage].leaf):
            loop = words.loop(before, self.stage, self.iter)
            words.call(self.stage, f'pragma({loop}, "auto_unroll_max_step", {self.text.partition("$")[2]})')
            words.call(self.stage, f'pragma({loop}, "unroll_explicit", True)')


@dataclass(frozen=True, slots=True)
class FreePragma(Step):
    """A pragma TVM's records do not know (`unroll_explicit$1`, ...); a letter of our own."""

    tag: ClassVar[str] = "PRX"
    stage: int
    iter: int
    text: str

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        name, _, value = self.text.partition("$")
        return state.with_stage(self.stage, replace(stage, pragmas=(*stage.pragmas, (name, value))))

    def python(self, words: Words, before: State) -> None:
        """Nothing on a loop that is not there."""
        if self.iter < len(before.stages[self.stage].leaf):
            name, dollar, value = self.text.partition("$")
            said = [words.loop(before, self.stage, self.iter), json.dumps(name)]
            words.call(self.stage, f"pragma({', '.join(said + ([json.dumps(value)] if dollar else []))})")
