"""Callbacks of tuners: they are called as `callback(tuner, inputs, results)` after every batch.

A callback that has a method `close` (`Closes`) is closed when the tuning ends, whichever way it ends.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from te_lite.errors import require

from ..core.errors import JournalError
from ..core.files.file_names import path_of
from ..records.journal import append_lines, ensure_writable, scan_lines
from ..records.notes import run_line
from .errors import TemplateError
from .measure import MeasureInput, MeasureResult
from .notes import key_of, read_name, workload_line
from .record import PathLike, encode

logger = logging.getLogger("autotvm")
SI_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


class HasBest(Protocol):
    """A tuner, as far as the bar needs it."""

    best_flops: float


class Callback(Protocol):
    """Told of every batch."""

    def __call__(self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """`inputs[k]` ended as `results[k]`."""


@runtime_checkable
class Closes(Protocol):
    """A callback that has something to end."""

    def close(self) -> None:
        """The tuning has ended."""


def si_scale(prefix: str) -> float:
    """What a prefix stands for.  Raises TemplateError for an unknown one."""
    law = f"the unit prefix must be one of {', '.join(map(repr, SI_PREFIXES))}"
    require(prefix in SI_PREFIXES, TemplateError, "tuner", law, got=prefix)
    return SI_PREFIXES[prefix]


class _FileLog:
    """Appends results; before them the lines on the run, once, and on each task that the log does not name yet."""

    def __init__(self, path: Path, seed: int | None) -> None:
        self.path, self.seed = path, seed
        ensure_writable(path)
        self._begun = False
        self._named: set[str] | None = None

    def __call__(self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = [encode(inp, res) for inp, res in zip(inputs, results, strict=True)]
        append_lines(self.path, [*self._notes(inputs), *lines])

    def _notes(self, inputs: Sequence[MeasureInput]) -> list[str]:
        if self._named is None:
            names = [read_name(line or b"") for _, line in scan_lines(self.path)] if self.path.is_file() else []
            self._named = {name[0] for name in names if name is not None}
        notes = [] if self._begun else [run_line(self)]
        self._begun = True
        for task in {key_of(inp.task): inp.task for inp in inputs}.values():
            if key_of(task) not in self._named:
                self._named.add(key_of(task))
                notes.append(workload_line(task))
        return notes


def log_to_file(file_out: PathLike, protocol: str = "json", seed: int | None = None) -> Callback:
    """A callback that appends every result to a file (record.py); missing directories are made.

    The log also gets comment lines on the run and on each task (notes.py); `seed` is what the run was begun with.
    Raises JournalError when the file cannot be written, TemplateError for another protocol than "json".
    """
    require(protocol == "json", TemplateError, "log_to_file", "the protocol must be json", got=protocol)
    return _FileLog(path_of(file_out, JournalError), seed)


class ProgressBar:
    """One line that is rewritten after every batch, and ends in " Done." when it is closed:

        [Task  1/10]  Current/Best:    0.72/  23.24 GFLOPS | Progress: (480/1000) | 640.31 s Done.

    "Current" is the last successful result of the batch, 0 when there was none.  Nothing is shown while the logger
    "autotvm" is at debug level, which prints every result instead.
    """

    def __init__(self, total: int, prefix: str, si_prefix: str, stream: TextIO | None) -> None:
        self.total, self.prefix, self.unit = total, prefix, f"{si_prefix}FLOPS"
        self.scale = si_scale(si_prefix)
        self.stream = stream
        self.done = 0
        self.current = self.best = 0.0
        self.start = time.monotonic()
        self._open = True
        self._say(self.text())

    def text(self) -> str:
        """The line as it is now."""
        figures = f"{self.current / self.scale:7.2f}/{self.best / self.scale:7.2f} {self.unit}"
        seconds = time.monotonic() - self.start
        return f"\r{self.prefix} Current/Best: {figures} | Progress: ({self.done}/{self.total}) | {seconds:.2f} s"

    def __call__(self, tuner: HasBest, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self.done += len(inputs)
        rates = [inp.task.flop / res.cost for inp, res in zip(inputs, results, strict=True) if res.ok]
        self.current = rates[-1] if rates else 0.0
        self.best = max([self.best, tuner.best_flops, *rates])
        self._say(self.text())

    def close(self) -> None:
        """End the line; later calls do nothing."""
        if self._open:
            self._open = False
            self._say(" Done.\n")

    def _say(self, text: str) -> None:
        if logger.getEffectiveLevel() > logging.DEBUG:
            stream = self.stream or sys.stdout
            stream.write(text)
            stream.flush()


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G", stream: TextIO | None = None) -> ProgressBar:
    """A callback that shows the progress of `total` trials on `stream` (default: standard output)."""
    return ProgressBar(total, prefix, si_prefix, stream)


class Monitor:
    """A callback that keeps what a study needs: FLOPS and the time of day of every trial."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self.scores += [inp.task.flop / res.cost if res.ok else 0.0 for inp, res in zip(inputs, results, strict=True)]
        self.timestamps += [float(res.timestamp) for res in results]

    def reset(self) -> None:
        """Forget everything."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> list[float]:
        """FLOPS of every trial, 0 for a failure."""
        return self.scores

    def trial_timestamps(self) -> list[float]:
        """Seconds since 1970 at the end of every trial."""
        return self.timestamps
