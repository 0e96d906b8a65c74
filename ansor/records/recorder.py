"""The measure callback that keeps a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from te_lite.errors import TeError, require
from te_lite.later import when_called

from ..core.device.backend import backend
from ..core.errors import JournalError, TaskError
from ..core.files.file_names import path_of
from ..core.tasks.measure_values import Baseline, DeviceUse, MeasureInput, MeasureResult, Spent
from ..core.tasks.task import SearchTask
from .confirmed import confirm_line
from .files import PathLike
from .journal import append_lines, ensure_writable, require_log, scan_lines
from .lines import dump_record_to_string
from .noted_records import Kind, baseline_line, failure_line, kind_of
from .notes import learn_workload, prediction_line, round_line, run_line, stopped_line, workload_line

network_line: Callable[..., str | None] = when_called("ansor.records.network", "network_line")


class RecordToFile:
    """A measure callback that appends every result to a file; missing directories are made.

    Raises JournalError for a file that cannot be written, and for one that is no log.
    It also writes comment lines, which readers of records skip, on the run and on each workload (`notes.py`).
    """

    def __init__(self, filename: PathLike) -> None:
        self.filename = path_of(filename, JournalError)
        require_log(self.filename)
        ensure_writable(self.filename)
        self._begun = False
        self._told: set[Kind] = set()
        self._described: dict[str, str] | None = None
        self._weights: list[str] = []
        self._device: int | None = None

    def check(self, tasks: Iterable[SearchTask]) -> None:
        """Raises TaskError for a task whose key stands for another computation in the log."""
        for task in tasks:
            objection = self._known().get(task.workload_key)
            law = f"has records of {task.title} already: {objection}; write to another log"
            require(not objection, TaskError, str(self.filename), law)

    def _known(self) -> dict[str, str]:
        """The workloads that the log describes, and how those that are registered differ."""
        if self._described is None:
            lines = scan_lines(self.filename) if self.filename.is_file() else ()  # a device has none
            learned = [learn_workload(line or b"") for _, line in lines]
            self._described = dict([known for known in learned if known is not None])
        return self._described

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines: list[str] = []
        for inp, res in zip(inputs, results, strict=True):
            lines += [] if inp.prediction is None else [prediction_line(inp.prediction)]
            lines.append(dump_record_to_string(inp, res))
        append_lines(self.filename, [*self._notes(policy, inputs), *self._reasons(inputs, results), *lines])

    def _notes(self, policy: Any, inputs: Sequence[MeasureInput]) -> list[str]:
        """The lines to write before records: on the run once, on each workload that the log does not describe yet."""
        notes = [] if self._begun else [run_line(policy, self._place(inputs)), *self._weights]
        self._begun, known = True, self._known()
        for task in {inp.task.workload_key: inp.task for inp in inputs}.values():
            if known.get(task.workload_key, "none") != "":
                known[task.workload_key] = ""
                notes += [line for line in [workload_line(task)] if line is not None]
        return notes

    def _place(self, inputs: Sequence[MeasureInput]) -> dict[str, str]:
        """What the programs run on and are compiled with, as far as that is known here."""
        if self._device is None:
            return {}
        target = inputs[0].task.target
        has = backend(target.kind.name)
        try:
            device = has.described_device(str(target), self._device)
            return {"device": device, "compiler": has.described_compiler(str(target))}
        except TeError:
            return {}

    def _reasons(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> list[str]:
        """The lines on failures of a kind of which this run has told none (`noted_records.py`)."""
        told = []
        for inp, res in zip(inputs, results, strict=True):
            line = None if kind_of(inp, res) in self._told else failure_line(inp, res)
            if line is not None:
                self._told.add(kind_of(inp, res))
                told.append(line)
        return told

    def usage(self, uses: Sequence[DeviceUse]) -> None:
        """Append a comment line on what each device did so far; readers skip it."""
        append_lines(self.filename, [f"# devices {json.dumps([use.to_json() for use in uses])}"])

    def runs_here(self, device: int) -> None:
        """Let the line on the run say what its device is."""
        self._device = device

    def weighed(self, tasks: Sequence[SearchTask], weights: Sequence[float]) -> None:
        """Let a comment line on how much each task counts come before the first record (`network.py`)."""
        line = network_line("", tasks, weights)
        self._weights = [] if line is None else [line]

    def network_ran(
        self, name: str, tasks: Sequence[SearchTask], weights: Sequence[float], seconds: Sequence[float],
        others: float, runs: Sequence[float],
    ) -> None:  # fmt: skip
        """Append a comment line on a network that was compiled and ran (`network.py`)."""
        line = network_line(name, tasks, weights, seconds, others, runs)
        append_lines(self.filename, [] if line is None else [line])

    def round_ended(self, task: SearchTask, spent: Spent) -> None:
        """Append a comment line on where the seconds of a round went (`notes.py`)."""
        append_lines(self.filename, [round_line(task, spent)])

    def baseline(self, policy: Any, which: Baseline, inp: MeasureInput, result: MeasureResult) -> None:
        """Append a comment line on a program that nobody searched for (`noted_records.py`)."""
        reasons = self._reasons([inp], [result])
        append_lines(self.filename, [*self._notes(policy, [inp]), *reasons, baseline_line(which, inp, result)])

    def confirmed(self, inputs: Sequence[MeasureInput], figures: Sequence[Sequence[float]]) -> None:
        """Append a comment line on programs that were timed in turns (`confirmed.py`)."""
        line = confirm_line(inputs, figures)
        if line is not None:
            append_lines(self.filename, [line])

    def stopped(self, task: SearchTask, reason: str) -> None:
        """Append a comment line on a search that ended before its budget was spent."""
        append_lines(self.filename, [stopped_line(task, reason)])
