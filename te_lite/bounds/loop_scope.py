"""Which loops around a stage vary, and which are invariant, while the stage is computed once.

It depends on who shares the storage that the stage fills:

    storage   is shared by                    blocks      threads     virtual threads   other loops
    global    the whole program               vary        vary        vary              invariant
    shared    the threads of a block          invariant   vary        vary              invariant
    fragment  a warp: threads along x         invariant   x varies    invariant         invariant
    local     nobody                          invariant   invariant   invariant         invariant

The iterations of a loop that varies fill the storage together: the stage is computed once for all of them, and covers
what all of them read.  In every iteration of an invariant loop, the stage is computed anew.  The scope of a
stage is what its schedule asked for, or follows from the threads around it.

A stage in local storage may bind loops of its own to threads, which then share its points out: each computes some, and
keeps them to itself.  Such threads vary, like those that share a storage, and each may read only what it computed.

Bound inference, lowering, features and analytical models all ask here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from math import prod
from typing import Any

from ..expr.lanes import product, smaller
from ..expr.storage import scope_rank, storage_class
from ..schedule.state import ATTACHED, MIXED, REDUCE, SPATIAL, Attach, FuseRel, Iter, SplitRel, Stage, State

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
WARP, LANES = "threadIdx.x", 32
"""The axis of the threads that keep fragments together, and how many of them, a warp, do."""
THREAD_RANK = {**dict.fromkeys(BLOCKS, 0), **dict.fromkeys(THREADS, 1), WARP: 2, "vthread": 1}
"""A loop is invariant for storage that is more private than this."""

LoopKey = tuple[int, int]
"""A loop as `(stage, uid)`."""


def enclosing_loops(stages: Sequence[Stage], k: int) -> Iterator[LoopKey]:
    """The loops that stage k is computed in: nearest stage first, the loops of each from the outside in."""
    attach = stages[k].attach
    while attach is not None:
        for uid in _loops_to(stages, attach):
            yield attach.stage, uid
        attach = stages[attach.stage].attach


def _loops_to(stages: Sequence[Stage], attach: Attach) -> tuple[int, ...]:
    """The loops of a stage down to the one at which another stage is computed."""
    target = stages[attach.stage]
    return target.leaf[: target.position(attach.iter) + 1]


def kernel_of(state: State, k: int) -> int:
    """The root stage in whose loops stage k is computed."""
    attach = state.stages[k].attach
    return k if attach is None else kernel_of(state, attach.stage)


def scope_of(stages: Sequence[Stage], k: int) -> str:
    """Where stage k is kept: the scope that was asked for, else by the threads around it."""
    asked = stages[k].op.scope
    if asked:
        return asked
    tags = [stages[s].vars[uid].annotation for s, uid in enclosing_loops(stages, k)]
    rank = max([THREAD_RANK.get(tag, -1) for tag in tags], default=-1)
    return {-1: "global", 0: "shared"}.get(rank, "local")


def privacy(stage: Stage, scope: str) -> int:
    """The rank of a stage's storage; that of a stage at root is there for the whole program, whatever its scope."""
    return scope_rank(scope) if stage.where == ATTACHED else 0


def stands(rank: int, tag: str) -> bool:
    """Whether a loop annotated `tag` is invariant for storage of this rank."""
    return tag not in THREAD_RANK or rank > THREAD_RANK[tag]


def shared_out(stage: Stage, scope: str) -> frozenset[str]:
    """The thread axes over which a stage in local storage shares its points out: loops of its own are bound to them."""
    if storage_class(scope) != "local" or stage.where != ATTACHED:
        return frozenset()
    return frozenset([it.annotation for it in stage.iters if it.kind == SPATIAL and it.annotation in THREADS])


def standing_loops(stages: Sequence[Stage], scopes: Sequence[str], k: int) -> list[LoopKey]:
    """The loops around stage k that are invariant while it is computed, in the order of `enclosing_loops`.

    Their iterations share neither its storage nor that of a stage in between: what is computed once for several threads
    is so with everything that is computed inside of it.
    """
    found: list[LoopKey] = []
    rank, attach = privacy(stages[k], scopes[k]), stages[k].attach
    while attach is not None:
        target = stages[attach.stage]
        loops = _loops_to(stages, attach)
        found += [(attach.stage, uid) for uid in loops if stands(rank, target.vars[uid].annotation)]
        rank, attach = min(rank, privacy(target, scopes[attach.stage])), target.attach
    return found


def across_threads(stage: Stage) -> bool:
    """Whether threads fold their parts of a reduction together: all along an axis, or the lanes that share a row."""
    return any(it.kind == REDUCE and it.annotation in THREADS for it in stage.iters) or bool(lanes_of_rows(stage))


def lanes_of_rows(stage: Stage) -> int:
    """How many neighbouring lanes fold a row of fragments together; 0 where none do.

    Their loop is fused of spatial loops and, innermost, reduction loops, and bound to the lanes of a warp.  The rows
    are fragments: of other storage one thread alone stores what several have folded together.
    """
    if storage_class(stage.op.scope) != "fragment":
        return 0
    fused = {rel.fused: rel for rel in stage.relations if isinstance(rel, FuseRel)}
    for it in stage.iters:
        if it.kind == MIXED and it.annotation == WARP and it.uid in fused:
            rel = fused[it.uid]
            inner = list(takewhile(lambda uid: stage.vars[uid].kind == REDUCE, reversed(rel.parts)))
            outer = [stage.vars[uid].kind for uid in rel.parts[: len(rel.parts) - len(inner)]]
            return prod([stage.vars[uid].length for uid in inner]) if all(kind == SPATIAL for kind in outer) else 0
    return 0


def thread_ranks(stage: Stage, tags: Collection[str]) -> dict[int, int]:
    """The rank of the thread axis among `tags` that each iterator of the stage takes part in, by uid."""
    ranks = {it.uid: THREAD_RANK[it.annotation] for it in stage.iters if it.annotation in tags}
    for rel in reversed(stage.relations):
        if isinstance(rel, FuseRel) and rel.fused in ranks:
            ranks.update(dict.fromkeys(rel.parts, ranks[rel.fused]))
        elif isinstance(rel, SplitRel):
            over = [ranks[c] for c in rel.children if c in ranks]
            if over:
                ranks[rel.parent] = max(over)
    return ranks


def is_sequential(it: Iter) -> bool:
    """Whether the iterations of a loop come one after the other."""
    return it.annotation in ("none", "unroll")


def tile_loops(state: State, k: int) -> tuple[int, ...]:
    """The loops, outermost first, whose iterations each use one tile of stage k: uids of the stage it is computed in.

    They end with the loop that it is computed at.  Of reduction loops, they begin below the first loop outside that is
    no plain reduction loop or at which anything else is computed.
    """
    attach = state.stages[k].attach
    assert attach is not None
    target = state.stages[attach.stage]
    found = [attach.iter]
    outside = target.iters[: target.position(attach.iter)] if target.vars[attach.iter].kind == REDUCE else ()
    for it in reversed(outside):
        if it.kind != REDUCE or not is_sequential(it) or state.attached_to(attach.stage, it.uid):
            break
        found.append(it.uid)
    return tuple(reversed(found))


def tile_count(state: State, k: int) -> Any:
    """The tiles that stage k has storage for (an int or lanes): those that it asks for, but no more than iterations."""
    stage = state.stages[k]
    if not stage.double_buffer or stage.attach is None:
        return 1
    loops = state.stages[stage.attach.stage].vars
    iterations: Any = product([loops[uid].extent for uid in tile_loops(state, k)])
    return smaller(stage.tiles, iterations)
