"""The sketch rules `padded_shared` and `transposed_shared`: the ordinary sketches, with their shared tiles changed."""

from __future__ import annotations

from ansor.sketch.generate import ordinary_sketches
from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from ..analysis.changes import changed
from .padded_shared import padded
from .transposed_shared import transposed


def padded_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary sketches with padded tiles."""
    return changed(ordinary_sketches(ctx), padded)


def transposed_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary sketches with transposed tiles."""
    return changed(ordinary_sketches(ctx), transposed)
