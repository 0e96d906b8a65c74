"""A few programs as one function of arrays: the shapes of a call say its sizes, and these which program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from te_lite.schedule.state import State
from te_lite.timing import Timing

from .choice import Scores
from .sizes import Sizes

MOST_DECIDED = 4096


class OpenProgram(Protocol):
    """A program for all sizes as a function of arrays: `OpenModule`, `OpenCudaModule`."""

    source: str

    def sizes(self, arrays: Sequence[Any]) -> Sizes:
        """The sizes of these arrays.  Raises CallError or DeviceError where they do not fit."""

    def at_sizes(self, sizes: Sizes) -> Any:
        """The function of arrays of some sizes."""


class OpenFunction:
    """Call it with one array per argument, in order, as those of one size are called; outputs are written in place.

    `programs` are functions for all sizes, `states` how they are scheduled.  Which one runs is decided once for the
    sizes of a call, by the times that are predicted.
    """

    def __init__(self, states: Sequence[State], programs: Sequence[OpenProgram], scores: Scores) -> None:
        self.states, self.programs = tuple(states), tuple(programs)
        self._scores = scores
        self._decided: dict[tuple[int, ...], int] = {}

    @property
    def source(self) -> str:
        """The texts of the programs, one after the other."""
        return "\n".join([program.source for program in self.programs])

    def __call__(self, *arrays: Any) -> None:
        """Run once.  Raises CallError (on a GPU DeviceError) where arrays do not fit, and for sizes out of bounds."""
        self.at(arrays)(*arrays)

    def time(self, *arrays: Any, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0) -> Timing:
        """See `codegen_c.Module` and `codegen_cuda.CudaFunction`."""
        timing: Timing = self.at(arrays).time(*arrays, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)
        return timing

    def at(self, arrays: Sequence[Any]) -> Any:
        """The function that runs for these arrays.  Raises as a call does."""
        sizes = self.programs[0].sizes(arrays)
        return self.programs[self.number(tuple(sizes.values()))].at_sizes(sizes)

    def number(self, values: tuple[int, ...]) -> int:
        """The number of the program that runs at these sizes, in the order in which arguments have them."""
        if values not in self._decided:
            if len(self._decided) == MOST_DECIDED:
                self._decided.pop(next(iter(self._decided)))
            self._decided[values] = self._scores.best_at(values)
        return self._decided[values]
