"""Loops of a copy from shared memory to fragments that are one `ldmatrix`.

    for i in 0..16: for k in 0..16:
        a[..i.., ..k..] = tile[..i.., ..k..]        becomes        ldmatrix.x4(a, tile[this lane's row])

The loops from the tensorized one on are the rows and columns of one tile of the operand, or of two tiles side by side.
Of each matrix, 8 rows of 16 bytes, every row is a piece of a row of the tile in memory, or, transposed, of a column:
neighbours there, and at a multiple of 16 bytes.  What is not so is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from te_lite.bounds.loop_scope import WARP
from te_lite.errors import LowerError, require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Const, Expr, Load, as_expr, binary
from te_lite.lowering.lower_point import Points

from .instructions import WarpLoad
from .lower_operand import Operand, first_turn, operand
from .mma import ROW_BYTES, MatrixLoad


def warp_load(points: Points, k: int, depth: int) -> WarpLoad:
    """The instruction that is the loops of stage k from position `depth` on.  Raises LowerError where they are none."""
    low, stage = points.low, points.low.stages[k]
    point = points.at(k, low.vars[k])
    law = "the loops of an instruction must divide what they run over"
    require(not point.guards, LowerError, stage.op.name, law)
    to = operand(low, k, point.local, first_turn(low, k, depth))
    tiles = _tiles(to, [(low.vars[k][it.uid], it.length) for it in stage.iters[depth:]])
    registers = to.storage.op.registers(to.storage.operand)
    for form in (MatrixLoad(tiles * registers), MatrixLoad(tiles * registers, transposed=True)):
        rows = _Rows(points, k, to, form)
        if rows.fit():
            return WarpLoad(form, to.first(), rows.element(0))
    law = "16 bytes of a row of each matrix must be neighbours in shared memory, at a multiple of 16"
    raise LowerError(f"{stage.op.name}: {law}, got {low.bodies[k][0]!r}")


def _tiles(to: Operand, loops: Sequence[tuple[Expr, int]]) -> int:
    """How many tiles side by side the loops cover."""
    f = to.storage.fragment
    extents = [dict(loops).get(var, 0) for var in to.moves()]
    tiles = extents[1] // f.columns
    registers = to.storage.op.registers(to.storage.operand)
    fits = len(loops) == 2 and extents == [f.rows, f.columns * tiles] and tiles in (1, 2) and tiles * registers <= 4
    law = f"the tensorized loops must be {f.rows} rows and {f.columns} columns, or two such tiles in 4 registers"
    require(fits, LowerError, to.name, law, extents=[n for _, n in loops])
    return tiles


class _Rows:
    """The rows that the lanes of a warp give the addresses of, for a form of `ldmatrix`."""

    def __init__(self, points: Points, k: int, to: Operand, form: MatrixLoad) -> None:
        self.points, self.k, self.to, self.form = points, k, to, form
        self.nbytes = BYTES[points.low.stages[k].op.dtype]
        self.width = ROW_BYTES // self.nbytes

    def fit(self) -> bool:
        """Whether every row is 16 bytes that are neighbours in shared memory, at a multiple of 16."""
        body = self.points.low.bodies[self.k][0]
        if not isinstance(body, Load) or (self.form.transposed and self.nbytes != 2):
            return False
        first = self.element(0)
        if first.buffer.storage != "shared" or not self._is(binary("%", first.index, self.width), 0):
            return False
        return all(self._is(binary("-", self.element(c).index, first.index), c) for c in range(1, self.width))

    def _is(self, e: Expr, value: int) -> bool:
        simple = self.points.low.simplifier.simplify(e)
        return isinstance(simple, Const) and simple.value == value

    def element(self, column: int) -> BufferLoad:
        """What is read at a column of the row of this lane."""
        low, f = self.points.low, self.to.storage.fragment
        registers = self.to.storage.op.registers(self.to.storage.operand)
        lane = low.thread_vars[low.roots[self.k], WARP]
        row = binary("%", lane, 8 * self.form.count)
        one = MatrixLoad(registers, self.form.transposed)
        at = one.place(f, self.nbytes, binary("%", row, 8 * registers), column)
        beside = binary("*", binary("//", row, 8 * registers), f.columns)
        moved = dict(zip(self.to.moves(), (as_expr(at[0]), binary("+", at[1], beside)), strict=True))
        variables = {uid: moved.get(var, var) for uid, var in low.vars[self.k].items()}
        found = self.points.value(low.bodies[self.k][0], self.points.at(self.k, variables))
        assert isinstance(found, BufferLoad)
        return found
