"""The loop nest of one stage, as statements: loops, guards, initialisation, updates, reductions across threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..bounds.loop_scope import BLOCKS, THREADS, WARP, across_threads, lanes_of_rows
from ..bounds.reads import reads_by_producer
from ..errors import LowerError, require
from ..expr.constant_folding import stored
from ..expr.expr import (
    BufferLoad,
    Combiner,
    Const,
    Expr,
    Reduce,
    Var,
    as_expr,
    binary,
    compare,
    if_then_else,
    logical_and,
)
from ..expr.storage import storage_class
from ..expr.visit import transform
from ..later import when_called
from ..loops.stmt import Buffer, For, ForKind, If, Stmt, Store, ThreadReduce, allocated, seq
from ..schedule.state import ATTACHED, MIXED, REDUCE, SPATIAL, Iter, Stage
from .lower_facts import Facts
from .lower_point import Point, Points

_KIND = {
    "none": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorize": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
    "vthread": ForKind.VTHREAD,
    "tensorize": ForKind.TENSORIZED,
}


class NestBuilder:
    """Builds the nests of a program's stages; `tensorized` when the target has an instruction for tensorized loops."""

    def __init__(self, low: Facts, tensorized: bool = False) -> None:
        self.low = low
        self.tensorized = tensorized
        self.points = Points(low, over=not tensorized)

    def stage_nest(self, k: int) -> Stmt:
        """The nest of stage k, the stages attached to its loops included."""
        stage = self.low.stages[k]
        self._check_loops(stage)
        self._check_threads(k)
        if across_threads(stage):
            return self._cross_thread_nest(k)
        reduces = [p for p, it in enumerate(stage.iters) if it.kind == REDUCE]
        depth = self.depth(stage)
        apart = depth < len(stage.iters)
        body = self.low.layouts[k].instruction(self.points, depth) if apart else self._update_at(k)
        first = min([*reduces, depth])
        if first == depth and stage.op.reduce_axis:
            body = seq(self._init_nest(k, depth), body)
        for p, it in reversed(list(enumerate(stage.iters[:depth]))):
            body = self.looped(k, it, body, p == first)
            if p == first:
                body = seq(self._init_nest(k, p), body)
        return body

    def depth(self, stage: Stage) -> int:
        """How many loops of a stage are written: all, or those around an instruction."""
        marked = [p for p, it in enumerate(stage.iters) if it.annotation == "tensorize" and not self.tensorized]
        return min(marked, default=len(stage.iters))

    def _update_at(self, k: int) -> Stmt:
        return self._update(k, self.points.at(k, self.low.vars[k]))

    def _check_loops(self, stage: Stage) -> None:
        for it in stage.iters:
            apart = it.kind != MIXED or (it.annotation == WARP and bool(lanes_of_rows(stage)))
            require(apart, LowerError, stage.op.name, "spatial and reduction loops are fused", loop=it.name)
            fits = self.tensorized or it.annotation != "tensorize" or storage_class(stage.op.scope) == "fragment"
            require(fits, LowerError, stage.op.name, "no intrinsic fits here", loop=it.name)

    def _check_threads(self, k: int) -> None:
        """Every thread axis means one thing to a stage: one of its own loops, or a loop around it."""
        stage = self.low.stages[k]
        real = BLOCKS + THREADS
        own = [it.annotation for it in stage.iters if it.annotation in real]
        around = self.points.standing_tags(k)
        for tag in own:
            ok = own.count(tag) == 1 and tag not in around
            require(ok, LowerError, stage.op.name, "a thread axis is bound twice", axis=tag)
        apart = [it.annotation for it in stage.iters if it.annotation in BLOCKS and it.length > 1]
        law = "blocks share global storage only, so a loop inside a kernel is bound to threads"
        require(stage.where != ATTACHED or not apart, LowerError, stage.op.name, law, axes=apart)
        self._check_readers(k)

    def _check_readers(self, k: int) -> None:
        """Threads that a guard keeps out, as the place of the region means nothing to them, read nothing of stage k."""
        low, law = self.low, "every reader must run in the threads that its region depends on"
        for _, it in self.points.threads_of_region(k):
            if it.length < low.kernel_tags(k)[it.annotation]:
                readers = {read.reader for read in reads_by_producer(low.state.ops, low.inlined)[k]}
                late = [
                    low.stages[r].op.name for r in sorted(readers) if self._threads_in(r, it.annotation) > it.length
                ]
                values = {"axis": it.annotation, "threads": it.length, "readers": late}
                require(not late, LowerError, low.stages[k].op.name, law, **values)

    def _threads_in(self, k: int, tag: str) -> int:
        """How many threads of an axis compute stage k."""
        low = self.low
        loops = [*low.stages[k].iters, *[it for _, it in self.points.standing(k) + self.points.threads_of_region(k)]]
        lengths = [it.length for it in loops if it.annotation == tag]
        storage = low.bounds.storage(k)
        one = storage == "global" or (storage == "shared" and tag in THREADS)
        return min(lengths, default=1 if one else low.kernel_tags(k)[tag])

    # ------------------------------------------------------------------------------------------ loops

    def looped(self, k: int, it: Iter, body: Stmt, first: bool) -> Stmt:
        """A loop of stage k around its body, before which stands what is computed there; whether it is the `first` one
        of the reduction."""
        return self._loop(k, it, self._with_attached(k, it.uid, body))

    def _with_attached(self, k: int, uid: int, body: Stmt) -> Stmt:
        """Put the stages attached to a loop before its body, producers first."""
        for child in sorted(self.low.state.attached_to(k, uid), reverse=True):
            body = allocated(self.storage(child), seq(self.stage_nest(child), body))
        return body

    def storage(self, k: int) -> list[Buffer]:
        """What is allocated around the nest of stage k."""
        return self.low.own_buffers(k)[::-1]

    def spatial_point(self, k: int, variables: Mapping[int, Expr]) -> Point:
        """The point of stage k where no reduction loop stands anywhere."""
        stage = self.low.stages[k]
        return self.points.at(k, {u: v for u, v in variables.items() if stage.vars[u].kind != REDUCE})

    def _loop(self, k: int, it: Iter, body: Stmt, var: Expr | None = None) -> Stmt:
        var = self.low.vars[k][it.uid] if var is None else var
        if not isinstance(var, Var) or it.annotation in BLOCKS or it.annotation in THREADS:
            return body
        return For(var, it.length, _KIND[it.annotation], body, limit=self._unroll_step(k))

    def _unroll_step(self, k: int) -> int:
        """The pragma of the stage, or of the nearest stage around it that has one."""
        stage = self.low.stages[k]
        if stage.auto_unroll_max_step or stage.attach is None:
            return stage.auto_unroll_max_step
        return self._unroll_step(stage.attach.stage)

    # ------------------------------------------------------------------------------------- statements

    def _store(self, k: int, output: int, point: Point, value: Expr) -> Stmt:
        return Store(self.low.buffers[k, output], self.points.place(output, point), value)

    def own(self, k: int, output: int, point: Point) -> BufferLoad:
        return BufferLoad(self.low.buffers[k, output], self.points.place(output, point))

    def _guarded(self, k: int, guards: list[Expr], body: Stmt, condition: Sequence[Expr] = ()) -> Stmt:
        """`body` at points inside; what `condition` reads from memory has no value at others, so it comes last."""
        guards = [*guards, *self._one_thread(k), *condition]
        return If(logical_and(*guards), body) if guards else body

    def _one_thread(self, k: int) -> list[Expr]:
        """`thread == 0` for each thread axis of the kernel that does not spread the work of stage k."""
        low, stage = self.low, self.low.stages[k]
        scope = low.bounds.storage(k)
        if scope in ("local", "fragment"):
            return []
        own = {it.annotation for it in stage.iters} | self.points.standing_tags(k)
        tags = [t for t in low.kernel_tags(k) if t not in own and (t in THREADS or scope == "global")]
        if stage.attach is not None and low.kernel_tags(k):
            require(
                scope != "global", LowerError, stage.op.name, "global storage inside a kernel is shared by its threads"
            )
        return [compare("==", low.thread_vars[low.roots[k], t], 0) for t in tags]

    def _update(self, k: int, point: Point) -> Stmt:
        bodies = self.low.bodies[k]
        first = bodies[0]
        if not isinstance(first, Reduce):
            stores = [self._store(k, o, point, self._zero_beyond(k, e, point)) for o, e in enumerate(bodies)]
            return self._guarded(k, point.guards, seq(*stores))
        sources = [self.points.value(s, point) for s in first.sources]
        own: list[Expr] = [self.own(k, o, point) for o in range(len(sources))]
        combine = self._combine(k, first.combiner, own, sources, point)
        return self._guarded(k, point.guards, combine, self.points.folded_where(k, first, point))

    def _zero_beyond(self, k: int, e: Expr, point: Point) -> Expr:
        """The value of a body, or zero beyond the edge where that is what stage k has there."""
        if not point.inside or not self.points.edges.copies(k):
            return self.points.value(e, point)
        value, zero = self.points.value(e, replace(point, nearest={})), Const(stored(0, e.dtype), e.dtype)
        return self.low.simplifier.simplify(if_then_else(logical_and(*point.inside), value, zero))

    def _combine(self, k: int, combiner: Combiner, own: list[Expr], sources: list[Expr], point: Point) -> Stmt:
        """`own := combiner(own, sources)`; several values go through temporaries, as they depend on each other."""
        results = combined(combiner, own, sources)
        names = [self.low.buffers[k, o].name for o in range(len(results))]
        return _stored_at_once(results, names, lambda o, value: self._store(k, o, point, value))

    def _init_nest(self, k: int, first: int) -> Stmt:
        """Set the outputs to the identity over the spatial loops from position `first` on."""
        stage = self.low.stages[k]
        if self.low.bounds.storage(k) == "fragment":
            return self.low.layouts[k].cleared(self, first)
        inner = [it for it in stage.iters[first:] if it.kind != REDUCE]
        variables = {u: v for u, v in self.low.vars[k].items() if stage.vars[u].kind != REDUCE}
        for it in inner:
            if isinstance(variables[it.uid], Var) and it.annotation not in BLOCKS + THREADS:
                variables[it.uid] = self.low.new_var(f"{it.name}.init", it.length)
        point = self.points.at(k, variables)
        stores = [self._store(k, o, point, e) for o, e in enumerate(self.reduction(k).combiner.identity)]
        body = self._guarded(k, point.guards, seq(*stores))
        for it in reversed(inner):
            body = self._loop(k, it, body, variables[it.uid])
        return body

    # ------------------------------------------------------------------------- reductions across threads

    def _cross_thread_nest(self, k: int) -> Stmt:
        """Each thread folds its parts into registers, one for each iteration of the spatial loops inside the reduction;
        the threads then fold theirs together.
        """
        low, stage = self.low, self.low.stages[k]
        first = next(p for p, it in enumerate(stage.iters) if it.kind in (REDUCE, MIXED))
        held = [it for it in stage.iters[first:] if it.kind == SPATIAL and it.annotation not in BLOCKS + THREADS]
        virtual = [it.name for it in held if it.annotation == "vthread"]
        require(
            not virtual, LowerError, stage.op.name, "virtual threads inside a reduction across threads", loops=virtual
        )
        reduction = self.reduction(k)
        names = [low.buffers[k, o].name for o in range(len(reduction.sources))]
        size = (prod([int(it.length) for it in held]),)
        part = [Buffer(f"{n}.part", s.dtype, size, "local") for n, s in zip(names, reduction.sources, strict=True)]
        fold = self._fold_part(k, reduction, part, self.points.at(k, low.vars[k]), _flat(held, low.vars[k]))
        fold = self._loops(k, stage.iters[first:], fold)
        starts = self.fresh(k, held, "init")
        init = [Store(b, _flat(held, starts), e) for b, e in zip(part, reduction.combiner.identity, strict=True)]
        iterations = self.fresh(k, held, "met")
        spatial = self.spatial_point(k, iterations)
        met = self.nested(k, held, iterations, self._meet(k, reduction, part, _flat(held, iterations), spatial))
        body = allocated(part, seq(self.nested(k, held, starts, seq(*init)), fold, met))
        return self._loops(k, stage.iters[:first], body)

    def fresh(self, k: int, loops: Sequence[Iter], suffix: str) -> dict[int, Expr]:
        """The variables of stage k, new ones for `loops`."""
        low = self.low
        new = {
            it.uid: low.new_var(f"{it.name}.{suffix}", it.length)
            for it in loops
            if isinstance(low.vars[k][it.uid], Var)
        }
        return {**low.vars[k], **new}

    def nested(self, k: int, loops: Sequence[Iter], variables: Mapping[int, Expr], body: Stmt) -> Stmt:
        """Loops of stage k around `body`, with these variables and without the stages attached to them."""
        for it in reversed(loops):
            body = self._loop(k, it, body, variables[it.uid])
        return body

    def reduction(self, k: int) -> Reduce:
        """The body of stage k, a reduction."""
        body = self.low.bodies[k][0]
        assert isinstance(body, Reduce)
        return body

    def _loops(self, k: int, loops: Sequence[Iter], body: Stmt) -> Stmt:
        """Loops of stage k around `body`, the stages attached to them included."""
        for it in reversed(loops):
            body = self._loop(k, it, self._with_attached(k, it.uid, body))
        return body

    def _fold_part(self, k: int, reduction: Reduce, part: list[Buffer], point: Point, at: Expr) -> Stmt:
        """Fold a point into element `at` of the parts."""
        guards = point.guards + self.points.folded_where(k, reduction, point)
        sources = [self.points.value(s, point) for s in reduction.sources]
        results = combined(reduction.combiner, [BufferLoad(b, at) for b in part], sources)
        body = _stored_at_once(results, [b.name for b in part], lambda o, value: Store(part[o], at, value))
        return If(logical_and(*guards), body) if guards else body

    def _meet(self, k: int, reduction: Reduce, part: list[Buffer], at: Expr, spatial: Point) -> Stmt:
        """The reduction of element `at` of the parts over each bound thread axis, then the store by one thread."""
        low, stage = self.low, self.low.stages[k]
        total = [Buffer(b.name.removesuffix(".part") + ".total", b.dtype, (1,), "local") for b in part]
        bound = [it for it in stage.iters if it.kind in (REDUCE, MIXED) and it.annotation in THREADS]
        threads = [low.thread_vars[low.roots[k], it.annotation] for it in bound]
        steps: list[Stmt] = []
        for var, it in zip(threads, bound, strict=True):
            values = tuple([b[0] for b in total] if steps else [BufferLoad(b, at) for b in part])
            lanes = lanes_of_rows(stage) if it.kind == MIXED else 0
            steps.append(ThreadReduce(reduction.combiner, tuple(total), values, var, it.length, lanes))
        stores = self.folded(k, total, spatial)
        alone = [] if low.bounds.storage(k) in ("local", "fragment") else [compare("==", var, 0) for var in threads]
        return allocated(total, seq(*steps, self._guarded(k, [*spatial.guards, *alone], seq(*stores))))

    def folded(self, k: int, total: Sequence[Buffer], spatial: Point) -> list[Stmt]:
        """What is stored once threads have folded their parts together."""
        return [self._store(k, o, spatial, b[0]) for o, b in enumerate(total)]


