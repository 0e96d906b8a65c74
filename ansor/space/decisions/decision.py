"""What a kind of decision is: everything that the search wants to know about it, in one class.

    column = one length of a tile | one length of a grid | one choice
    tile   = the lengths of one undecided split, outermost first (its outermost loop is the rest, and has no column)
    grid   = the lengths of several undecided splits that only go together as a table has them
    choice = anything else that differs between the programs of one loop structure

    space      which stages have it, and how many columns it takes                     parts
    sampling   how it is drawn, for many rows at once                                  draw
    programs   what its numbers are in lanes, where they are no extents                lanes, simplest
    states     the steps that it adds to those of a sketch, and its number in them     apply, write
    parsing    its number in the steps of a record                                     read, count
    limits     which rows sampling could not have drawn                                fits
    evolution  how rows are changed in it                                              mutate

Everybody else goes through the table of all kinds (`table.py`) and knows none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from te_lite.schedule.step import Length, Step

from ...core.target.hardware import HardwareParams
from ...core.target.target import Target
from ...core.values.options import SketchOptions
from .draw import Index, Mask, Matrix, below
from .factor_tables import PointTable

# ---------------------------------------------------------------------------------------------- what there is to decide


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


Columns = tuple[int, ...]
Numbers = Mapping[int, Any]
"""A number for each stage that has the decision: ints or lanes, or None while they are undecided."""


class Phase(IntEnum):
    """When a kind is drawn."""

    FREE = 0
    """At first: nothing limits it."""
    LENGTHS = 1
    """The lengths of the tiles."""
    BOUNDED = 2
    """From the extents of all loops, which the lengths decide."""


@dataclass(frozen=True)
class Draft:
    """Rows that are being drawn (int64 [n, width], ones at first); every kind fills in its own columns.

    `small`: so many rows needed more shared memory than a block has that reductions are to get tiles of 1.
    """

    sketch: State
    choices: tuple[Choice, ...]
    rows: Matrix
    rng: np.random.Generator
    setting: Setting
    small: bool = False
    inferred: Bounds | None = None

    @property
    def bounds(self) -> Bounds:
        """The extents of all rows as lanes, for what is drawn in the phase `BOUNDED`."""
        assert self.inferred is not None
        return self.inferred

    def number(self, kind: str, stage: int) -> Any:
        """What was drawn for another kind: int64 [n], or 0 where the stage has no such choice."""
        return next((self.rows[:, c.column] for c in self.choices if (c.kind, c.stage) == (kind, stage)), 0)


P = TypeVar("P", bound=Part)


class Decision(ABC, Generic[P]):
    """One kind of decision about the programs of a sketch.

    name          what its parts and its mutation are called
    cpu_weight    how often it is mutated, relative to other kinds, on a CPU; None where there is no such decision
    gpu_weight    the same on a GPU
    phase         when it is drawn
    beside        the kind with which its columns stand stage by stage; they come in the order of the table otherwise
    turn          when its steps come, and with which kinds they come stage by stage
    last_first    its steps come from the last stage to the first
    shapes_steps  its numbers decide which steps there are, and not only the numbers in them
    """

    name: ClassVar[str]
    cpu_weight: ClassVar[float | None] = None
    gpu_weight: ClassVar[float | None] = None
    phase: ClassVar[Phase] = Phase.FREE
    beside: ClassVar[str] = ""
    turn: ClassVar[int] = 100
    last_first: ClassVar[bool] = False
    shapes_steps: ClassVar[bool] = False

    def weight(self, target: Target) -> float | None:
        """How often it is mutated; None on targets that do not have it."""
        return self.gpu_weight if target.is_gpu else self.cpu_weight

    @abstractmethod
    def parts(self, sketch: State, setting: Setting) -> Sequence[P]:
        """What there is to decide about a sketch; the columns are still to be given out."""

    @abstractmethod
    def draw(self, parts: Sequence[P], draft: Draft) -> None:
        """Fill in the columns of `parts` at random.  No Python `if` on an extent, no loop over rows."""

    @abstractmethod
    def mutate(self, parts: tuple[P, ...], rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Changed copies of `rows` (int64 [n, width]), and which of them differ (bool [n])."""

    def lanes(self, given: Numbers, bounds: Bounds, others: Mapping[str, Numbers]) -> Numbers:
        """What the numbers `given` mean in programs of these bounds; ints or lanes, whose truth is not to be asked.

        `others` has the numbers of the kinds before it in the table.
        """
        return given

    def simplest(self, meant: Numbers, bounds: Bounds) -> Numbers:
        """The least numbers of programs that differ from those of `meant`, which `lanes` gave, by loops of extent 1."""
        return meant

    def apply(self, state: State, k: int, numbers: Numbers, hardware: HardwareParams) -> State:
        """The state with the steps for stage `k`, if any; an undecided number is None."""
        return state

    def write(self, step: Step, numbers: tuple[Length, ...]) -> Step:
        """A step that `apply` made, or a split of the sketch, with its undecided numbers replaced."""
        assert isinstance(step, Split)
        return replace(step, lengths=numbers)

    def read(self, step: Step) -> tuple[Length, ...] | None:
        """The numbers in a step, None where undecided; None for a step that holds none of this kind."""
        return step.lengths if isinstance(step, Split) else None

    def count(self, steps: Sequence[Step]) -> Mapping[int, int]:
        """For a kind that shapes steps: its number for each stage that the steps behind a sketch say."""
        return {}

    def rests_on_extents(self, state: State, numbers: Mapping[int, int]) -> bool:
        """For a kind that shapes steps: extents, which `state` lacks, decide whether these numbers mean its steps."""
        return False

    def fits(self, parts: tuple[P, ...], rows: Matrix, sketch: State, hardware: HardwareParams) -> Mask:
        """Which rows (int64 [n, width]) have numbers that could have been drawn: bool [n]; asked after mutations."""
        return np.ones(len(rows), np.bool_)


# -------------------------------------------------------------------------------- kinds that are one number for a stage


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
