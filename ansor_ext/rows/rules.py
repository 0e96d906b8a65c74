"""The sketch rule `rows`, on GPUs and CPUs."""

from __future__ import annotations

from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from .row_loops import row_loop_sketches
from .rows import row_sketches


def row_program_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of a row program; none where the computation is none."""
    return row_sketches(ctx) if ctx.target.is_gpu else row_loop_sketches(ctx)
