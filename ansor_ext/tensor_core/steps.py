"""The step that swizzles a stage in shared memory (see `swizzle.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from te_lite.errors import ScheduleError, require
from te_lite.schedule.state import Ask, State
from te_lite.schedule.step import Step
from te_lite.schedule.storage_steps import require_own

from ..pipeline.steps import BOXES

SWIZZLED = Ask("swizzled", layout="ansor_ext.tensor_core.layouts:SwizzledRows")
IN_LINES = Ask("swizzled in lines", layout=BOXES)


@dataclass(frozen=True, slots=True)
class Swizzled(Step):
    """Let the 16-byte chunks of rows in shared memory trade places; a letter of our own.

    With `lines` rows are cut into lines of 128 bytes first, as groups of warps read them.
    """

    tag: ClassVar[str] = "SWZ"
    optional: ClassVar[str] = "lines"
    stage: int
    lines: int = 0

    def effect(self, state: State) -> State:
        """Whether it is in shared memory, and how long its rows are, is looked at when it is lowered."""
        stage = state.stages[self.stage]
        subject = f"swizzle {stage.op.name}"
        require_own(state, self.stage, subject)
        twice = {SWIZZLED, IN_LINES} & set(stage.asks)
        require(not twice, ScheduleError, subject, "it is swizzled already")
        ask = IN_LINES if self.lines else SWIZZLED
        return state.with_stage(self.stage, replace(stage, asks=(ask, *stage.asks)))
