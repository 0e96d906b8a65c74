"""Going on where a log stops: the same call on the same log continues it, unless its options say `resume=False`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..core.tasks.task import SearchTask
from ..records.files import PathLike
from ..records.lines import Record, logger, recorded_key, validated_records
from ..records.of_task import other_targets
from ..records.recorder import RecordToFile
from .tuning_options import TuningOptions


@runtime_checkable
class Continues(Protocol):
    """A policy that can go on where a log stops."""

    def continue_from(self, filename: Path, records: Sequence[Record]) -> None:
        """Take the believed records of a log as measured, unless it has begun or was given a log already."""


def log_to_continue(options: TuningOptions) -> Path | None:
    """The log that a run goes on with: the first that its callbacks write and that holds something."""
    logs = [c.filename for c in options.measure_callbacks if isinstance(c, RecordToFile)] if options.resume else []
    return next((log for log in logs if log.is_file() and log.stat().st_size > 0), None)


def check_logs(tasks: Sequence[SearchTask], options: TuningOptions) -> None:
    """Raises TaskError where a log that a run writes has records of another computation under a task's key."""
    for callback in options.measure_callbacks:
        if isinstance(callback, RecordToFile):
            callback.check(tasks)


def say_other_targets(log: PathLike, records: Sequence[Record], tasks: Sequence[SearchTask]) -> None:
    """Warn of records of a log that are for other processors than the targets of the tasks (`other_targets`)."""
    keys = dict.fromkeys([recorded_key(inp.task) for inp, _ in records])
    for target in dict.fromkeys([task.target for task in tasks]):
        if text := other_targets(str(log), keys, target):
            logger.warning("%s", text)


def continue_log(policies: Sequence[Any], options: TuningOptions) -> list[Record]:
    """Let the policies that can go on with the log of a run, and give its records.

    Raises JournalError when it cannot be read.
    """
    log, able = log_to_continue(options), [p for p in policies if isinstance(p, Continues)]
    if log is None or not able:
        return []
    records = list(validated_records(log))
    for policy in able:
        policy.continue_from(log, records)
    return records
