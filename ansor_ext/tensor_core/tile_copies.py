"""Copies of a tile by one thread that the copy engine does instead: boxes that lie as tensor cores read them."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cuda.program.cuda_program import KernelNest
from codegen_cuda.program.errors import EmitError
from te_lite.bounds.loop_scope import BLOCKS
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Expr, Var, as_expr, binary, compare, same
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, substitute
from te_lite.loops.perfect_nest import iteration
from te_lite.loops.stmt import Buffer, For, If, Stmt, Store

from ..pipeline.async_copy import moved
from ..pipeline.staged_copies import enclosing
from .copy_boxes import MOST_BOX, UNIT, Box, Copy, box_of, can_be_told
from .layouts import boxed
from .pixel_boxes import PixelBoxes
from .swizzle import line_of


@dataclass(frozen=True)
class Fetch:
    """A box of an array that is copied to a tile of `tile`, from `first` on."""

    tile: Buffer
    first: Expr
    box: Box


def refuse(holds: bool, law: str, **values: object) -> None:
    require(holds, EmitError, "copy engine", law, **values)


def blocks_of(nest: KernelNest, part: Stmt | None) -> dict[Var, int]:
    """The variables of blocks, and of parts of the result, with how many there are."""
    loops = [loop for tag, loop in nest.loops.items() if tag in BLOCKS] + ([part] if isinstance(part, For) else [])
    return {loop.var: loop.extent for loop in loops}


def size_of(tiles: Buffer) -> int:
    """The elements of one tile."""
    return tiles.size // tiles.shape[0] if tiles.pipelined else tiles.size


@dataclass(frozen=True)
class Copies:
    """The copies of a kernel, whose variables have `wide` ranges."""

    nest: KernelNest
    wide: Simplifier
    pixels: PixelBoxes

    def fetch(self, s: Stmt, ranges: Simplifier, like: Box | None = None) -> Fetch:
        """What a copy fetches of an array, seen as that of another box, if one is given.

        Raises EmitError where it is no box, or none that lies as tensor cores read it.
        """
        around, store = enclosing(s)
        loops = [x for x in around if isinstance(x, For)]
        self._check_thread([c for x in around if isinstance(x, If) for c in conjuncts(x.cond)])
        refuse(isinstance(store, Store), "a tile must be copied by loops over its axes")
        assert isinstance(store, Store)
        box = self._box(store, loops, ranges, like)
        first = ranges.simplify(substitute(store.index, dict.fromkeys([x.var for x in loops], as_expr(0))))
        columns, nbytes, tile = box.extents[-1], BYTES[store.buffer.dtype], store.buffer
        line, at = line_of(columns, nbytes), iteration(loops)
        room = ceildiv(columns, line) * line
        if room > columns:
            at = binary("+", binary("*", binary("//", at, columns), room), binary("%", at, columns))
        place = boxed(tile.name, at, (size_of(tile) // room, room), line, nbytes)
        lies = same(ranges.simplify(binary("+", first, place)), ranges.simplify(store.index))
        refuse(lies, "a tile must lie in swizzled lines of 128 bytes", index=store.index)
        return Fetch(tile, first, box)

    def _check_thread(self, asked: list[Expr]) -> None:
        """Of all conditions around a copy."""
        threads = [x for tag, x in self.nest.loops.items() if tag.startswith("threadIdx") and x.extent > 1]
        one = [compare("==", x.var, 0) for x in threads]
        alone = all(any(same(c, x) for x in asked) for c in one) and len(asked) == len(one)
        refuse(alone, "one thread must copy a tile, all of it", conditions=asked)

    def _box(self, store: Store, loops: list[For], ranges: Simplifier, like: Box | None) -> Box:
        """What is stored to a tile, and whether the engine can be told of it."""
        found = moved(store.value)
        refuse(found is not None, "a tile must be copied from global memory by loops over its axes")
        assert found is not None
        (load, cond), extents = found, {x.var: x.extent for x in loops}
        copy = Copy.of(load.buffer, load.index, [] if cond is None else [cond], extents, ranges, self.wide)
        box = None if like is not None and like.pixels else box_of(copy, view=None if like is None else like.view)
        box = box if box is not None and can_be_told(box) else self.pixels.box(copy) or box
        refuse(box is not None, "a tile must be a box of an array, with zeros beyond its edge", index=load.index)
        assert box is not None
        law = f"rows of an array must begin at multiples of {UNIT} bytes, boxes have {MOST_BOX} rows at most"
        refuse(can_be_told(box), law, array=box.view, box=box.extents)
        return box
