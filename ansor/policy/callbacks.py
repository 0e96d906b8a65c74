"""Measure callbacks, and callbacks that prepare a search policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ..core.measure_values import MeasureInput, MeasureResult
from ..core.protocols import MeasureCallback
from ..records.recorder import RecordToFile


class PythonBasedMeasureCallback:
    """Base of measure callbacks of one's own: override `callback`."""

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Called for every result as soon as it is there."""
        raise NotImplementedError


class Preloads(Protocol):
    """A policy that can begin with what a log knows."""

    def preload_measured_states(self, filename: str | os.PathLike[str]) -> int:
        """Take the records of a log as measured, and give their number."""


@runtime_checkable
class Prepares(Protocol):
    """An init callback."""

    def prepare(self, policy: Any) -> None:
        """Called once with the policy, before it searches."""


class PreloadMeasuredStates:
    """An init callback: what the log holds of the policy's task is never measured again."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = filename

    def prepare(self, policy: Preloads) -> None:
        policy.preload_measured_states(self.filename)


__all__ = ["MeasureCallback", "PreloadMeasuredStates", "PythonBasedMeasureCallback", "RecordToFile"]