def nest_builder(facts: Facts, tensorized: bool = False) -> NestBuilder:
    """What builds the nests of a program: a builder of an extension where a step asks for it.

    Raises LowerError where that cannot build them.
    """
    name = next((ask.nests for stage in facts.stages for ask in stage.asks if ask.nests), "")
    name = "te_lite.lowering.scan_nest:ScanNests" if facts.scans else name
    builder = when_called(*name.split(":")) if name else NestBuilder
    made: NestBuilder = builder(facts, tensorized)
    return made


def combined(combiner: Combiner, lhs: list[Expr], rhs: list[Expr]) -> list[Expr]:
    """The results of the combiner for these operands."""
    env = dict(zip((*combiner.lhs, *combiner.rhs), (*lhs, *rhs), strict=True))
    return [transform(r, lambda e: env.get(e) if isinstance(e, Var) else None) for r in combiner.result]


def _flat(loops: Sequence[Iter], variables: Mapping[int, Expr]) -> Expr:
    """The number of the iteration of nested loops."""
    at = as_expr(0)
    for it in loops:
        at = binary("+", binary("*", at, it.length), variables[it.uid])
    return at


def _stored_at_once(results: list[Expr], names: list[str], store: Callable[[int, Expr], Stmt]) -> Stmt:
    """Store values that depend on what they replace: several of them through temporaries."""
    if len(results) == 1:
        return store(0, results[0])
    temps = [Buffer(f"{name}_next", r.dtype, (1,), "local") for name, r in zip(names, results, strict=True)]
    kept = [Store(t, as_expr(0), r) for t, r in zip(temps, results, strict=True)]
    return allocated(temps, seq(*kept, *[store(o, t[0]) for o, t in enumerate(temps)]))
