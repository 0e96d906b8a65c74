"""The step that swizzles a stage in shared memory (see `swizzle.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from te_lite.errors import ScheduleError, require
from te_lite.schedule.state import Ask, State
from te_lite.schedule.step import Step
from te_lite.schedule.storage_steps import require_own

SWIZZLED = Ask("swizzled", layout="ansor_ext.tensor_core.layouts:SwizzledRows")


@dataclass(frozen=True, slots=True)
class Swizzled(Step):
    """Let the 16-byte chunks of rows in shared memory trade places; a letter of our own."""

    tag: ClassVar[str] = "SWZ"
    stage: int

    def effect(self, state: State) -> State:
        """Whether it is in shared memory, and how long its rows are, is looked at when it is lowered."""
        stage = state.stages[self.stage]
        subject = f"swizzle {stage.op.name}"
        require_own(state, self.stage, subject)
        require(SWIZZLED not in stage.asks, ScheduleError, subject, "it is swizzled already")
        return state.with_stage(self.stage, replace(stage, asks=(SWIZZLED, *stage.asks)))
