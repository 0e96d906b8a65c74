"""Steps that fetch tiles of a shared copy before they are used: double_buffer, pipeline (see `double_buffer.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from te_lite.errors import ScheduleError, require
from te_lite.expr.storage import storage_class
from te_lite.schedule.state import Ask, Stage, State
from te_lite.schedule.step import Step

MOST_TILES = 8
COPY_ENGINE = "copy engine"
BOXES = "ansor_ext.tensor_core.layouts:BoxedRows"
"""How tiles lie that the copy engine of a GPU fetches."""


@dataclass(frozen=True, slots=True)
class DoubleBuffer(Step):
    """Fetch the next tile of a shared copy, computed at a reduction loop, while this one is used; ours.

    Takes twice the shared memory, and one barrier an iteration of the loop instead of two.
    """

    tag: ClassVar[str] = "DBF"
    stage: int

    def effect(self, state: State) -> State:
        """What can never be double-buffered is refused here; its place is known, and looked at, when it is lowered."""
        return _fetched_ahead(state, self.stage, 2, "double_buffer")


@dataclass(frozen=True, slots=True)
class Pipeline(Step):
    """As `DoubleBuffer`, with room for `tiles` tiles (2 to 8), which are fetched `tiles` - 1 iterations ahead; ours.

    `by` the "copy engine" tiles are boxes of an array, whose lines of 128 bytes are swizzled, and a ring that groups of
    warps multiply from (`tensor_core/ring.py`); no loop of the copy is bound to threads.
    """

    tag: ClassVar[str] = "PIP"
    optional: ClassVar[str] = "by"
    stage: int
    tiles: int
    by: str = ""

    def effect(self, state: State) -> State:
        """As `apply_double_buffer`, with room for more tiles."""
        name = state.stages[self.stage].op.name
        ok = 2 <= self.tiles <= MOST_TILES
        require(ok, ScheduleError, f"pipeline {name}", f"2 to {MOST_TILES} tiles are possible", tiles=self.tiles)
        known = self.by in ("", COPY_ENGINE)
        require(
            known, ScheduleError, f"pipeline {name}", f"tiles come by the {COPY_ENGINE!r} or by threads", by=self.by
        )
        return _fetched_ahead(state, self.stage, self.tiles, "pipeline", self.by)


def by_copy_engine(stage: Stage) -> bool:
    """Whether the copy engine fetches the tiles of a stage."""
    return any(ask.layout == BOXES and ask.tiles > 1 for ask in stage.asks)


def _fetched_ahead(state: State, k: int, tiles: int, primitive: str, by: str = "") -> State:
    stage = state.stages[k]
    subject = f"{primitive} {stage.op.name}"
    require(not stage.is_placeholder, ScheduleError, subject, "an input is not computed")
    require(not state.access.is_output(k), ScheduleError, subject, "an output has one place in memory")
    require(not stage.op.reduce_axis, ScheduleError, subject, "a reduction cannot be fetched ahead")
    scope = stage.op.scope
    kept = storage_class(scope) in ("", "shared")
    require(kept, ScheduleError, subject, "the storage must be shared memory", scope=scope)
    require(not stage.double_buffer, ScheduleError, subject, "it is double-buffered already")
    text = f"pipeline: {tiles} by the {by}" if by else "double_buffer" if tiles == 2 else f"pipeline: {tiles}"
    ask = Ask(text, "ansor_ext.pipeline.lowering:fetched_ahead", tiles=tiles, layout=BOXES if by else "")
    return state.with_stage(k, replace(stage, asks=(*stage.asks, ask)))
