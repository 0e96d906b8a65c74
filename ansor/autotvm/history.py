"""The best configurations of a log, as a dispatch context.

with ApplyHistoryBest("vta.log"):        or        with apply_history_best("vta.log"):
    lib = build(...)
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from ..core.target.target import Target
from ..records.files import History, pairs_of
from .dispatch import DispatchContext
from .measure import MeasureInput
from .record import Source, counts_for, in_space, load_from_file

Key = tuple[str, tuple[Any, ...]]


class ApplyHistoryBest(DispatchContext):
    """The best error-free records of a log, several logs, or pairs; the least mean cost wins.

    A target gets the records that count for it (`record.counts_for`): one without a model those of any.
    """

    def __init__(self, records: Source | None) -> None:
        self._history: History[Key, MeasureInput, Any] = History()
        if records is not None:
            self.load(records)

    def load(self, records: Source) -> None:
        """Add records.  Raises JournalError when a file cannot be read."""
        pairs = pairs_of(records, load_from_file)
        self._history.load(((pair[0].target, pair[0].workload), pair) for pair in pairs)

    def update(self, target: Target | str, workload: tuple[Any, ...], config: Any) -> None:
        self._history.tell((str(target), workload), config)

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        told = [config for key, config in self._history.told.items() if _answers(key, target, workload)]
        if told:
            return told[-1]
        found = [pairs for key, pairs in self._history.best.items() if _answers(key, target, workload)]
        best = sorted(chain.from_iterable(found), key=lambda pair: pair[1].cost)
        return next((inp.config for inp, _ in best if in_space(inp) is not False), None)


def _answers(key: Key, target: str | None, workload: tuple[Any, ...]) -> bool:
    """Whether what is known under a target's text and a workload answers a question; no target asks of all of them."""
    return key[1] == workload and (target is None or counts_for(key[0], target))


apply_history_best = ApplyHistoryBest
