"""What lowering asks about a stage that is not simply stored row by row: extensions answer, other stages need none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..expr.expr import Expr, Var
from ..loops.stmt import Stmt


@dataclass(frozen=True)
class HeldTile:
    """What a thread holds of a tile of sums: `value` counts its `values`, `loops` are those over rows and columns, by
    uid, in terms of it and of the thread."""

    value: Var
    values: int
    loops: dict[int, Expr]


class Layout:
    """How stage `k` of a program, by its `facts`, is stored; and what its loops are, where instructions fill it.

    `factor`: instructions multiply it, so that it must be zero beyond the edge.
    """

    factor = False

    def __init__(self, facts: Any, k: int) -> None:
        self.facts, self.k = facts, k

    def shape(self, extents: Sequence[int]) -> tuple[int, ...] | None:
        """The sizes of what a region is stored in; None where these are its own.  Raises LowerError."""
        return None

    def place(self, output: int, at: Sequence[Expr]) -> Expr:
        """The flat index of the element with these indices from the start of the region."""
        raise NotImplementedError

    def instruction(self, points: Any, depth: int) -> Stmt:
        """The statement that the loops from position `depth` on are.  Raises LowerError where they are none."""
        raise NotImplementedError

    def cleared(self, nests: Any, first: int) -> Stmt:
        """Sums set to the identity over the spatial loops from position `first` on."""
        raise NotImplementedError

    def held(self, points: Any, depth: int) -> HeldTile:
        """What a thread holds of the tile of sums that the loops from position `depth` on fill."""
        raise NotImplementedError
