"""What there is to decide about the programs of a sketch, as columns of an integer matrix: one row is one program.

column = one length of a tile | one length of a grid | one choice
tile   = the lengths of one undecided split, outermost first (its outermost loop is the rest, and has no column)
grid   = the lengths of several undecided splits that only go together as a table has them
choice = anything else that differs between the programs of one loop structure
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...core.target.hardware import HardwareParams
from ...core.target.target import Target
from ...core.values.options import SketchOptions
from .point_table import PointTable


@dataclass(frozen=True, slots=True)
class Tile:
    """The split at position `step` of the sketch's steps: columns `first .. first + parts - 1`.

    The product of the columns divides one of `extents`: that of the loop, and longer ones over which the last tile
    runs.  The last column is at most `max_innermost`.  `levels` names what the lengths are on a GPU ("vthread",
    "thread" or "serial"), for the limits of a block; all "serial" on a CPU.
    """

    kind: ClassVar[str] = "tile sizes"
    step: int
    stage: int
    extents: tuple[int, ...]
    first: int
    parts: int
    max_innermost: int
    reduce: bool
    levels: tuple[str, ...]

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.parts)

    @property
    def width(self) -> int:
        return self.parts

    def at(self, first: int) -> Tile:
        """The same tile with its columns from `first` on."""
        return replace(self, first=first)


@dataclass(frozen=True, slots=True)
class Choice:
    """One column that holds one of `values` (sorted), about stage `stage` of the sketch; `kind` names its decision."""

    kind: str
    stage: int
    column: int
    values: tuple[int, ...]

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + 1)

    @property
    def width(self) -> int:
        return 1

    def at(self, first: int) -> Choice:
        """The same choice in column `first`."""
        return replace(self, column=first)


@dataclass(frozen=True, slots=True)
class Grid:
    """The undecided splits at the positions `steps` of the sketch's steps, with so many lengths each: columns `first`,
    `first` + 1, ...  They are one of the points of `table`, about stage `stage`."""

    kind: ClassVar[str] = Tile.kind
    stage: int
    steps: tuple[tuple[int, int], ...]
    table: PointTable
    first: int = 0

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.width)

    @property
    def width(self) -> int:
        return sum(count for _, count in self.steps)

    @property
    def splits(self) -> dict[int, tuple[int, ...]]:
        """The columns of each split, by its position."""
        out, first = {}, self.first
        for step, count in self.steps:
            out[step] = tuple(range(first, first + count))
            first += count
        return out

    def at(self, first: int) -> Grid:
        """The same grid with its columns from `first` on."""
        return replace(self, first=first)


Part = Tile | Grid | Choice


@dataclass(frozen=True)
class Setting:
    """What the kinds of decisions may know beside the sketch: where its programs run, and the options of the search."""

    target: Target
    hardware: HardwareParams
    options: SketchOptions

    @staticmethod
    def of(target: Target | str, hardware: HardwareParams, options: SketchOptions | None = None) -> Setting:
        """The setting with what is not given filled in."""
        target = Target.of(target)
        return Setting(target, hardware.completed(target), options or SketchOptions())
