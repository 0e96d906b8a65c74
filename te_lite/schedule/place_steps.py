"""Steps that say where a stage is computed: inside a loop of another one, where it is read, or on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import ScheduleError, require
from .state import ATTACHED, INLINED, ROOT, Attach, Iter, Stage, State
from .step import Step, Words

SCAN_LAW = "a scan is computed at root, each line from its first element on"


def _forget_extents(stage: Stage) -> Stage:
    leaf = set(stage.leaf)
    forgot = [Iter(v.uid, v.name, None, v.kind, v.annotation) if v.uid in leaf else v for v in stage.vars]
    return replace(stage, vars=tuple(forgot))


def _placed(stage: Stage, where: str, attach: Attach | None = None) -> Stage:
    """A stage at another place, where it is computed along no loop."""
    asks = tuple([ask for ask in stage.asks if not ask.nests])
    return replace(stage, where=where, attach=attach, asks=asks)


def attached_names(state: State, k: int) -> list[str]:
    """What is computed inside of stage `k`."""
    return [s.op.name for s in state.stages if s.attach is not None and s.attach.stage == k]


@dataclass(frozen=True, slots=True)
class ComputeAt(Step):
    """Compute a stage inside a loop of another one."""

    tag: ClassVar[str] = "CA"
    about: ClassVar[tuple[str, ...]] = ("stage", "target")
    stage: int
    target: int
    target_iter: int

    def effect(self, state: State) -> State:
        stage, target = state.stages[self.stage], state.stages[self.target]
        subject = f"compute_at {stage.op.name}"
        require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
        require(self.stage < self.target, ScheduleError, subject, "the target must come later", target=target.op.name)
        require(target.where != INLINED, ScheduleError, subject, "the target is inlined", target=target.op.name)
        require(not state.access.is_output(self.stage), ScheduleError, subject, "an output is computed at root")
        require(not stage.op.scans, ScheduleError, subject, SCAN_LAW)
        ok = 0 <= self.target_iter < len(target.leaf)
        require(ok, ScheduleError, subject, f"{target.op.name} has {len(target.leaf)} loops", loop=self.target_iter)
        attach = Attach(self.target, target.leaf[self.target_iter], len(state.steps))
        return state.with_stage(self.stage, _placed(_forget_extents(stage), ATTACHED, attach))

    def python(self, words: Words, before: State) -> None:
        loop = words.loop(before, self.target, self.target_iter)
        words.call(self.stage, f"compute_at(s[{words.tensor(before, self.target)}], {loop})")


@dataclass(frozen=True, slots=True)
class ComputeInline(Step):
    """Put the expression of a stage where it is read."""

    tag: ClassVar[str] = "CI"
    stage: int

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        subject = f"compute_inline {stage.op.name}"
        require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
        require(not stage.op.reduce_axis, ScheduleError, subject, "a reduction cannot be inlined")
        require(not stage.op.scans, ScheduleError, subject, SCAN_LAW)
        require(not state.access.is_output(self.stage), ScheduleError, subject, "an output cannot be inlined")
        attached = attached_names(state, self.stage)
        require(not attached, ScheduleError, subject, "other stages are attached to it", attached=attached)
        return state.with_stage(self.stage, _placed(stage, INLINED))

    def python(self, words: Words, before: State) -> None:
        words.call(self.stage, "compute_inline()")


@dataclass(frozen=True, slots=True)
class ComputeRoot(Step):
    """Compute a stage on its own."""

    tag: ClassVar[str] = "CR"
    stage: int

    def effect(self, state: State) -> State:
        stage = state.stages[self.stage]
        require(not stage.is_placeholder, ScheduleError, f"compute_root {stage.op.name}", "an input is not computed")
        return state.with_stage(self.stage, _placed(_forget_extents(stage), ROOT))

    def python(self, words: Words, before: State) -> None:
        words.call(self.stage, "compute_root()")
