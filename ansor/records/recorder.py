"""The measure callback that keeps a log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core.measure_values import DeviceUse, MeasureInput, MeasureResult
from .confirmed import confirm_line
from .files import PathLike
from .journal import append_lines, ensure_writable, scan_lines
from .lines import dump_record_to_string
from .notes import learn_workload, run_line, workload_line
from .untuned import untuned_line


def _lines_of(log: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a log; none of what is no file, such as a device."""
    return scan_lines(log) if log.is_file() else iter(())


class RecordToFile:
    """A measure callback that appends every result to a file; missing directories are made.

    It also writes comment lines, which readers of records skip, on the run and on each workload (`notes.py`).
    """

    def __init__(self, filename: PathLike) -> None:
        self.filename = Path(filename)
        ensure_writable(self.filename)
        self._described: set[str] | None = None

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = [dump_record_to_string(i, r) for i, r in zip(inputs, results, strict=True)]
        append_lines(self.filename, [*self._notes(policy, inputs), *lines])

    def _notes(self, policy: Any, inputs: Sequence[MeasureInput]) -> list[str]:
        """The lines to write before records: on the run once, on each workload that the log does not describe yet."""
        notes = []
        if self._described is None:
            self._described = {key for _, line in _lines_of(self.filename) if (key := learn_workload(line or b""))}
            notes.append(run_line(policy))
        for task in {inp.task.workload_key: inp.task for inp in inputs}.values():
            if task.workload_key not in self._described:
                self._described.add(task.workload_key)
                notes += [line for line in [workload_line(task)] if line is not None]
        return notes

    def usage(self, uses: Sequence[DeviceUse]) -> None:
        """Append a comment line on what each device did so far; readers skip it."""
        append_lines(self.filename, [f"# devices {json.dumps([use.to_json() for use in uses])}"])

    def untuned(self, policy: Any, inp: MeasureInput, result: MeasureResult) -> None:
        """Append a comment line on the untuned program of a task (`untuned.py`)."""
        append_lines(self.filename, [*self._notes(policy, [inp]), untuned_line(inp, result)])

    def confirmed(self, inputs: Sequence[MeasureInput], figures: Sequence[Sequence[float]]) -> None:
        """Append a comment line on programs that were timed in turns (`confirmed.py`)."""
        line = confirm_line(inputs, figures)
        if line is not None:
            append_lines(self.filename, [line])
