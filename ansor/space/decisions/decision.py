"""What a kind of decision is: everything that the search wants to know about it, in one class.

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
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from te_lite.schedule.step import Length, Step

from ...core.target.hardware import HardwareParams
from ...core.target.target import Target
from .draw import Mask, Matrix
from .parts import Choice, Part, Setting

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
