"""Elements of fragments in lowering: where they are in their stage, and whether loops begin at a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from te_lite.errors import LowerError, require
from te_lite.expr.expr import BufferLoad, Const, Expr, Var, as_expr, binary
from te_lite.expr.visit import substitute
from te_lite.lowering.lower_facts import Facts

from .fragment_storage import FragmentStorage, fragment_storage


@dataclass(frozen=True)
class Operand:
    """An operand of an instruction: the stage that holds it, how, and the indices of one of its elements.

    The indices are in the order of storage and count from its start; `start` has the variables of the loops that are
    the instruction, as they are in its first turn.
    """

    low: Facts
    stage: int
    storage: FragmentStorage
    at: tuple[Expr, ...]
    start: Mapping[Var, Expr]

    @property
    def name(self) -> str:
        return self.low.stages[self.stage].op.name

    def moves(self) -> tuple[Expr, Expr]:
        """By what row and column differ from those of the first turn."""
        simplify = self.low.simplifier.simplify
        row, column = [simplify(binary("-", e, substitute(e, self.start))) for e in self.at[-2:]]
        return row, column

    def first(self) -> BufferLoad:
        """The first element of the tile.  Raises LowerError unless the loops begin at one."""
        simplify, f = self.low.simplifier.simplify, self.storage.fragment
        at = [simplify(substitute(e, self.start)) for e in self.at]
        beside = [simplify(binary("%", e, n)) for e, n in zip(at[-2:], (f.rows, f.columns), strict=True)]
        law = f"the loops of an instruction must begin at a tile of {[f.rows, f.columns]}"
        require(all(isinstance(e, Const) and e.value == 0 for e in beside), LowerError, self.name, law)
        regions = self.low.regions(self.stage)[: len(at)]
        extents = self.low.stages[self.stage].stored([int(r.extent) for r in regions])
        tile = as_expr(self.storage.tile(extents, at) * self.storage.tile_size)
        return BufferLoad(self.low.buffers[self.stage, 0], simplify(tile))


def operand(low: Facts, k: int, indices: Sequence[Expr], start: Mapping[Var, Expr]) -> Operand:
    """The element of stage k with these indices, from the start of its region.

    Raises LowerError where it is not kept in fragments.
    """
    found = fragment_storage(low.bounds.scopes[k])
    law = "an instruction of tensor cores works on fragments"
    require(found is not None, LowerError, low.stages[k].op.name, law, scope=low.bounds.scopes[k])
    assert found is not None
    return Operand(low, k, found, low.stages[k].stored(indices), start)


def first_turn(low: Facts, k: int, depth: int) -> dict[Var, Expr]:
    """The variables of the loops of stage k from position `depth` on, in their first turn."""
    loops = [low.vars[k][it.uid] for it in low.stages[k].iters[depth:]]
    return {var: as_expr(0) for var in loops if isinstance(var, Var)}
