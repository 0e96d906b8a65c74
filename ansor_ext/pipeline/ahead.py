"""The sketch rule `double_buffer`: the ordinary sketches with tiles fetched ahead."""

from __future__ import annotations

from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from ..analysis.changes import changed
from ..analysis.own_stages import ordinary_sketches
from .double_buffer import double_buffered


def double_buffer_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary sketches with their tiles fetched an iteration ahead."""
    return changed(ordinary_sketches(ctx), double_buffered)
