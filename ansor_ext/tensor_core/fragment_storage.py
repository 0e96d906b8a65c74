"""How a warp stores a stage in fragments: in tiles, spread over its lanes as an instruction wants them.

A stage in scope `fragment.<instruction>.<operand>` is stored as `[tiles, values, 32 lanes]`: its last two axes, in the
order of its storage, are cut into tiles of the operand, the axes before them number more tiles.  So the elements of
lane l are at 32 * x + l, which is what `thread_parts.py` makes arrays of the thread of: `[tiles, values]`.

In scope `fragment.<instruction>.rows` it has one value for each row of tiles of d, in every lane that has elements of
the row: its last axis are the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from te_lite.bounds.loop_scope import LANES
from te_lite.errors import LowerError, require
from te_lite.expr.lanes import row_major

from .fragment import Fragment
from .mma import MMA, OPERANDS, ROWS, Mma, mma


@dataclass(frozen=True)
class FragmentStorage:
    """What a scope of fragments says: the instruction and its operand (`a`, `b` or `d`), or `rows`."""

    op: Mma
    operand: str

    @property
    def fragment(self) -> Fragment:
        return self.op.fragment(self.operand)

    @property
    def element(self) -> str:
        """What the instruction multiplies."""
        return self.op.element.name

    @property
    def tile_size(self) -> int:
        """The elements of a tile, in all lanes."""
        return self.fragment.values * LANES

    def shape(self, name: str, extents: Sequence[int]) -> tuple[int, int, int]:
        """Of what a stage of these extents, in the order of storage, is stored in.

        Raises LowerError unless it has whole tiles.
        """
        tile = self.fragment.rows, self.fragment.columns
        extents = self._by_rows(extents, 1)
        whole = len(extents) >= 2 and all(n % t == 0 for n, t in zip(extents[-2:], tile, strict=True))
        require(whole, LowerError, name, f"fragments of it must be whole tiles of {list(tile)}", shape=list(extents))
        return prod(extents) // prod(tile), self.fragment.values, LANES

    def _by_rows(self, axes: Sequence[Any], column: int) -> Sequence[Any]:
        """Extents or indices with those of columns, where a row has one value."""
        return (*axes, column) if self.operand == ROWS else axes

    def tile(self, extents: Sequence[int], at: Sequence[Any]) -> Any:
        """The number of the tile of an element."""
        f = self.fragment
        extents, at = self._by_rows(extents, 1), self._by_rows(at, 0)
        counts = (*extents[:-2], extents[-2] // f.rows, extents[-1] // f.columns)
        numbers = (*at[:-2], at[-2] // f.rows, at[-1] // f.columns)
        return sum([x * stride for x, stride in zip(numbers, row_major(counts), strict=True)])

    def index(self, extents: Sequence[int], at: Sequence[Any], asking: Any = 0) -> Any:
        """Where the lane `asking` has an element, or where it is if one lane alone has it."""
        row, column = self._by_rows(at, 0)[-2:]
        lane, value = self.fragment.holder(row, column, asking)
        return self.tile(extents, at) * self.tile_size + value * LANES + lane


def fragment_storage(scope: str) -> FragmentStorage | None:
    """What a scope says of fragments; None for other scopes."""
    base, _, name = scope.partition(".")
    instruction, _, operand = name.partition(".")
    there = base == "fragment" and instruction in MMA and operand in (*OPERANDS, ROWS)
    return FragmentStorage(mma(instruction), operand) if there else None
