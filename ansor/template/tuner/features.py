"""What a cost model is told of configurations: one table per knob, looked up by digits, so that a whole space is
described in one go.

knob      the numbers of `ConfigEntity.get_flatten_feature`: the lengths of the loops of a split, the values of knobs
itervar   besides, for each loop of a split its length and the products of the lengths from the outside and from the
          inside, as logarithms, and how many configurations of each knob divide evenly into two; nothing is lowered
"""

from __future__ import annotations

import numpy as np

from ansor.template.knob import Array, Entity, KnobSpace, knob_numbers
from ansor.template.space import ConfigSpace
from ansor.template.split import SplitEntity, SplitSpace

FEATURE_TYPES = ("knob", "itervar")


class FeatureTable:
    """float32 rows for indices of a space."""

    def __init__(self, space: ConfigSpace, feature_type: str) -> None:
        self.space = space
        numbers = _itervar_numbers if feature_type == "itervar" else knob_numbers
        self._tables = [
            np.array([numbers(knob, e) for e in knob.entities], np.float32) for knob in space.space_map.values()
        ]

    def rows(self, indices: Array) -> Array:
        """float32 [n, columns]."""
        digits = self.space.digits(indices)
        return np.concatenate([t[digits[:, k]] for k, t in enumerate(self._tables)], axis=1)


def _itervar_numbers(knob: KnobSpace, entity: Entity) -> list[float]:
    numbers = knob_numbers(knob, entity)
    if isinstance(knob, SplitSpace) and isinstance(entity, SplitEntity):
        lengths = np.array(entity.lengths(knob.axis.length), np.float64)
        logs = np.log2(lengths)
        numbers = [*numbers, *logs, *np.cumsum(logs), *np.cumsum(logs[::-1]), *(lengths % 2)]
    return [float(x) for x in numbers]
