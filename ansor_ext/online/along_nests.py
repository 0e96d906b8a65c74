"""Nests of programs in which reductions are computed along loops (see `lower_along.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from te_lite.expr.expr import BufferLoad, Const, Expr, Var, binary, compare, logical_and, select
from te_lite.loops.stmt import Buffer, For, ForKind, Stmt, Store, seq
from te_lite.lowering.lower_facts import Facts
from te_lite.lowering.lower_nest import NestBuilder, combined
from te_lite.lowering.lower_point import Point
from te_lite.schedule.state import REDUCE, SPATIAL, Iter

from .lower_along import checked


@dataclass(frozen=True)
class Grown:
    """What is kept of an extreme besides itself: its value so far, and by what sums were multiplied last."""

    running: Buffer
    scale: Buffer

    @staticmethod
    def of(extreme: Buffer) -> Grown:
        return Grown(*[replace(extreme, name=f"{extreme.name}.{what}") for what in ("running", "scale")])


class AlongNests(NestBuilder):
    """Builds nests in which tiles are folded into extremes, and sums follow these."""

    def __init__(self, low: Facts, tensorized: bool = False) -> None:
        """Raises LowerError for a stage that is computed along a loop and cannot be."""
        super().__init__(low, tensorized)
        self.followers = checked(low.state)
        self.grown = {k: Grown.of(low.buffers[k, 0]) for k in {k for k, _ in self.followers.values()}}
        for k, grown in self.grown.items():
            low.beside[k] = (grown.running, grown.scale)

    def storage(self, k: int) -> list[Buffer]:
        """What is computed along the loops of a stage is kept as long as it."""
        low = self.low
        if low.stages[k].along:
            return []
        along = [c for c, s in enumerate(low.stages) if s.along and s.attach is not None and s.attach.stage == k]
        return [*[b for c in along for b in low.own_buffers(c)[::-1]], *super().storage(k)]

    def looped(self, k: int, it: Iter, body: Stmt, first: bool) -> Stmt:
        """A loop after what is computed along it has become neutral; sums move before more is folded in."""
        if first and k in self.followers:
            body = seq(self._moved(k, self.low.stages[k].position(it.uid)), body)
        along = [c for c in sorted(self.low.state.attached_to(k, it.uid)) if self.low.stages[c].along]
        return seq(*[self._neutral(c) for c in along], super().looped(k, it, body, first))

    def folded(self, k: int, total: Sequence[Buffer], spatial: Point) -> list[Stmt]:
        """The value of a tile is folded into what is computed along a loop."""
        if not self.low.stages[k].along:
            return super().folded(k, total, spatial)
        return self._folded_in(k, total[0][0], spatial, self.own(k, 0, spatial))

    def _neutral(self, k: int) -> Stmt:
        """Set stage k, computed along a loop, to the identity."""
        held = [it for it in self.low.stages[k].iters if it.kind == SPATIAL]
        variables = self.fresh(k, held, "init")
        point = self.spatial_point(k, variables)
        kept = self.grown[k].running if k in self.grown else self.low.buffers[k, 0]
        own = self.own(k, 0, point)
        return self.nested(k, held, variables, Store(kept, own.index, self.reduction(k).combiner.identity[0]))

    def _moved(self, k: int, first: int) -> Stmt:
        """The sums of stage k, over the loops from position `first` on, carried to what their extreme has become.

        They always are: a condition that leaves them alone where nothing has grown made attention 5 % slower.
        """
        stage, depth = self.low.stages[k], self.depth(self.low.stages[k])
        inner = [it for it in stage.iters[first:depth] if it.kind != REDUCE]
        tile = self.low.layouts[k].held(self.points, depth) if depth < len(stage.iters) else None
        variables: Mapping[int, Expr] = self.fresh(k, inner, "moved") | ({} if tile is None else tile.loops)
        point = self.spatial_point(k, variables)
        own = self.own(k, 0, point)
        body: Stmt = Store(self.low.buffers[k, 0], own.index, binary("*", own, self._scale_at(k, point)))
        body = body if tile is None else For(tile.value, tile.values, ForKind.UNROLLED, body)
        return self.nested(k, inner, variables, body)

    def _scale_at(self, k: int, point: Point) -> Expr:
        """What a sum of stage k is multiplied by at a point, since the extreme that it follows has grown.

        It is kept for the whole tile, so that a point beyond the edge has its own.
        """
        extreme, follows = self.followers[k]
        starts = zip(self.low.state.ops[k].axis, self.low.minima[k], point.local, strict=False)
        own: dict[Var, Expr] = {axis: binary("+", first, place) for axis, first, place in starts}
        at = self.points.value(follows.at, replace(point, env={**point.env, **own}, nearest={}))
        assert isinstance(at, BufferLoad)
        return BufferLoad(self.grown[extreme].scale, at.index)

    def _folded_in(self, k: int, value: Expr, point: Point, main: BufferLoad) -> list[Stmt]:
        """Fold the value of a tile into stage k, whose element at the point is `main`."""
        low, combiner = self.low, self.reduction(k).combiner
        if k not in self.grown:
            kept = binary("*", main, self._scale_at(k, point)) if k in self.followers else main
            return [Store(main.buffer, main.index, combined(combiner, [kept], [value])[0])]
        grown, at = self.grown[k], main.index
        running = BufferLoad(grown.running, at)
        (new,) = combined(combiner, [running], [value])
        law = next(follows.law for extreme, follows in self.followers.values() if extreme == k)
        one, zero, neutral = Const(1.0, value.dtype), Const(0.0, value.dtype), combiner.identity[0]
        scale = select(compare("==", running, new), one, law.carry(one, running, new))
        attach = low.stages[k].attach
        assert attach is not None
        turn, turns = low.vars[attach.stage][attach.iter], low.stages[attach.stage].vars[attach.iter].length
        empty = logical_and(compare("==", running, neutral), compare("<", turn, turns - 1))
        stores = [Store(grown.scale, at, scale), Store(grown.running, at, new)]
        return [*stores, Store(main.buffer, at, select(empty, zero, running))]
