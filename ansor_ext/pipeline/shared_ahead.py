"""Transposed tiles that are fetched ahead."""

from __future__ import annotations

from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from ..analysis.changes import changed
from ..analysis.own_stages import ordinary_sketches
from ..shared_tiles.transposed_shared import transposed
from .double_buffer import double_buffered


def transposed_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary sketches with transposed tiles, fetched an iteration ahead."""
    return changed(ordinary_sketches(ctx), transposed, double_buffered)
