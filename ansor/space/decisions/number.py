"""Kinds of decisions that are one number for a stage: drawn and mutated uniformly among its values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from te_lite.schedule.state import State

from .decision import Decision, Draft
from .draw import Index, Mask, Matrix, below
from .parts import Choice, Setting


class Number(Decision[Choice]):
    """A column for each stage that has the decision."""

    @abstractmethod
    def values(self, sketch: State, setting: Setting) -> Mapping[int, tuple[int, ...]]:
        """The values of each stage that has the decision, sorted; stages in increasing order."""

    def parts(self, sketch: State, setting: Setting) -> Sequence[Choice]:
        return [Choice(self.name, k, 0, values) for k, values in self.values(sketch, setting).items()]

    def draw(self, parts: Sequence[Choice], draft: Draft) -> None:
        for c in parts:
            drawn = draft.rng.integers(len(c.values), size=len(draft.rows))
            draft.rows[:, c.column] = np.array(c.values)[drawn]

    def mutate(self, parts: tuple[Choice, ...], rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Gives one of the numbers another of its values, both drawn uniformly."""
        table = _values_table(parts)
        if table is None:
            return rows.copy(), np.zeros(len(rows), np.bool_)
        columns, values, counts = table
        n = np.arange(len(rows))
        choice = rng.integers(len(columns), size=len(rows))
        present = np.argmax(values[choice] == rows[n, columns[choice]][:, None], axis=1)
        other = below(counts[choice] - 1, rng)
        out = rows.copy()
        out[n, columns[choice]] = values[choice, other + (other >= present)]
        return out, np.ones(len(rows), np.bool_)


@lru_cache(maxsize=1024)
def _values_table(parts: tuple[Choice, ...]) -> tuple[Index, Index, Index] | None:
    """Columns [c], values [c, most values] and the number of values [c] of the choices that have several."""
    choices = [c for c in parts if len(c.values) > 1]
    if not choices:
        return None
    counts = np.array([len(c.values) for c in choices], np.int64)
    values = np.full((len(choices), counts.max()), np.iinfo(np.int64).max)
    for k, c in enumerate(choices):
        values[k, : len(c.values)] = c.values
    return np.array([c.column for c in choices], np.int64), values, counts
