"""Numbers of whole populations: worked out in Python at first, replayed from a trace once a variant comes again.

A population that is searched is described in every generation, most of the time with the variants of the one before.
Writing a trace takes as long as a few descriptions of some hundred rows, so a variant that is seen once gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from .choices import Variant
from .programs import Origin, Programs, RowPrograms
from .trace import Program, Trace

REMEMBERED = 64
COMES_AGAIN = 1
"""How often a variant was seen before it is recorded."""

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
        self._seen: dict[Hashable, tuple[Program, Meaning] | int] = {}  # the recording, or how often it came

    def replayed(self, programs: Programs, hardware: HardwareParams) -> ReplayedTrace[Meaning] | None:
        """The recording for the variant of these programs.

        None where the function itself must do: programs that are no rows, none at all, or a variant seen first; a
        single program is no reason to record.
        """
        if not isinstance(programs, RowPrograms) or programs.n < 1:
            return None
        origin = programs.origin
        key = origin.variant, origin.target, origin.hardware, hardware
        found = self._seen.pop(key, 0)
        if programs.n == 1 and found == 0:
            return None
        if isinstance(found, int) and programs.n > 1:
            found = self._record(origin, hardware) if found >= COMES_AGAIN else found + 1
        self._seen[key] = found
        if len(self._seen) > REMEMBERED:
            self._seen.pop(next(iter(self._seen)), None)
        return None if isinstance(found, int) else ReplayedTrace(*found, origin.columns)

    def _record(self, origin: Origin, hardware: HardwareParams) -> tuple[Program, Meaning]:
        trace, programs = _symbolic(origin.variant, origin.target, origin.hardware)
        lanes, meaning = self._function(programs, hardware)
        return Program(trace, lanes), meaning


@lru_cache(maxsize=REMEMBERED)
def _symbolic(variant: Variant, target: Target, hardware: HardwareParams) -> tuple[Trace, Programs]:
    """Rows of a variant as symbols, and the trace that they are written to.

    All functions that are recorded for the variant share it, so that bounds are inferred once for all of them.
    """
    trace = Trace()
    n = trace.input(1)
    columns = [trace.input(np.ones(1, np.int64)) for _ in range(variant.space.width)]
    return trace, Origin(variant, columns, target, hardware).programs(n)
