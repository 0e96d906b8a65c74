"""What happens around each round of the task scheduler: a table on the console, a curve in a file, or anything else."""

from __future__ import annotations

import os
from typing import Any, Protocol, runtime_checkable

from ..core.errors import JournalError
from ..core.files.file_names import path_of
from ..records.journal import append_lines, ensure_writable
from .report import Row, Summary, curve_text, table_text


class Reports(Protocol):
    """What callbacks may ask of a task scheduler, which has more."""

    verbose: int

    @property
    def done(self) -> bool:
        """Whether the run has ended."""

    def rows(self) -> list[Row]:
        """What the table says of each task."""

    def summary(self) -> Summary:
        """What the table says of all tasks."""


@runtime_checkable
class RoundCallback(Protocol):
    """Called before and after each round of `task_scheduler` on the task number `task_id`."""

    def pre_tune(self, task_scheduler: Any, task_id: int) -> None:
        """The round is about to begin."""

    def post_tune(self, task_scheduler: Any, task_id: int) -> None:
        """The round is over, and its results are counted."""


class TaskSchedulerCallback:
    """Base of callbacks of one's own: override one method or both."""

    def pre_tune(self, task_scheduler: Any, task_id: int) -> None:
        """The round is about to begin."""

    def post_tune(self, task_scheduler: Any, task_id: int) -> None:
        """The round is over, and its results are counted."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints the table of tasks before each round, and once more at the end; nothing when `verbose` is 0."""

    def pre_tune(self, task_scheduler: Reports, task_id: int) -> None:
        self._print(task_scheduler, task_id)

    def post_tune(self, task_scheduler: Reports, task_id: int) -> None:
        if task_scheduler.done:
            self._print(task_scheduler, None)

    @staticmethod
    def _print(task_scheduler: Reports, next_id: int | None) -> None:
        if task_scheduler.verbose > 0:
            print(table_text(task_scheduler.rows(), task_scheduler.summary(), next_id), flush=True)


class LogEstimatedLatency(TaskSchedulerCallback):
    """Appends a line of the latency curve to a file after each round.

    The file, and its directories, are made with the first line; what is in it stays.  Raises JournalError then when
    it cannot be written.
    """

    def __init__(self, log_file: str | os.PathLike[str]) -> None:
        self.log_file = path_of(log_file, JournalError)

    def post_tune(self, task_scheduler: Reports, task_id: int) -> None:
        ensure_writable(self.log_file)
        append_lines(self.log_file, [curve_text(task_scheduler.summary())])
