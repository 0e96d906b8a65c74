"""The decisions of a sketch, as columns of an integer matrix: one row is one program.

What changes the loop structure is no column but makes another `Variant`: the sketch itself, and where the movable
stages are computed (inline, root, or inside a loop).  All variants of a sketch share its columns, so a row can move
from one to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from te_lite.schedule.state import State

from .decisions.draw import Matrix
from .decisions.parts import Choice, Grid, Part, Tile
from .decisions.table import Decisions
from .locations import Place


@dataclass(frozen=True)
class Space:
    """All decisions of one sketch; the stages `movable` have a place to choose (last first; none on a GPU).

    `decisions` are the kinds that its target has, in the order of their table.
    """

    sketch: State
    tiles: tuple[Tile, ...]
    choices: tuple[Choice, ...]
    decisions: Decisions
    movable: tuple[int, ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def width(self) -> int:
        return sum(p.width for p in self.parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The tiles, grids and choices, in the order of their columns."""
        return (*self.tiles, *self.grids, *self.choices)

    @property
    def splits(self) -> dict[int, tuple[int, ...]]:
        """The columns of the undecided splits of the sketch, by their positions in its steps."""
        tiles = {t.step: tuple(range(t.first, t.first + t.parts)) for t in self.tiles}
        return {**tiles, **{step: columns for grid in self.grids for step, columns in grid.splits.items()}}

    def of(self, kind: str) -> tuple[Any, ...]:
        """The tiles and grids, or choices, of one kind, as its decision takes them."""
        return tuple([p for p in self.parts if p.kind == kind])


@dataclass(frozen=True)
class Variant:
    """A sketch with the movable stages put in their places."""

    space: Space
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Group:
    """Candidates of one variant: `rows` is int64 [n, space.width]."""

    variant: Variant
    rows: Matrix

    def __len__(self) -> int:
        return len(self.rows)


Population = tuple[Group, ...]
