"""The loop nests of scans: lines along the last axis, around what they carry from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import LowerError, require
from ..expr.constant_folding import stored
from ..expr.element import Before
from ..expr.expr import Const, Expr, Var, as_expr
from ..loops.stmt import Buffer, Stmt, Store, allocated, seq
from ..schedule.state import ROOT
from .lower_nest import NestBuilder
from .lower_point import Point

LAW = "the last axis of a scan is its innermost loop, whole and in order, and its lines run as they are"


class ScanNests(NestBuilder):
    """Builds the nests of a program with scans."""

    def stage_nest(self, k: int) -> Stmt:
        """As of NestBuilder; each line of a scan begins with its first element."""
        stage, last = self.low.stages[k], len(self.low.stages[k].op.axis) - 1
        if not stage.op.scans:
            return super().stage_nest(k)
        self._check_threads(k)
        *_, inner = stage.iters
        plain = all(it.annotation not in ("vectorize", "vthread") for it in stage.iters)
        ok = plain and inner.uid == last and inner.annotation in ("none", "unroll") and stage.where == ROOT
        loops = [f"{it.name} ({it.annotation})" for it in stage.iters]
        require(ok, LowerError, stage.op.name, LAW, loops=loops)
        before, now = self._held(k)
        start = [Store(b, as_expr(0), Const(stored(0, b.dtype), b.dtype)) for b in before.values()]
        step = self._step(k, self.points.at(k, self.low.vars[k]), before, now)
        body = seq(*start, self._loop(k, inner, self._with_attached(k, inner.uid, step)))
        return self._loops(k, stage.iters[:-1], allocated(list(before.values()), body))

    def _held(self, k: int) -> tuple[Mapping[int, Buffer], Mapping[int, Buffer]]:
        """What stage k holds of the elements before and of the present ones, by output: what bodies read."""
        op = self.low.stages[k].compute
        outputs = [sorted({e.output for e in op.carried if isinstance(e, kind)}) for kind in (Before, Var)]
        before, now = [
            {o: Buffer(f"{op.output(o).name}.{word}", op.output_dtype(o), (1,), "local") for o in found}
            for word, found in zip(("before", "now"), outputs, strict=True)
        ]
        return before, now

    def _step(self, k: int, point: Point, before: Mapping[int, Buffer], now: Mapping[int, Buffer]) -> Stmt:
        """The elements at a point, one output after the other, which the next step is given."""
        held = {e: before if isinstance(e, Before) else now for e in self.low.stages[k].compute.carried}
        read: dict[Var, Expr] = {e: buffers[e.output][0] for e, buffers in held.items()}
        point = replace(point, env={**point.env, **read})
        steps: list[Stmt] = []
        for o, body in enumerate(self.low.bodies[k]):
            value = self.points.value(body, point)
            if o in now:
                steps.append(Store(now[o], as_expr(0), value))
                value = now[o][0]
            if (k, o) in self.low.buffers:
                steps.append(self._store(k, o, point, value))
        kept = [Store(b, as_expr(0), now[o][0]) for o, b in before.items()]
        return self._guarded(k, point.guards, allocated(list(now.values()), seq(*steps, *kept)))
