"""The loops around the statement of every stage, as structure only: no extent is looked at.

    loops of a stage = loops of the stages it is computed in, outermost first, then its own

Of the loops of other stages, those that run while the stage is computed once (`loop_scope.py`) are left out.  A
fused loop that is not split again stands as its parts, each with the annotation, so that a program with fused loops and
one without have the same nest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..schedule.loop_value import root_axes
from ..schedule.state import INLINED, FuseRel, SplitRel, Stage
from .bounds import Bounds
from .loop_scope import kernel_of, standing_loops


@dataclass(frozen=True, slots=True)
class Loop:
    """Iterator `uid` of stage `stage`.

    `place` is the position of the loop that it is (part of) among the `count` current loops of its stage.  `axis` is
    the only axis of the row it was made from, -1 when there are several; then `fused` is the iterator in which they
    were fused.  Both are -1 for a loop of another stage.
    """

    stage: int
    uid: int
    place: int
    count: int
    tag: str
    reduce: bool
    axis: int
    fused: int = -1


@dataclass(frozen=True, slots=True)
class Part:
    """Iterator `uid`, which makes up a digit of a fused iterator and belongs to `axis`."""

    uid: int
    axis: int


@dataclass(frozen=True)
class Nest:
    """The loops around the statement of `stage`; the first `around` of them belong to other stages.

    `root` is the stage whose nest contains it.  `parts` has the digits, innermost first, of the iterators that were
    fused and split again.
    """

    stage: int
    root: int
    loops: tuple[Loop, ...]
    around: int
    parts: dict[int, tuple[Part, ...]]

    def depth(self, stages: frozenset[tuple[int, int]]) -> int:
        """How many of the outermost loops are among the iterators `(stage, uid)`."""
        count = 0
        while count < len(self.loops) and (self.loops[count].stage, self.loops[count].uid) in stages:
            count += 1
        return count


def nests_of(bounds: Bounds) -> dict[int, Nest]:
    """The nest of every stage that computes, by stage."""
    state = bounds.state
    own = {k: own_loops(k, s) for k, s in enumerate(state.stages) if not s.is_placeholder and s.where != INLINED}
    out = {}
    for k in own:
        around = [replace(x, axis=-1, fused=-1) for x in _around(bounds, k, own)]
        stage = state.stages[k]
        fused = {loop.fused for loop in own[k] if loop.fused >= 0}
        parts = {uid: _parts(stage, uid) for uid in fused}
        out[k] = Nest(k, kernel_of(state, k), (*around, *own[k]), len(around), parts)
    return out


def own_loops(k: int, stage: Stage) -> tuple[Loop, ...]:
    """The loops of stage k, fused ones in parts."""
    fuses = {rel.fused: rel for rel in stage.relations if isinstance(rel, FuseRel)}
    out = []
    for place, leaf in enumerate(stage.leaf):
        for uid in _unfused(leaf, fuses):
            roots = root_axes(stage, uid) & set(range(stage.num_roots))
            axis = min(roots) if len(roots) == 1 else -1
            reduce = bool(roots) and min(roots) >= len(stage.op.axis)
            fused = _fused_origin(stage, uid) if len(roots) > 1 else -1
            out.append(Loop(k, uid, place, len(stage.leaf), stage.vars[leaf].annotation, reduce, axis, fused))
    return tuple(out)


def _unfused(uid: int, fuses: dict[int, FuseRel]) -> list[int]:
    if uid not in fuses:
        return [uid]
    return [u for part in fuses[uid].parts for u in _unfused(part, fuses)]


def _fused_origin(stage: Stage, uid: int) -> int:
    """The nearest fused iterator that `uid` was split from."""
    for rel in reversed(stage.relations):
        match rel:
            case SplitRel(parent=parent, children=children) if uid in children:
                uid = parent
            case FuseRel(fused=fused) if fused == uid:
                return uid
    return -1


def _parts(stage: Stage, fused: int) -> tuple[Part, ...]:
    fuses = {rel.fused: rel for rel in stage.relations if isinstance(rel, FuseRel)}
    digits = [(uid, root_axes(stage, uid)) for uid in reversed(_unfused(fused, fuses))]
    return tuple([Part(uid, min(roots)) for uid, roots in digits if min(roots) < stage.num_roots])


def _around(bounds: Bounds, k: int, own: dict[int, tuple[Loop, ...]]) -> list[Loop]:
    """The invariant loops around stage k, outermost first."""
    standing = standing_loops(bounds.state.stages, bounds.scopes, k)
    outside_in = reversed(dict.fromkeys([stage for stage, _ in standing]))
    leaf = {stage: bounds.state.stages[stage].leaf for stage, _ in standing}
    return [loop for stage in outside_in for loop in own[stage] if (stage, leaf[stage][loop.place]) in standing]
