"""Measure callbacks, and callbacks that prepare a search policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .measure.api import MeasureCallback, MeasureInput, MeasureResult
from .records import RecordToFile

if TYPE_CHECKING:
    from .policy import SketchPolicy


class PythonBasedMeasureCallback:
    """Base of measure callbacks of one's own: override `callback`."""

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Called for every result as soon as it is there."""
        raise NotImplementedError


class PreloadMeasuredStates:
    """An init callback: what the log holds of the policy's task is never measured again."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = filename

    def prepare(self, policy: SketchPolicy) -> None:
        policy.preload_measured_states(self.filename)


__all__ = ["MeasureCallback", "PreloadMeasuredStates", "PythonBasedMeasureCallback", "RecordToFile"]
