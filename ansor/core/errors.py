"""What the search refuses: each error is one sentence, and each kind has its exit code on the command line."""

from __future__ import annotations

from te_lite.errors import TeError


class AnsorError(TeError):
    """Base of everything `ansor` refuses."""

    exit_code = 2


class TaskError(AnsorError):
    """A workload, target or option that is unknown or does not fit."""


class PartError(TaskError):
    """A part of one's own (rule, mutation, model, callback, ...) that does not do what its protocol says."""


class BudgetError(TaskError, ValueError):
    """A budget that does not reach for what must be measured."""


class BackendError(AnsorError):
    """A target whose compiler, device or package is not there."""


class NoRecordError(AnsorError, RuntimeError):
    """A log that holds no valid program for a task."""

    exit_code = 1


class JournalError(AnsorError):
    """A log that cannot be written: full disk, read-only file, vanished directory."""

    exit_code = 3


class GraphError(AnsorError):
    """A graph that cannot be built, read, rewritten or run: a wrong shape, an unknown operator or attribute ..."""


class ExportError(AnsorError):
    """A program that cannot be exported, or a folder that holds none that can be loaded here."""


class MeasureError(AnsorError):
    """Measurement as a whole cannot go on (a single bad candidate is a value, never an error)."""

    exit_code = 4


PASSING = (MeasureError, JournalError, BackendError, PartError)
"""What is neither a fault of a search nor of the part that happens to be asked, and is told as it is."""
