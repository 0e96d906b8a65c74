"""Measure callbacks, and callbacks that prepare a search policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from te_lite.errors import require

from ..core.errors import JournalError, PartError
from ..core.files.file_names import path_of
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.protocols import MeasureCallback
from ..records.recorder import RecordToFile
from ..sketch.rule import PreloadCustomSketchRule, SketchRule
from .tuning_options import callbacks_with


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
        self.filename = path_of(filename, JournalError)

    def prepare(self, policy: Preloads) -> None:
        policy.preload_measured_states(self.filename)


def init_callbacks(given: Sequence[Any] | None) -> tuple[Any, ...]:
    """The init callbacks of a policy, none for None.  Raises PartError for an entry that is none."""
    for one in given if isinstance(given, list | tuple) else ():
        law = "a SketchRule goes to generate_sketches(custom_rules=) or register_target(rules=), or into a policy"
        law += " wrapped in PreloadCustomSketchRule"
        ok = not isinstance(one, SketchRule) or isinstance(one, PreloadCustomSketchRule | type)
        require(ok, PartError, "init_search_callbacks", law, entry=one)
    return callbacks_with("prepare", "init_search_callbacks", given, (Prepares, PreloadCustomSketchRule))


__all__ = ["MeasureCallback", "PreloadMeasuredStates", "PythonBasedMeasureCallback", "RecordToFile"]
