"""A few programs as one function of arrays: the shapes of a call say its sizes, and these which program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen_c.errors import CallError
from te_lite.schedule.state import State
from te_lite.timing import Timing

from .call import OpenModule
from .choice import Scores
from .sizes import sizes_of

MOST_DECIDED = 4096


class OpenFunction:
    """Call it with one array per argument, in order; outputs are written in place.

    `programs` are functions for all sizes, `states` how they are scheduled.  Which one runs is decided once for the
    sizes of a call, by the times that are predicted.
    """

    def __init__(self, states: Sequence[State], programs: Sequence[OpenModule], scores: Scores) -> None:
        self.states, self.programs = tuple(states), tuple(programs)
        self._scores = scores
        self._decided: dict[tuple[int, ...], int] = {}

    @property
    def source(self) -> str:
        """The C texts of the programs, one after the other."""
        return "\n".join([program.source for program in self.programs])

    def __call__(self, *arrays: Any) -> None:
        """Run once.  Raises CallError when the arrays do not fit, and for sizes out of their bounds."""
        self.program(arrays)(*arrays)

    def time(self, *arrays: Any, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0) -> Timing:
        """See `codegen_c.Module`."""
        return self.program(arrays).time(*arrays, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)

    def program(self, arrays: Sequence[Any]) -> OpenModule:
        """The program that runs for these arrays.  Raises CallError where sizes are out of bounds or differ."""
        first = self.programs[0]
        sizes = sizes_of(first.entry_name, first.arguments, arrays, CallError)
        return self.programs[self.number(tuple(sizes.values()))]

    def number(self, values: tuple[int, ...]) -> int:
        """The number of the program that runs at these sizes, in the order in which arguments have them."""
        if values not in self._decided:
            if len(self._decided) == MOST_DECIDED:
                self._decided.pop(next(iter(self._decided)))
            self._decided[values] = self._scores.best_at(values)
        return self._decided[values]
