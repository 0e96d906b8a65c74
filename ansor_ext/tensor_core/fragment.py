"""Fragments: which thread of a warp holds which element of a tile in registers.

A tensor core reads and writes tiles that the 32 threads (lanes) of a warp hold together, some values each.  Where an
element of the tile is, is written in digits, lowest first, as one counts hours and minutes:

    a 16x8 tile of sums     lane  = 4 of (0 rows, 2 columns), 8 of (1, 0)
                            value = 2 of (0, 1), 2 of (8, 0)

so lane 4*g + q has in value 2*u + v the element at row g + 8*u, column 2*q + v (PTX ISA, warp-level matrix
instructions).  A digit moves along rows or along columns, never both, so a place tells its holder by `//` and `%`, too.
Lanes, values, rows and columns may be ints, arrays of NumPy, or expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True, slots=True)
class Digit:
    """`extent` values; one more is `row` rows and `column` columns further, of which one is 0, or both: all have the
    same element."""

    extent: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tile of `rows` x `columns` elements in the registers of a warp."""

    rows: int
    columns: int
    lane: tuple[Digit, ...]
    value: tuple[Digit, ...]

    @property
    def lanes(self) -> int:
        """The threads that hold it together."""
        return prod([d.extent for d in self.lane])

    @property
    def values(self) -> int:
        """The elements that each of them has."""
        return prod([d.extent for d in self.value])

    def place(self, lane: Any, value: Any) -> tuple[Any, Any]:
        """The row and the column of what `lane` has as its value number `value`."""
        row: Any = 0
        column: Any = 0
        for digits, number in ((self.lane, lane), (self.value, value)):
            for d in digits:
                row, column = row + number % d.extent * d.row, column + number % d.extent * d.column
                number = number // d.extent
        return row, column

    def holder(self, row: Any, column: Any, asking: Any = 0) -> tuple[Any, Any]:
        """The lane that has an element, and the number of its value: the inverse of `place`.

        Of lanes that have the same element it is the one with the digits of the lane `asking`.
        """
        return _number(self.lane, row, column, asking), _number(self.value, row, column, 0)


def _number(digits: Sequence[Digit], row: Any, column: Any, asking: Any) -> Any:
    number: Any = 0
    weight = 1
    for d in digits:
        at = row // d.row if d.row else column // d.column if d.column else asking // weight
        number, weight = number + at % d.extent * weight, weight * d.extent
    return number
