"""Sketches of split reductions with transposed tiles that are fetched ahead."""

from __future__ import annotations

from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from ..analysis.changes import changed
from ..shared_tiles.transposed_shared import transposed
from ..split_reductions.split_reduction import split_reduction_sketches
from .double_buffer import double_buffered


def split_transposed_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of split reductions with transposed tiles, fetched an iteration ahead."""
    return changed(split_reduction_sketches(ctx), transposed, double_buffered)
