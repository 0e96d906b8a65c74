"""The best configurations of a log, as a dispatch context.

with ApplyHistoryBest("vta.log"):        or        with apply_history_best("vta.log"):
    lib = build(...)
"""

from __future__ import annotations

from typing import Any

from ..core.target import Target
from ..records.files import History, pairs_of
from .dispatch import DispatchContext
from .measure import MeasureInput
from .record import Source, in_space, load_from_file, target_key

Key = tuple[str, tuple[Any, ...]]


class ApplyHistoryBest(DispatchContext):
    """The best error-free records of a log, several logs, or pairs; the least mean cost wins.

    Targets are told apart by kind and model (`record.target_key`); a target without a model gets the best of any.
    """

    def __init__(self, records: Source | None) -> None:
        self._history: History[Key, MeasureInput, Any] = History()
        if records is not None:
            self.load(records)

    def load(self, records: Source) -> None:
        """Add records.  Raises JournalError when a file cannot be read."""
        pairs = pairs_of(records, load_from_file)
        self._history.load((key, pair) for pair in pairs for key in _keys(pair[0].target, pair[0].workload))

    def update(self, target: Target | str, workload: tuple[Any, ...], config: Any) -> None:
        for key in _keys(str(target), workload):
            self._history.tell(key, config)

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        key = ("" if target is None else "/".join(target_key(target)), workload)
        best = [inp for inp in self._history.measured(key) if in_space(inp) is not False]
        return self._history.told.get(key, best[0].config if best else None)


def _keys(target: str, workload: tuple[Any, ...]) -> list[Key]:
    """What a record of `target` answers: its kind and model, its kind, and no target at all."""
    kind, model = target_key(target)
    return [(key, workload) for key in {f"{kind}/{model}", f"{kind}/", ""}]


apply_history_best = ApplyHistoryBest
