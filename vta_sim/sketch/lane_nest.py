"""A schedule as the compiler sees it, for many programs at once: the host's loops, and the pieces that become calls.

    bounds (extents are lanes)      ->      threads, and a tree of LaneLoop (loops of the host) and Pieces

`compiler/host_nest.py` takes a lowered nest apart; this does the same without lowering anything, from the bounds of a
state, whose loops have one extent a lane.  A loop of one iteration, which lowering drops, is a loop here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from te_lite.bounds.bounds import Bounds
from te_lite.expr.lanes import product
from te_lite.schedule.state import INLINED, REDUCE, ROOT, Iter, State

LoopKey = tuple[int, int]
"""A loop: the number of its stage, and its own."""


class Kind(Enum):
    """What a piece is; windows are folded, by sums or comparisons, into accumulators that were cleared."""

    LOAD = "load"
    CLEAR = "clear"
    MULTIPLY = "multiply"
    ALU = "alu"
    FOLD = "fold"
    STORE = "store"


@dataclass(frozen=True, eq=False)
class Piece:
    """One statement of stage `stage` with the loops around it alone, outermost first; `path` are those outside."""

    kind: Kind
    stage: int
    loops: tuple[Iter, ...]
    path: tuple[LoopKey, ...]


@dataclass(frozen=True, eq=False)
class LaneLoop:
    """A loop of the host."""

    key: LoopKey
    extent: Any
    body: tuple[Node, ...]


Node = Piece | LaneLoop


@dataclass(frozen=True, eq=False)
class LaneNest:
    """The whole: `threads` is the number of virtual threads (an int or lanes)."""

    bounds: Bounds
    threads: Any
    body: tuple[Node, ...]

    @property
    def pieces(self) -> list[Piece]:
        """All pieces in the order of the program."""
        return list(_pieces(self.body))


def _pieces(nodes: tuple[Node, ...]) -> Iterator[Piece]:
    for node in nodes:
        if isinstance(node, LaneLoop):
            yield from _pieces(node.body)
        else:
            yield node


def loops_of(nodes: tuple[Node, ...]) -> Iterator[tuple[LoopKey, Any]]:
    """The loops of the host, with their extents."""
    for node in nodes:
        if isinstance(node, LaneLoop):
            yield node.key, node.extent
            yield from loops_of(node.body)


def without(nodes: tuple[Node, ...], single: Collection[LoopKey]) -> tuple[Node, ...]:
    """A nest without the loops `single`, which have one iteration."""
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, LaneLoop):
            body = without(node.body, single)
            out += body if node.key in single else [LaneLoop(node.key, node.extent, body)]
        else:
            out.append(node)
    return tuple(out)


def lane_nest(bounds: Bounds) -> LaneNest:
    """The nest of programs that have one root stage, their output."""
    state = bounds.state
    (root,) = [k for k, s in enumerate(state.stages) if s.where == ROOT and not s.is_placeholder]
    threads = [it for it in state.stages[root].iters if it.annotation == "vthread"]
    path = tuple([(root, it.uid) for it in threads])
    return LaneNest(bounds, product([it.extent for it in threads]), tuple(_nest(state, root, path)))


def _nest(state: State, k: int, path: tuple[LoopKey, ...]) -> list[Node]:
    """The nest of stage `k`, from the outermost loop that is no virtual thread; as `te_lite.lowering.lower_nest` does
    it."""
    stage = state.stages[k]
    loops = [it for it in stage.iters if it.annotation != "vthread"]
    reduces = [p for p, it in enumerate(loops) if it.kind == REDUCE]
    return _from(state, k, loops, 0, min(reduces, default=-1), path)


def _from(
    state: State, k: int, loops: list[Iter], p: int, first: int, path: tuple[LoopKey, ...]
) -> list[Node]:  # fmt: skip
    """What is inside the loops of stage `k` before position `p`; the sums are cleared before loop `first`."""
    clear = [Piece(Kind.CLEAR, k, tuple([it for it in loops[p:] if it.kind != REDUCE]), path)] if p == first else []
    if not any(state.attached_to(k, it.uid) for it in loops[p:]) and not (p < first):
        return [*clear, Piece(kind_of(state, k), k, tuple(loops[p:]), path)]
    # what is computed at a loop stands in its body before the loops inside it, in the order of stages
    inside = (*path, (k, loops[p].uid))
    children = [child for _, child in _attached(state, k, loops[p].uid)]
    body = [node for child in children for node in _nest(state, child, inside)]
    body += _from(state, k, loops, p + 1, first, inside)
    return [*clear, LaneLoop((k, loops[p].uid), loops[p].extent, tuple(body))]


def _attached(state: State, k: int, uid: int) -> list[tuple[int, int]]:
    """The stages computed at a loop, in the order of the program."""
    return [(j, j) for j in sorted(state.attached_to(k, uid)) if state.stages[j].where != INLINED]


def is_load(state: State, k: int) -> bool:
    """Whether stage `k` is a copy of an input of the program, padded or not."""
    return any(state.stages[p].is_placeholder for p in state.access.read_from[k])


def kind_of(state: State, k: int) -> Kind:
    """What the statement of stage `k` is."""
    stage = state.stages[k]
    if state.access.is_output(k):
        return Kind.STORE
    if is_load(state, k):
        return Kind.LOAD
    if not stage.op.reduce_axis:
        return Kind.ALU
    return Kind.MULTIPLY if any(it.annotation == "tensorize" for it in stage.iters) else Kind.FOLD


def home(bounds: Bounds, k: int) -> tuple[LoopKey, ...]:
    """The loops around the tile of stage `k`."""
    out: list[LoopKey] = []
    attach = bounds.state.stages[k].attach
    while attach is not None:
        stage = bounds.state.stages[attach.stage]
        loops = [it.uid for it in stage.iters]
        out = [(attach.stage, uid) for uid in loops[: loops.index(attach.iter) + 1]] + out
        attach = stage.attach
    return tuple(out)
