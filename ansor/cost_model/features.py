"""Where a model takes the features of states from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ansor.features import VERSION, extract, schema_hash, state_features, states_features
from te_lite.errors import TeError
from te_lite.schedule.state import State

from ..core.target.hardware import HardwareParams
from ..core.target.registry import search_parts
from ..core.target.target import Target
from ..space.programs import Programs
from .api import Array
from .dataset import stacked


@dataclass(frozen=True)
class FeatureSource:
    """`of(state, hardware)` gives float32 [rows, columns]; `schema` names what the columns are, with a version.

    `population(programs, hardware)` gives those of all lanes at once, float32 [lanes, rows, columns];
    `many(states, hardware)` gives the same for each of many states, where that is cheaper than one by one.
    """

    schema: str
    of: Callable[[State, HardwareParams], Array]
    many: Callable[[Sequence[State], HardwareParams], Sequence[Array]] | None = None
    population: Callable[[Programs, HardwareParams], Array] = extract

    def rows(self, states: Sequence[State], hardware: HardwareParams) -> list[Array]:
        """float32 [rows, columns] of each state; an array without rows where a state has no features.

        Many states that are refused together are halved until those are alone that have none.
        """
        try:
            if self.many is not None and len(states) > 1:
                return list(self.many(states, hardware))
            return [self.of(state, hardware) for state in states]
        except TeError:
            if len(states) == 1:
                return [np.zeros((0, 1), np.float32)]
        half = len(states) // 2
        return self.rows(states[:half], hardware) + self.rows(states[half:], hardware)

    def stacked(self, states: Sequence[State], hardware: HardwareParams, columns: int) -> Array:
        """float32 [len(states), rows, columns]; a state without features has rows of zeros only."""
        rows = self.rows(states, hardware)
        return stacked([r if len(r) else np.zeros((1, columns), np.float32) for r in rows])


FEATURES = FeatureSource(f"{VERSION}-{schema_hash()}", state_features, states_features)


def source_of(target: Target) -> FeatureSource:
    """Where the features of programs of a target come from."""
    parts = search_parts(target.kind.name)
    found: FeatureSource = FEATURES if parts is None else parts.features
    return found
