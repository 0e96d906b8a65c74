"""Mutations of one's own, whose answers are checked: a row that is no program would fail far from where it was made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from te_lite.errors import require

from ..core.errors import PartError
from ..core.values.checks import require_part
from ..core.values.parts import asking_own
from ..space.decisions.decision import Grid, Tile
from ..space.decisions.draw import Mask, Matrix
from ..space.spaces import Space
from .mutation import CPU_MUTATIONS, GPU_MUTATIONS, Mutation

OWN = {id(m) for m in (*CPU_MUTATIONS, *GPU_MUTATIONS)}


@dataclass(frozen=True)
class Checked:
    """A mutation that is refused, by PartError, when it raises, or gives what is no rows of the space."""

    mutation: Mutation

    @property
    def name(self) -> str:
        return self.mutation.name

    @property
    def weight(self) -> float:
        return self.mutation.weight

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """What the mutation gives.

        Raises PartError for rows of another shape or dtype, or that are no programs, and for a mask that is not true.
        """
        subject = f"mutation {self.name!r}"
        with asking_own(subject, "apply"):
            answer = self.mutation.apply(rows.copy(), space, rng)
        law = "apply must give a pair, the changed rows and a mask of those that differ"
        require(isinstance(answer, tuple | list) and len(answer) == 2, PartError, subject, law, got=answer)
        changed: Matrix = np.asarray(answer[0])
        mask: Mask = np.asarray(answer[1])
        law = f"the rows must be int64 of shape {rows.shape}"
        ok = changed.shape == rows.shape and changed.dtype == np.int64
        require(ok, PartError, subject, law, dtype=str(changed.dtype), shape=changed.shape)
        law = f"the mask must be bool of shape {(len(rows),)}"
        ok = mask.shape == (len(rows),) and mask.dtype == np.bool_
        require(ok, PartError, subject, law, dtype=str(mask.dtype), shape=mask.shape)
        law = "the mask must be True for the rows that differ from those given, and for no others"
        wrong = np.flatnonzero(mask != (changed != rows).any(axis=1)).tolist()
        require(not wrong, PartError, subject, law, rows=wrong)
        require_rows(changed, space, subject)
        return changed, mask


def require_rows(rows: Matrix, space: Space, subject: str) -> None:
    """Raise PartError, naming `subject` and the first bad column, unless all rows are points of the space."""
    for part in space.parts:
        values = rows[:, part.columns]
        if isinstance(part, Tile):
            positive = (values > 0).all(axis=1)
            lengths = np.where(positive, values.prod(axis=1), 1)
            divides = np.any([extent % lengths == 0 for extent in part.extents], axis=0)
            good = positive & divides & (values[:, -1] <= part.max_innermost)
            law = f"lengths of a split must divide {part.extents[0]}, and the last be at most {part.max_innermost}"
        elif isinstance(part, Grid):
            good = part.table.holds(values)
            law = f"the lengths of stage {part.stage} must be a point of its table"
        else:
            good = np.isin(values[:, 0], part.values)
            law = f"a value of {part.kind} must be one of {part.values}"
        if not good.all():
            bad = values[np.argmin(good)].tolist()
            raise PartError(f"{subject}: {law}, got {bad} in columns {part.columns.start} to {part.columns.stop - 1}")


def checked(mutations: Sequence[Mutation]) -> tuple[Mutation, ...]:
    """The mutations, those that are not of this package checked whenever they are asked.

    Raises PartError for what is no list of mutations, an empty one, and a weight that is no number above 0.
    """
    ok = isinstance(mutations, list | tuple) and len(mutations) > 0
    require(ok, PartError, "mutations", "a list of mutations is needed", got=mutations)
    for one in mutations:
        require_part(one, Mutation, "mutations", "an object with name, weight and apply(rows, space, rng)")
        weight = one.weight
        ok = isinstance(weight, int | float) and 0 < weight < math.inf
        require(ok, PartError, f"mutation {one.name!r}", "the weight must be a positive number", got=weight)
    return tuple([m if id(m) in OWN else Checked(m) for m in mutations])
