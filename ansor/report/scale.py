"""Numbers to places on an axis, and where its ticks are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_TICKS = 6
STEPS = (1, 2, 5, 10)
DECADE = 10
"""A logarithmic scale that is no longer than this has ticks at equal distances."""


@dataclass(frozen=True)
class Scale:
    """From `low` .. `high` to 0 .. 1, by the logarithm where `log` says so."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a number is, from 0 to 1; numbers beyond an end are at that end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if high <= low:
            return 0.5
        return math.log(at / low) / math.log(high / low) if self.log else (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round numbers within the scale, some `MOST_TICKS` at most."""
        return self._powers() if self.log and self.high > DECADE * self.low else self._multiples()

    def _multiples(self) -> list[float]:
        rough = max(self.high - self.low, abs(self.high) * 1e-9, 1e-300) / MOST_TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * s for s in STEPS if power * s >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]

    def _powers(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for kept in ((1, 2, 5), (1, 3), (1,)):
            found = [d * 10.0**p for p in range(first, last + 1) for d in kept]
            inside = [x for x in found if self.low * (1 - 1e-9) <= x <= self.high * (1 + 1e-9)]
            if len(inside) <= MOST_TICKS:
                return inside
        every = -(-len(inside) // MOST_TICKS)
        return inside[::every]


def spanning(values: Sequence[float], log: bool = False, room: float = 1.0) -> Scale:
    """A scale over positive numbers (any numbers without `log`), a `log` one `room` times as wide at both ends."""
    low, high = min(values), max(values)
    return Scale(low / room, high * room, True) if log else Scale(low, high)
