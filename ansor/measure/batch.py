"""Candidates that are measured together, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.tasks.measure_values import Baseline, MeasureInput, MeasureResult, Spent
from ..core.tasks.task import SearchTask
from ..records.lines import Record


@dataclass(frozen=True, eq=False)
class Batch:
    """Candidates under way; `results` by number, from `first` on, as far as they are known, None for one not begun.

    A `baseline` is one program that nobody searched for, which is no trial.  `spent` is where its seconds go.
    """

    task: SearchTask
    policy: Any
    inputs: tuple[MeasureInput, ...]
    first: int
    results: dict[int, MeasureResult | None]
    baseline: Baseline | None = None
    spent: Spent = field(default_factory=Spent)

    @property
    def complete(self) -> bool:
        return len(self.results) == len(self.inputs)

    @property
    def measured(self) -> list[Record]:
        """Its candidates in order, each with its result, without those whose time was up before they began."""
        known = [(inp, self.results.get(number)) for number, inp in enumerate(self.inputs, self.first)]
        return [(inp, result) for inp, result in known if result is not None]
