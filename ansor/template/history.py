"""The best configurations of a log, as a dispatch context.

with ApplyHistoryBest("vta.log"):        or        with apply_history_best("vta.log"):
    lib = build(...)
"""

from __future__ import annotations

from typing import Any

from ansor.target import Target

from .dispatch import DispatchContext
from .record import Source, pairs_of, target_key


class ApplyHistoryBest(DispatchContext):
    """The best error-free records of a log, several logs, or pairs; the least mean cost wins.

    Targets are told apart by kind and model (`record.target_key`); a target without a model gets the best of any.
    """

    def __init__(self, records: Source | None) -> None:
        self._best: dict[tuple[str, tuple[Any, ...]], tuple[float, Any]] = {}
        if records is not None:
            self.load(records)

    def load(self, records: Source) -> None:
        """Add records.  Raises JournalError when a file cannot be read."""
        for inp, res in pairs_of(records):
            if not res.ok:
                continue
            kind, model = target_key(inp.target)
            for key in {f"{kind}/{model}", f"{kind}/", ""}:
                known = self._best.get((key, inp.workload))
                if known is None or res.cost < known[0]:
                    self._best[key, inp.workload] = (res.cost, inp.config)

    def update(self, target: Target | str, workload: tuple[Any, ...], config: Any) -> None:
        kind, model = target_key(str(target))
        for key in {f"{kind}/{model}", f"{kind}/", ""}:
            self._best[key, workload] = (0.0, config)

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        key = "" if target is None else "/".join(target_key(target))
        found = self._best.get((key, workload))
        return None if found is None else found[1]


apply_history_best = ApplyHistoryBest
