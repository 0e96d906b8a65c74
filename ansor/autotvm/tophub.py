"""A context with tuned configurations, under autotvm's name.  Nothing is downloaded: the files are the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .history import ApplyHistoryBest
from .record import PathLike


def context(target: Any, extra_files: Sequence[PathLike] | None = None) -> ApplyHistoryBest:
    """The best records of `extra_files`.  Raises JournalError when one cannot be read."""
    return ApplyHistoryBest(list(extra_files or ()))
