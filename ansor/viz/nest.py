"""The loop nest of a state as a tree: stages, their loops, and what each statement reads and where that is kept."""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.bounds.index_span import index_span
from te_lite.bounds.loop_scope import scope_of
from te_lite.bounds.reads import Read, reads_by_producer
from te_lite.computation.text import op_lines
from te_lite.expr.storage import storage_class
from te_lite.printing.state_text import marks_of
from te_lite.schedule.state import INLINED, REDUCE, ROOT, State


@dataclass(frozen=True)
class ReadFact:
    """A stage that a statement reads, the class of its storage, and how much of it is read while the loops of the
    statement's stage run (hulls; None: not known, as lengths are undecided)."""

    name: str
    storage: str
    extents: tuple[int, ...] | None


@dataclass(frozen=True)
class Statement:
    """What is computed in the innermost loop: the lines that define it, and what it reads."""

    lines: tuple[str, ...]
    reads: tuple[ReadFact, ...]


@dataclass(frozen=True)
class LoopBox:
    """A loop, its iterations (None: undecided), and what is in it, in order."""

    name: str
    turns: int | None
    annotation: str
    reduces: bool
    inside: tuple[Node, ...]


@dataclass(frozen=True)
class StageBox:
    """A stage, the class of its storage, what is computed at once of each axis, and marks as states print them."""

    name: str
    storage: str
    extents: tuple[int, ...] | None
    marks: tuple[str, ...]
    inside: tuple[Node, ...]


Node = StageBox | LoopBox | Statement


def nest_of(state: State) -> tuple[StageBox, ...]:
    """The stages at root with all that is computed in them; loops of one iteration are left out, inlined stages are
    gone.

    Raises LowerError for a state without undecided lengths that has no loop nest.
    """
    return _roots(_Tree(state, infer_bounds(state) if state.concrete else None))


def open_nest(state: State) -> tuple[StageBox, ...]:
    """As `nest_of` without a look at bounds: loops have the iterations that the steps alone say."""
    return _roots(_Tree(state, None))


def _roots(tree: _Tree) -> tuple[StageBox, ...]:
    stages = tree.state.stages
    return tuple([tree.stage(k) for k, s in enumerate(stages) if s.where == ROOT and not s.is_placeholder])


class _Tree:
    def __init__(self, state: State, bounds: Bounds | None) -> None:
        self.state, self.bounds = state if bounds is None else bounds.state, bounds
        inlined = frozenset([k for k, s in enumerate(state.stages) if s.where == INLINED])
        self.read_by = reads_by_producer(state.ops, inlined)

    def stage(self, k: int) -> StageBox:
        stage = self.state.stages[k]
        return StageBox(stage.op.name, self._storage(k), self._kept(k), tuple(marks_of(stage)), self._inside(k, 0))

    def _inside(self, k: int, place: int) -> tuple[Node, ...]:
        """What is in the loops of a stage from number `place` on."""
        stage = self.state.stages[k]
        if place == len(stage.leaf):
            return (self._statement(k),)
        loop = stage.iters[place]
        attached = [c for c in self.state.attached_to(k, loop.uid) if self.state.stages[c].where != INLINED]
        inside = (*map(self.stage, attached), *self._inside(k, place + 1))
        if isinstance(loop.extent, int) and loop.extent == 1:
            return inside
        turns = None if loop.extent is None else loop.length
        return (LoopBox(loop.name, turns, loop.annotation, loop.kind == REDUCE, inside),)

    def _statement(self, k: int) -> Statement:
        found: dict[ReadFact, None] = {}
        for producer, reads in enumerate(self.read_by):
            for read in [r for r in reads if r.reader == k]:
                extents = self._read(k, producer, read)
                found[ReadFact(self.state.stages[producer].op.name, self._storage(producer), extents)] = None
        return Statement(tuple(op_lines(self.state.stages[k].op)), tuple(found))

    def _read(self, k: int, producer: int, read: Read) -> tuple[int, ...] | None:
        kept = self._kept(producer)
        if self.bounds is None or kept is None:
            return None
        axes = [region.extent for region in self.bounds.regions[k]]
        return tuple([int(index_span(form, axes, size)) for form, size in zip(read.forms, kept, strict=True)])

    def _storage(self, k: int) -> str:
        scope = scope_of(self.state.stages, k) if self.bounds is None else self.bounds.scopes[k]
        return storage_class(scope)

    def _kept(self, k: int) -> tuple[int, ...] | None:
        """How much of each axis is computed at once."""
        op = self.state.stages[k].op
        if self.bounds is None or self.state.stages[k].is_placeholder:
            return tuple(op.shape) if self.state.stages[k].is_placeholder else None
        return tuple([region.extent for region in self.bounds.regions[k][: len(op.axis)]])
