"""Steps that give a stage other axes: reindex, join_axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from te_lite.computation.derive import cache_name
from te_lite.computation.tensor import Tensor
from te_lite.errors import ScheduleError, require
from te_lite.expr.storage import SCOPES
from te_lite.schedule.place_steps import attached_names
from te_lite.schedule.stage_steps import NewStage, inserted, require_unscheduled, write_copy
from te_lite.schedule.state import ROOT, State, fresh_stage
from te_lite.schedule.step import Step, Words
from te_lite.schedule.storage_steps import SCOPE_LAW, Scoped

from .derive import axes_in_order, joined_op, plain_read, read_joined, reindex_ops


@dataclass(frozen=True, slots=True)
class Reindex(NewStage, Scoped):
    """A stage of what `reader` reads of `stage`, with the axes of its read (ours); `tile`: one of them, a length."""

    tag: ClassVar[str] = "RIX"
    about: ClassVar[tuple[str, ...]] = ("stage", "reader")
    optional: ClassVar[str] = "tile"
    stage: int
    scope: str
    reader: int
    tile: tuple[int, ...] = ()

    @classmethod
    def primitive(cls, part: Any, tensor: Tensor, scope: str, reader: Any, tile: tuple[int, ...] = ()) -> Tensor:
        """Read `tensor` through a copy in `scope` that has the axes of the reader; returns the copy.

        Where the reader reads `a[2 * i + r, k]` it reads `copy[i, r, k]` then, and with `tile` (0, 6), axis and length,
        `copy[i // 6, r, k, i % 6]`.  It must do so in one way alone.
        """
        k = part.stage_id(tensor)
        part.apply(cls(k, scope, part.stage_id(reader), tile))
        made: Tensor = part.state.ops[k + 1].output()
        return made

    def effect(self, state: State) -> State:
        source, reader = state.stages[self.stage].op, state.stages[self.reader]
        subject = f"reindex {source.name}"
        require(source.num_outputs == 1, ScheduleError, subject, "an operation with several outputs cannot be cached")
        require(self.scope in SCOPES, ScheduleError, subject, SCOPE_LAW, scope=self.scope)
        reads = self.reader in state.access.read_by[self.stage]
        require(reads, ScheduleError, subject, "the reader must read it", reader=reader.op.name)
        law = "it must be read in one way alone, at axes of its reader, and without a condition"
        read = plain_read(reader.compute, source.output(), may_be_open=True)
        require(read is not None, ScheduleError, subject, law, reader=reader.op.name)
        assert read is not None
        axes = len(axes_in_order(read))
        ok = self.tile == () or (len(self.tile) == 2 and 0 <= self.tile[0] < axes and self.tile[1] > 0)
        require(ok, ScheduleError, subject, f"a tile is one of {axes} axes and its length", tile=self.tile)
        name = cache_name(source.name, self.scope, [op.name for op in state.ops])
        copy, new = reindex_ops(reader.compute, source.output(), self.scope, name, self.tile)
        return inserted(state.with_stage(self.reader, replace(reader, op=new)), self.stage + 1, fresh_stage(copy))

    def python(self, words: Words, before: State) -> None:
        old, reader = [words.tensor(before, k) for k in self.stages]
        tile = f", {self.tile}" if self.tile else ""
        write_copy(words, self.stage, f's.reindex({old}, "{self.scope}", {reader}{tile})')


@dataclass(frozen=True, slots=True)
class JoinAxes(Step):
    """One axis that counts through `count` axes of a stage, from number `first` on, the last one fastest (ours)."""

    tag: ClassVar[str] = "JAX"
    stage: int
    first: int
    count: int

    @classmethod
    def primitive(cls, part: Any, tensor: Tensor, first: int, count: int) -> Tensor:
        """One axis in place of `count` axes of `tensor` from number `first` on; returns what takes its place.

        Where it is `y[n, i, j]`, of [N, 14, 14], it is `y[r]` then, of [N * 196], which is the old `y[r // 196,
        r // 14 % 14, r % 14]`, and who reads `y[n, i, j]` reads `y[(n * 14 + i) * 14 + j]`.
        """
        k = part.stage_id(tensor)
        part.apply(cls(k, first, count))
        made: Tensor = part.state.ops[k].output()
        return made

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        subject, op = f"join_axes {stage.op.name}", stage.op
        require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
        own = not state.access.is_output(self.stage) and op.key not in [t.op.key for t in state.dag.tensors]
        require(own, ScheduleError, subject, "arguments of the program are stored as their caller does")
        ok = self.count > 1 and self.first + self.count <= len(op.axis)
        law = f"it has {len(op.axis)} axes, of which two or more can be joined"
        require(ok, ScheduleError, subject, law, first=self.first, count=self.count)
        known = op.num_outputs == 1 and all(isinstance(v.extent, int) for v in (*op.axis, *op.reduce_axis))
        require(known, ScheduleError, subject, "it must have one output, and axes of known extents")
        attached = attached_names(state, self.stage)
        alone = stage.where == ROOT and not attached
        require(alone, ScheduleError, subject, "join before moving it", attached=attached)
        require_unscheduled(stage, range(len(stage.vars)), subject)
        joined = joined_op(stage.compute, self.first, self.count)
        for r in state.access.read_by[self.stage]:
            reader = state.stages[r]
            new = read_joined(reader.compute, op.output(), joined.output(), self.first)
            state = state.with_stage(r, replace(reader, op=new))
        return state.with_stage(self.stage, fresh_stage(joined))

    def python(self, words: Words, before: State) -> None:
        new = words.tensor(words.state, self.stage)
        words.line(f"{new} = s.join_axes({words.tensor(before, self.stage)}, {self.first}, {self.count})")
        words.axes(words.state.stages[self.stage].op, f"{new}.op")
