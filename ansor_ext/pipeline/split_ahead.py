"""Sketches of split reductions with tiles that are fetched ahead."""

from __future__ import annotations

from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from ..analysis.changes import changed
from ..split_reductions.split_reduction import split_reduction_sketches
from .double_buffer import double_buffered


def split_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of split reductions with their tiles fetched an iteration ahead."""
    return changed(split_reduction_sketches(ctx), double_buffered)
