"""More tiles of a ring than a part of the result has iterations: tiles of parts to come.

A schedule has room for as many tiles as a loop has iterations.  Where blocks compute several parts of the result, a
ring (`ring.py`) goes on from one to the next, and what is fetched early arrives while results are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from te_lite.expr.expr import BufferLoad, Expr, Var, binary
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute, transform
from te_lite.loops.stmt import Buffer, Stmt, map_exprs

from ..pipeline.steps import MOST_TILES
from .instructions import WarpMultiply
from .ring_fetches import begin_of, bytes_of, fetch_at, in_tile
from .ring_parts import Pipe
from .tile_copies import Fetch


def with_more_tiles(pipe: Pipe, room: int, ranges: Simplifier) -> Pipe:
    """A pipe of several parts with as many tiles as `room` has bytes for, if it has one for each of few iterations."""
    count = min(MOST_TILES, room // sum([bytes_of(f.tile) for f in pipe.fetches]))
    if pipe.part is None or pipe.tiles < pipe.loop.extent or count <= pipe.tiles:
        return pipe
    tiles = {f.tile: replace(f.tile, shape=(count, *f.tile.shape[1:])) for f in pipe.fetches}
    return _More(pipe.loop.var, pipe.tiles, count, tiles, ranges).pipe(pipe)


@dataclass(frozen=True)
class _More:
    """`count` tiles instead of some that there `are`, by the number of an iteration, its `turn`."""

    turn: Var
    are: int
    count: int
    tiles: dict[Buffer, Buffer]
    ranges: Simplifier

    def pipe(self, old: Pipe) -> Pipe:
        product, *loads = [self.moved(s) for s in (old.product, *old.loads)]
        assert isinstance(product, WarpMultiply)
        held, fetches = tuple([self.tiles.get(b, b) for b in old.held]), tuple(map(self.fetch, old.fetches))
        return replace(old, held=held, fetches=fetches, loads=tuple(loads), product=product)

    def moved(self, s: Stmt) -> Stmt:
        """A statement that reads the tiles."""
        return map_exprs(s, lambda e: transform(e, self.load))

    def load(self, e: Expr) -> Expr | None:
        if not isinstance(e, BufferLoad) or e.buffer not in self.tiles:
            return None
        tile = self.tiles[e.buffer]
        return BufferLoad(tile, binary("+", begin_of(tile, self.turn), in_tile(e, self.turn, self.ranges)))

    def fetch(self, f: Fetch) -> Fetch:
        """A fetch of so many iterations ahead as there are tiles then, but for one."""
        now = fetch_at(f, {self.turn: binary("-", self.turn, self.are - 1)}, self.ranges)
        within = in_tile(BufferLoad(f.tile, now.first), self.turn, self.ranges)
        ahead, tile = binary("+", self.turn, self.count - 1), self.tiles[f.tile]
        start = tuple([substitute(x, {self.turn: ahead}) for x in now.box.start])
        return Fetch(tile, binary("+", begin_of(tile, ahead), within), replace(now.box, start=start))
