"""How lowering finds elements of fragments and of swizzled rows, and the instructions that loops over fragments are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from te_lite.bounds.loop_scope import LANES, WARP
from te_lite.errors import LowerError, require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Expr, as_expr, binary, index_xor
from te_lite.expr.lanes import ceildiv
from te_lite.loops.stmt import For, ForKind, Instruction, Stmt, Store
from te_lite.lowering.layout import HeldTile, Layout
from te_lite.lowering.lower_facts import Facts, row_by_row
from te_lite.lowering.lower_nest import NestBuilder
from te_lite.lowering.lower_point import Points
from te_lite.schedule.state import REDUCE

from .fragment_storage import fragment_storage
from .lower_matrix_load import warp_load
from .lower_mma import element_of_tile, tile_start, warp_multiply
from .swizzle import Swizzle, line_of


class SwizzledRows(Layout):
    """Of a stage in shared memory whose rows are swizzled."""

    def __init__(self, facts: Facts, k: int) -> None:
        """Raises LowerError for a stage elsewhere, or one whose rows are aligned."""
        super().__init__(facts, k)
        stage = facts.stages[k]
        plain = facts.bounds.storage(k) == "shared" and stage.storage_align is None
        law = "needs shared memory, not aligned"
        require(plain, LowerError, f"swizzle {stage.op.name}", law, scope=facts.bounds.scopes[k])

    def place(self, output: int, at: Sequence[Expr]) -> Expr:
        stage, buffer = self.facts.stages[self.k], self.facts.buffers[self.k, output]
        swizzle = Swizzle.of_rows(stage.op.name, self.extents()[-1], BYTES[buffer.dtype])
        return as_expr(swizzle.place(row_by_row(buffer, at), index_xor))

    def extents(self) -> list[int]:
        """Of the region, in the order in which it is stored."""
        stage = self.facts.stages[self.k]
        return list(stage.stored([int(r.extent) for r in self.facts.regions(self.k)[: len(stage.op.axis)]]))


class BoxedRows(SwizzledRows):
    """Of a stage in shared memory whose rows are cut into swizzled lines, as the copy engine brings them.

    Rows that are no whole lines have room for these.
    """

    def shape(self, extents: Sequence[int]) -> tuple[int, ...] | None:
        *outer, row = self.facts.stages[self.k].stored(extents)
        line = self._line(row)
        return None if row % line == 0 else (*outer, ceildiv(row, line) * line)

    def place(self, output: int, at: Sequence[Expr]) -> Expr:
        stage, buffer = self.facts.stages[self.k], self.facts.buffers[self.k, output]
        *outer, row = self.extents()
        line = self._line(row)
        rows = prod(outer), ceildiv(row, line) * line
        return boxed(stage.op.name, row_by_row(buffer, at), rows, line, BYTES[buffer.dtype])

    def _line(self, row: int) -> int:
        return line_of(row, BYTES[self.facts.stages[self.k].op.output_dtype(0)])


def boxed(name: str, index: Expr, extents: tuple[int, int], line: int, nbytes: int) -> Expr:
    """Where an element lies, swizzled, of rows x columns that are cut into lines; `index` counts row by row."""
    rows, columns = extents
    row, column = binary("//", index, columns), binary("%", index, columns)
    within = binary("+", binary("*", row, line), binary("%", column, line))
    place = binary("+", binary("*", binary("//", column, line), rows * line), within)
    return as_expr(Swizzle.of_rows(name, line, nbytes).place(place, index_xor))


class Fragments(Layout):
    """Of a stage that a warp keeps in fragments: sums of products, or factors that are copied or computed."""

    def __init__(self, facts: Facts, k: int) -> None:
        super().__init__(facts, k)
        storage = fragment_storage(facts.bounds.scopes[k])
        assert storage is not None
        self.storage, self.factor = storage, storage.operand != "d"

    def shape(self, extents: Sequence[int]) -> tuple[int, ...]:
        stage = self.facts.stages[self.k]
        return self.storage.shape(stage.op.name, stage.stored(extents))

    def place(self, output: int, at: Sequence[Expr]) -> Expr:
        facts, stage = self.facts, self.facts.stages[self.k]
        lane = facts.thread_vars.get((facts.roots[self.k], WARP), 0)
        extents = stage.stored([int(r.extent) for r in facts.regions(self.k)[: len(at)]])
        return as_expr(self.storage.index(extents, stage.stored(at), lane))

    def instruction(self, points: Points, depth: int) -> Instruction:
        """A product where the stage sums up, else a load of matrices."""
        reduces = self.facts.stages[self.k].op.reduce_axis
        return warp_multiply(points, self.k, depth) if reduces else warp_load(points, self.k, depth)

    def cleared(self, nests: NestBuilder, first: int) -> Stmt:
        """Each lane sets its own elements to zero."""
        facts, k, stage = self.facts, self.k, self.facts.stages[self.k]
        depth = nests.depth(stage)
        inner = [it for it in stage.iters[first:depth] if it.kind != REDUCE]
        variables = nests.fresh(k, inner, "init")
        buffer, tile = facts.buffers[k, 0], tile_start(nests.points, k, variables, depth)
        values = self.storage.fragment.values
        value, lane = facts.new_var("value", values), facts.thread_vars[facts.roots[k], WARP]
        zero = nests.reduction(k).combiner.identity[0]
        body: Stmt = Store(buffer, facts.simplifier.simplify(tile + value * LANES + lane), zero)
        return nests.nested(k, inner, variables, For(value, values, ForKind.UNROLLED, body))

    def held(self, points: Points, depth: int) -> HeldTile:
        return element_of_tile(points, self.k, depth)
