"""What a cost model is told of configurations: a table for each knob, looked up by digits, so that a whole space is
described in one go.

knob      the numbers of `ConfigEntity.get_flatten_feature`: the lengths of the loops of a split, the values of knobs;
          and for every two knobs that are sizes the logarithm of their product, since what fits a memory and how much
          is reused are products of tiles, which trees of little depth cannot build
itervar   besides, for each loop of a split: the logarithms of its length, of the product of the lengths down to it and
          of that from it on, and whether its length is odd

All are read off the knobs; no program is made for them.  Between tasks of one template the numbers in their arguments
are features, too.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from te_lite.errors import require

from ..errors import TemplateError
from ..knob import Array, Entity, KnobSpace, OtherOptionSpace, knob_numbers
from ..space import ConfigSpace
from ..split import SplitEntity, SplitSpace

FEATURE_TYPES = ("knob", "itervar")


class FeatureTable:
    """float32 rows for indices of a space.  Raises TemplateError for an unknown feature type."""

    def __init__(self, space: ConfigSpace, feature_type: str) -> None:
        law = f"feature_type must be one of {', '.join(FEATURE_TYPES)}"
        require(feature_type in FEATURE_TYPES, TemplateError, "features", law, got=feature_type)
        self.space = space
        numbers = _itervar_numbers if feature_type == "itervar" else knob_numbers
        self._tables = [
            np.array([numbers(knob, e) for e in knob.entities], np.float32) for knob in space.space_map.values()
        ]
        sizes = {k: _log_sizes(knob) for k, knob in enumerate(space.space_map.values())}
        self._pairs = list(combinations([(k, logs) for k, logs in sizes.items() if logs is not None], 2))

    @property
    def columns(self) -> int:
        singles: int = sum(t.shape[1] for t in self._tables)
        return singles + len(self._pairs)

    def rows(self, indices: Array) -> Array:
        """float32 [n, columns] for int64 [n]."""
        digits = self.space.digits(indices)
        singles = [t[digits[:, k]] for k, t in enumerate(self._tables)]
        products = [(a[digits[:, k]] + b[digits[:, m]])[:, None] for (k, a), (m, b) in self._pairs]
        return np.concatenate([*singles, *products], axis=1)


def _log_sizes(knob: KnobSpace) -> Array | None:
    """The logarithm of each choice as a size, float32: the innermost length of a split, a positive number; None for
    knobs that are no sizes."""
    numbers = [knob_numbers(knob, e)[-1] for e in knob.entities]
    sized = isinstance(knob, SplitSpace) or (isinstance(knob, OtherOptionSpace) and min(numbers) > 0)
    return np.log2(np.array(numbers, np.float32)) if sized else None


def _itervar_numbers(knob: KnobSpace, entity: Entity) -> list[float]:
    numbers = knob_numbers(knob, entity)
    if isinstance(knob, SplitSpace) and isinstance(entity, SplitEntity):
        lengths = np.array(entity.lengths(knob.axis.length), np.float64)
        logs = np.log2(lengths)
        numbers = [*numbers, *logs, *np.cumsum(logs), *np.cumsum(logs[::-1])[::-1], *(lengths % 2)]
    return [float(x) for x in numbers]


def numbers_in(args: Any) -> list[float]:
    """The numbers in arguments of a task, in order; 0 for anything else."""
    if isinstance(args, list | tuple):
        return [x for a in args for x in numbers_in(a)]
    return [float(args) if isinstance(args, int | float) else 0.0]
