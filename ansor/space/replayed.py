"""Numbers of whole populations: worked out in Python at first, replayed from a trace once a variant comes again.

A population that is searched is described in every generation, most of the time with the variants of the one before.
Writing a trace takes as long as a few descriptions of some hundred rows, so a variant that is seen once gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ..core.hardware import HardwareParams
from .programs import Origin, Programs, RowPrograms
from .trace import Program, Trace

REMEMBERED = 64

Meaning = TypeVar("Meaning")
Function = Callable[[Programs, HardwareParams], tuple[Sequence[Any], Meaning]]
"""Gives lanes (no plain numbers), and what they mean, which is the same for all rows of a variant."""


@dataclass(frozen=True)
class ReplayedTrace(Generic[Meaning]):
    """A recording, with the columns of the rows that it is replayed for."""

    program: Program
    meaning: Meaning
    columns: list[Any]

    def lanes(self, chunk: slice) -> list[Any]:
        """The lanes `chunk` of what the function gives."""
        return self.program([chunk.stop - chunk.start, *[column[chunk] for column in self.columns]])


class Replayer(Generic[Meaning]):
    """Remembers the recordings of a function for the variants seen last."""

    def __init__(self, function: Function[Meaning]) -> None:
        self._function = function
        self._seen: dict[Hashable, tuple[Program, Meaning] | None] = {}

    def replayed(self, programs: Programs, hardware: HardwareParams) -> ReplayedTrace[Meaning] | None:
        """The recording for the variant of these programs.

        None where the function itself must do: programs that are no rows, one or none, or a variant seen first.
        """
        if not isinstance(programs, RowPrograms) or programs.n < 2:
            return None
        origin = programs.origin
        key = origin.variant, origin.target, origin.hardware, hardware
        again = key in self._seen
        found = self._seen.pop(key, None)
        if found is None and again:
            found = self._record(origin, hardware)
        self._seen[key] = found
        if len(self._seen) > REMEMBERED:
            self._seen.pop(next(iter(self._seen)), None)
        return None if found is None else ReplayedTrace(*found, origin.columns)

    def _record(self, origin: Origin, hardware: HardwareParams) -> tuple[Program, Meaning]:
        trace = Trace()
        n = trace.input(1)
        columns = [trace.input(column[:1]) for column in origin.columns]
        lanes, meaning = self._function(replace(origin, columns=columns).programs(n), hardware)
        return Program(trace, lanes), meaning
