"""The decisions of a sketch, as columns of an integer matrix: one row is one program.

    column = one length of a tile | one choice
    tile   = the lengths of one undecided split, outermost first (its outermost loop is the rest, and has no column)
    choice = anything else that differs between the programs of one loop structure

What changes the loop structure is no column but makes another `Variant`: the sketch itself, and where the movable
stages are computed (inline, root, or inside a loop).  All variants of a sketch share its columns, so a row can move
from one to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from te_lite.state import State

from .locations import Place

Matrix = np.ndarray[Any, np.dtype[np.int64]]
"""int64 [number of programs, `Space.width`]."""

ChoiceKind = Literal["unroll", "fetch", "threads", "parallel", "vectorize"]


@dataclass(frozen=True, slots=True)
class Tile:
    """The split at position `step` of the sketch's steps: columns `first .. first + parts - 1`.

    The product of the columns divides `extent`; the last one is at most `max_innermost`.  `levels` names what the
    lengths are on a GPU ("vthread", "thread" or "serial"), for the limits of a block; all "serial" on a CPU.
    """

    step: int
    stage: int
    extent: int
    first: int
    parts: int
    max_innermost: int
    reduce: bool
    levels: tuple[str, ...]

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """One column that holds one of `values` (sorted), about stage `stage` of the sketch.

    unroll     the value of `auto_unroll_max_step`
    fetch      the vector width with which a shared copy is fetched
    threads    threads of a block of a kernel without tiles
    parallel   how many of the outermost loops run in parallel, fused (0: none)
    vectorize  how many of the innermost loops are lanes, fused (0: none)
    """

    kind: ChoiceKind
    stage: int
    column: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """All decisions of one sketch; the stages `movable` have a place to choose (last first; none on a GPU)."""

    sketch: State
    tiles: tuple[Tile, ...]
    choices: tuple[Choice, ...]
    movable: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        return sum(t.parts for t in self.tiles) + len(self.choices)


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
