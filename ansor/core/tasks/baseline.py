"""The programs of a task that nobody searched for, and that a search measures as its trial 0."""

from __future__ import annotations

from enum import Enum


class Baseline(Enum):
    """Which of them; the value is what a line or a row calls it.

    `UNTUNED` are the loops as they were written (`sketch/plain.py`), `DEFAULT` is what a kernel gets that nobody tuned
    (`policy/default_schedule.py`).
    """

    UNTUNED = "untuned"
    DEFAULT = "default schedule"

    @property
    def phrase(self) -> str:
        """What a sentence calls it."""
        return "the untuned one" if self is Baseline.UNTUNED else f"the {self.value}"
