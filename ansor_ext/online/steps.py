"""Steps of online rescaling: reductions joined to one, computed along a loop, and divided afterwards.

What they ask is looked at in `online.py` and `rescaling.py`, and where a state is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from te_lite.computation.tensor import Tensor
from te_lite.errors import ScheduleError, require
from te_lite.schedule.place_steps import ComputeAt, attached_names
from te_lite.schedule.stage_steps import NewStage, inserted, require_unscheduled
from te_lite.schedule.state import INLINED, Ask, State, fresh_stage
from te_lite.schedule.step import Step, Words

from .carried_parts import in_parts, whole_of
from .online import joined_ops
from .rescaling import postponed

ALONG = Ask("along", nests="ansor_ext.online.along_nests:AlongNests")


@dataclass(frozen=True, slots=True)
class JoinReductions(NewStage):
    """One reduction of pairs for `stage` and `other`, which refers to it; a letter of our own (see `online.py`)."""

    tag: ClassVar[str] = "JRD"
    about: ClassVar[tuple[str, ...]] = ("stage", "other")
    stage: int
    other: int

    @classmethod
    def primitive(cls, part: Any, extreme: Tensor, total: Tensor) -> list[Tensor]:
        """Compute an extreme, and a sum of terms that refer to it, in one pass; returns the pairs `<op>.online`."""
        k = part.stage_id(extreme)
        part.apply(cls(k, part.stage_id(total)))
        op = part.state.ops[k]
        return [op.output(i) for i in range(op.num_outputs)]

    def effect(self, state: State) -> State:
        first, second = state.stages[self.stage], state.stages[self.other]
        subject = f"join_reductions {first.op.name}"
        for k, stage in ((self.stage, first), (self.other, second)):
            require(stage.op.reduction is not None, ScheduleError, subject, "is for reductions", stage=stage.op.name)
            attached = attached_names(state, k)
            require(not attached, ScheduleError, subject, "other stages are attached to one", attached=attached)
            require_unscheduled(stage, range(len(stage.vars)), subject)
        hidden = tuple([s.compute for s in state.stages if s.where == INLINED])
        found = joined_ops(first.compute, second.compute, hidden)
        if found is None:
            raise ScheduleError(
                f"{subject}: {second.op.name} must be a sum of terms that can be carried (ansor_ext/online/online.py)"
            )
        for k, op in zip((self.stage, self.other), found[1:], strict=True):
            old = state.stages[k]
            state = state.with_stage(k, replace(fresh_stage(op), where=old.where, attach=old.attach))
        return inserted(state, self.stage, fresh_stage(found[0]))

    def python(self, words: Words, before: State) -> None:
        old, other = [words.tensor(before, k) for k in self.stages]
        name = words.tensor(words.state, self.stage)
        words.line(f"{name} = s.join_reductions({old}, {other})[0]")
        words.axes(words.state.stages[self.stage].op, f"{name}.op")
        for k, text in ((self.stage, old), (self.other, other)):
            words.axes(words.state.stages[k + 1].op, f"s[{text}].op")


@dataclass(frozen=True, slots=True)
class ComputeAlong(Step):
    """Compute a reduction along a loop of `target`, whose terms refer to it (see `rescaling.py`)."""

    tag: ClassVar[str] = "CAL"
    about: ClassVar[tuple[str, ...]] = ("stage", "target")
    stage: int
    target: int
    target_iter: int

    @classmethod
    def primitive(cls, part: Any, target: Any, axis: Any) -> None:
        """Compute the stage, an extreme or a sum, along a loop over the points that `target`, `s[...]`, sums up."""
        part.schedule.apply(cls(part.id, *part.inside(target, axis, "compute_along")))

    def effect(self, state: State) -> State:
        """What the stage is to its target, and what else refers to it, is looked at when it is lowered."""
        stage, target = state.stages[self.stage], state.stages[self.target]
        subject = f"compute_along {stage.op.name}"
        law = "it and the target must be reductions over axes of the same extents"
        extents = [[v.extent for v in s.op.reduce_axis] for s in (stage, target)]
        require(bool(extents[0]) and extents[0] == extents[1], ScheduleError, subject, law, extents=extents)
        state = ComputeAt(self.stage, self.target, self.target_iter).effect(state)
        stage = state.stages[self.stage]
        return state.with_stage(self.stage, replace(stage, asks=(*stage.asks, ALONG)))

    def python(self, words: Words, before: State) -> None:
        loop = words.loop(before, self.target, self.target_iter)
        words.call(self.stage, f"compute_along(s[{words.tensor(before, self.target)}], {loop})")


@dataclass(frozen=True, slots=True)
class PostponeDivision(Step):
    """Divide the sum `total` instead of the factors `stage` of its terms; a letter of our own (see `rescaling.py`)."""

    tag: ClassVar[str] = "PDV"
    about: ClassVar[tuple[str, ...]] = ("stage", "total")
    stage: int
    total: int

    @classmethod
    def primitive(cls, part: Any, share: Tensor, total: Tensor) -> Tensor:
        """Divide `total`, a sum of products with `share`, instead of it; returns the sum `<total>.undivided`."""
        k = part.stage_id(total)
        part.apply(cls(part.stage_id(share), k))
        made: Tensor = part.state.ops[k].output()
        return made

    @property
    def inserts_at(self) -> int:
        return self.total

    def effect(self, state: State) -> State:
        part, total = state.stages[self.stage], state.stages[self.total]
        subject = f"postpone_division {part.op.name}"
        require(not part.is_placeholder, ScheduleError, subject, "an input is not computed")
        require(total.op.reduction is not None, ScheduleError, subject, "the total must be a sum", total=total.op.name)
        others = [state.ops[r].name for r in state.access.read_by[self.stage] if r != self.total]
        shown = part.op.key in [t.op.key for t in state.dag.tensors]
        require(not others and not shown, ScheduleError, subject, "the sum alone must read it", readers=others)
        attached = attached_names(state, self.total)
        require(not attached, ScheduleError, subject, "other stages are attached to the sum", attached=attached)
        require_unscheduled(total, range(len(total.vars)), subject)
        found = postponed(part.compute, total.compute, state.ops)
        if found is None:
            raise ScheduleError(
                f"{subject}: {total.op.name} must sum up products with shares of a whole (online/rescaling.py)"
            )
        undivided, sums, quotient = found
        state = state.with_stage(self.stage, replace(part, op=undivided))
        state = state.with_stage(self.total, replace(fresh_stage(quotient), where=total.where, attach=total.attach))
        return inserted(state, self.total, fresh_stage(sums))

    def python(self, words: Words, before: State) -> None:
        part, total = [words.tensor(before, k) for k in self.stages]
        name = words.tensor(words.state, self.total)
        words.line(f"{name} = s.postpone_division({part}, {total})")
        words.axes(words.state.stages[self.total].op, f"{name}.op")
        words.axes(words.state.stages[self.total + 1].op, f"s[{total}].op")


@dataclass(frozen=True, slots=True)
class CarryParts(NewStage):
    """Sum up what `stage` divides in parts with extremes of their own; a letter of our own (see `carried_parts.py`)."""

    tag: ClassVar[str] = "CPT"
    stage: int
    length: int

    @classmethod
    def primitive(cls, part: Any, quotient: Tensor, length: int) -> list[Tensor]:
        """Compute the sums that a quotient divides in parts of `length` points each; returns the sum `<op>.parts`."""
        k = part.stage_id(quotient)
        part.apply(cls(k, length))
        op = part.state.ops[k]
        return [op.output(i) for i in range(op.num_outputs)]

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        subject = f"carry_parts {stage.op.name}"
        require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
        found = whole_of(stage.compute, state.ops)
        if found is None:
            raise ScheduleError(f"{subject}: it must divide sums of shares (ansor_ext/online/carried_parts.py)")
        law = "there must be several parts"
        require(0 < self.length < found.length, ScheduleError, subject, law, length=self.length, points=found.length)
        made, given = in_parts(found, self.length), [t.op.key for t in state.dag.tensors]
        for k, old in enumerate(state.stages):
            op = made.stands_for.get(old.op.key)
            if op is not None:
                seen = attached_names(state, k) or (k != self.stage and old.op.key in given)
                require(not seen, ScheduleError, subject, "nothing else may see its sums", stage=op.name)
                require_unscheduled(old, range(len(old.vars)), subject)
                state = state.with_stage(k, replace(fresh_stage(op), where=old.where, attach=old.attach))
        return inserted(state, self.stage, fresh_stage(made.triples))

    def python(self, words: Words, before: State) -> None:
        name = words.tensor(words.state, self.stage)
        words.line(f"{name} = s.carry_parts({words.tensor(before, self.stage)}, {self.length})[0]")
        for k, stage in enumerate(words.state.stages):
            old = before.stages[k - (k > self.stage)].op
            if k == self.stage or stage.op is not old:
                words.axes(stage.op, f"{name}.op" if k == self.stage else f"s[{words.tensor(words.state, k)}].op")
