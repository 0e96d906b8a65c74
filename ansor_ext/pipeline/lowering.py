"""Double-buffered shared tiles: while a block computes on one tile of its shared copies, the next one is fetched.

    for k in 0..n:                              copy(0) into tile 0
        copy(k)                                 for t in 0..n:
        [barrier]                   becomes         barrier(publish)
        compute(k)                                  if t + 1 < n: copy(t + 1) into tile (t + 1) % 2
        [barrier]                                   compute(t) from tile t % 2

The reduction loops around a copy that enclose nothing else become one loop over t, so that nothing is waited for at
the end of an inner loop.  A loop of one iteration stays as it is: there is nothing to fetch ahead.

Why one barrier an iteration is enough.  Call B(t) the barrier of iteration t.  Two kinds of accesses of tile t % 2 must
be kept apart.  compute(t) reads what copy(t) wrote: copy(t) stands before B(t) (in iteration t - 1, or before it),
compute(t) after it.  copy(t + 2) overwrites what compute(t) read: compute(t) stands before B(t + 1), and copy(t + 2),
which is in iteration t + 1, after it.  Between B(t) and B(t + 1) only copy(t + 1) writes, to tile (t + 1) % 2, and only
compute(t) reads, from the other one. Where the whole pipeline is run again by a loop around it, the first copy
overwrites tile 0 while slower threads are still in compute(n - 1), which reads tile (n - 1) % 2: that is another tile
for even n, and takes a barrier for odd n. So the buffers are marked as `pipelined`, and `sync.py`, which does not tell
tiles apart, leaves them alone.

With room for S tiles, copies are S - 1 iterations ahead: copy(0) to copy(S - 2) stand before the loop, copy(t + S - 1)
in iteration t, and the argument is the same, as tile (t + S - 1) % S is the one that compute(t - 1) read.  A barrier
that publishes closes a group of copies, and waits for all groups but the last S - 2, which later iterations need; the
copies before the loop are groups of their own, so such barriers stand between them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from te_lite.bounds.loop_scope import is_sequential, tile_count, tile_loops
from te_lite.errors import LowerError, require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare
from te_lite.expr.lanes import product
from te_lite.expr.simplify import Simplifier
from te_lite.expr.storage import storage_class, tile_stride
from te_lite.expr.visit import transform, walk
from te_lite.loops.perfect_nest import perfect_nest
from te_lite.loops.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    allocated,
    bodies,
    exprs_of,
    map_exprs,
    seq,
    stmts_of,
    stored_in,
    with_bodies,
)
from te_lite.lowering.lower_facts import Facts
from te_lite.schedule.state import ATTACHED

from .steps import COPY_ENGINE, by_copy_engine


@dataclass(frozen=True)
class Pipeline:
    """Stages that are fetched ahead together: their buffers, the loops whose iterations are tiles, outermost first, the
    tiles that there is room for, and who fetches them, if not threads.
    """

    stages: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    loops: tuple[Var, ...]
    tiles: int
    by: str


def fetched_ahead(facts: Facts) -> Callable[[int, Stmt], Stmt]:
    """What gives a nest with its double-buffered stages fetched ahead, from it and the number of its root stage.

    Raises LowerError for a stage that cannot be: not in shared memory, not computed at a loop in turn, or fed
    through shared memory or by other stages of the same loop.
    """
    check_double_buffers(facts)

    def rewritten(root: int, nest: Stmt) -> Stmt:
        found = _pipelines(facts, root)
        for alone in [p for p in found if not p.loops]:
            nest = _of_one_iteration(nest, facts, alone)
        loops = {p.loops[0]: p for p in found if p.loops}
        return _Pass(facts, loops).visit(nest, False) if loops else nest

    return rewritten


def check_double_buffers(facts: Facts) -> None:
    """Raise LowerError for a stage that is double-buffered at a place where there are no tiles."""
    for k, stage in enumerate(facts.stages):
        if not stage.double_buffer:
            continue
        subject = f"double_buffer {stage.op.name}"
        attach, law = stage.attach, "it must be computed at a loop that runs in turn"
        require(stage.where == ATTACHED and attach is not None, LowerError, subject, law, where=stage.where)
        assert attach is not None
        it = facts.stages[attach.stage].vars[attach.iter]
        require(is_sequential(it), LowerError, subject, law, loop=it.name, kind=it.kind, annotation=it.annotation)
        scope = next(b.scope for (s, _), b in facts.buffers.items() if s == k)
        require(storage_class(scope) == "shared", LowerError, subject, "the storage must be shared memory", scope=scope)


def _pipelines(facts: Facts, root: int) -> list[Pipeline]:
    groups: dict[tuple[Var, ...], list[int]] = {}
    for k, stage in enumerate(facts.stages):
        if stage.double_buffer and stage.attach is not None and facts.roots[k] == root:
            values = [facts.vars[stage.attach.stage][uid] for uid in tile_loops(facts.state, k)]
            groups.setdefault(tuple([v for v in values if isinstance(v, Var)]), []).append(k)
    found = [_pipeline(facts, loops, stages) for loops, stages in groups.items()]
    return [p for p in found if p.loops or p.by]


def _pipeline(facts: Facts, loops: tuple[Var, ...], stages: Sequence[int]) -> Pipeline:
    counts = {tile_count(facts.state, k) for k in stages}
    names, law = ", ".join(facts.stages[k].op.name for k in stages), "copies of one loop have as many tiles each"
    require(len(counts) == 1, LowerError, f"pipeline {names}", law, tiles=sorted(counts))
    by = {COPY_ENGINE if by_copy_engine(facts.stages[k]) else "" for k in stages}
    require(len(by) == 1, LowerError, f"pipeline {names}", "the same fetches all copies of a loop", by=sorted(by))
    buffers = tuple([b for k in stages for b in facts.own_buffers(k)])
    return Pipeline(tuple(stages), buffers, loops, counts.pop(), by.pop())


class _Pass:
    """Rewrites the loops of pipelines, found by the variable of the outermost one."""

    def __init__(self, facts: Facts, found: dict[Var, Pipeline]) -> None:
        self.facts = facts
        self.found = found

    def visit(self, s: Stmt, repeated: bool) -> Stmt:
        """`s`, which runs several times if `repeated`."""
        if isinstance(s, For) and s.var in self.found:
            return self._pipelined(s, self.found.pop(s.var), repeated)
        if isinstance(s, For) and s.kind is not ForKind.VTHREAD:
            repeated = True
        return with_bodies(s, tuple([self.visit(b, repeated) for b in bodies(s)]))

    def _pipelined(self, loop: For, pipeline: Pipeline, repeated: bool) -> Stmt:
        counted = frozenset(pipeline.loops)
        nest, body = perfect_nest(loop, lambda x: x.var in counted)
        assert len(nest) == len(counted)
        copies, compute = _split(body, frozenset(pipeline.buffers))
        _check_copies(self.facts, pipeline, copies, compute)
        iterations = product([x.extent for x in nest])
        iteration = self._iteration_var(nest, iterations)
        ahead = binary("+", iteration, pipeline.tiles - 1)
        tiles = {b: _tiled(b, pipeline.tiles, pipeline.by) for b in pipeline.buffers}
        publish = Barrier(publishes=True, left=pipeline.tiles - 2)
        first = [self._at(copies, nest, tiles, as_expr(t)) for t in range(pipeline.tiles - 1)]
        before = [s for t, copy in enumerate(first) for s in ([publish] if t else []) + copy]
        following = If(compare("<", ahead, iterations), seq(*self._at(copies, nest, tiles, ahead)))
        (current,) = self._at([compute], nest, tiles, iteration)
        inner = seq(publish, following, self.visit(current, True))
        kind = ForKind.UNROLLED if all(x.kind is ForKind.UNROLLED for x in nest) else ForKind.SERIAL
        again = [Barrier()] if repeated and iterations % pipeline.tiles else []
        return allocated(
            list(tiles.values()), seq(*again, *before, For(iteration, iterations, kind, inner, limit=nest[-1].limit))
        )

    def _iteration_var(self, nest: Sequence[For], iterations: int) -> Var:
        """The variable that counts the iterations: that of the loop itself when there is one only."""
        if len(nest) == 1:
            return nest[0].var
        return self.facts.new_var("_".join(x.var.name for x in nest), iterations)

    def _at(
        self, stmts: Iterable[Stmt], nest: Sequence[For], tiles: Mapping[Buffer, Buffer], iteration: Expr
    ) -> list[Stmt]:
        """Statements of iteration number `iteration`, on the tile of that iteration."""
        simplify = self.facts.simplifier.simplify
        env: dict[Var, Expr] = {}
        stride = 1
        for x in reversed(nest):
            digit = binary("//", iteration, stride)
            env[x.var] = simplify(digit if x is nest[0] else binary("%", digit, x.extent))
            stride *= x.extent
        at = _Iteration(iteration, env, tiles, self.facts.simplifier)
        return [at.redirected(map_exprs(s, lambda e: simplify(transform(e, at.swap)))) for s in stmts]


@dataclass(frozen=True)
class _Iteration:
    """One iteration: its number, the loop variables in terms of it, and the buffers that hold tiles."""

    iteration: Expr
    env: Mapping[Var, Expr]
    tiles: Mapping[Buffer, Buffer]
    simplifier: Simplifier

    @property
    def count(self) -> int:
        """The tiles of a buffer."""
        return next(iter(self.tiles.values())).shape[0]

    def _place(self, buffer: Buffer, index: Expr) -> Expr:
        """Where an element of `buffer` is in the tile of this iteration."""
        step = tile_stride(buffer.size, BYTES[buffer.dtype])
        return self.simplifier.simplify(binary("+", index, binary("*", binary("%", self.iteration, self.count), step)))

    def swap(self, e: Expr) -> Expr | None:
        if isinstance(e, Var):
            return self.env.get(e)
        if isinstance(e, BufferLoad) and e.buffer in self.tiles:
            return BufferLoad(self.tiles[e.buffer], self._place(e.buffer, transform(e.index, self.swap)))
        return None

    def redirected(self, s: Stmt) -> Stmt:
        """`s` with its stores turned to the tiles."""
        if isinstance(s, Store) and s.buffer in self.tiles:
            return Store(self.tiles[s.buffer], self._place(s.buffer, s.index), s.value)
        return with_bodies(s, tuple([self.redirected(b) for b in bodies(s)]))


def _of_one_iteration(s: Stmt, facts: Facts, pipeline: Pipeline, repeated: bool = False) -> Stmt:
    """A nest that the copy engine fetches one tile for, in a ring that may go on from a part of the result to the next:
    there is no loop in which it would be fetched ahead."""
    own = frozenset(pipeline.buffers)
    if isinstance(s, Alloc) and s.buffer in own:
        copies, compute = _split(s, own)
        _check_copies(facts, pipeline, copies, compute)
        tiles = {b: _tiled(b, 1, pipeline.by) for b in pipeline.buffers}
        at = _Iteration(as_expr(0), {}, tiles, facts.simplifier)
        moved = [at.redirected(map_exprs(x, lambda e: transform(e, at.swap))) for x in (*copies, compute)]
        again = [Barrier()] if repeated else []
        return allocated(list(tiles.values()), seq(*again, *moved[:-1], Barrier(publishes=True), moved[-1]))
    repeated = repeated or (isinstance(s, For) and s.kind is not ForKind.VTHREAD)
    return with_bodies(s, tuple([_of_one_iteration(b, facts, pipeline, repeated) for b in bodies(s)]))


def _tiled(buffer: Buffer, tiles: int, by: str) -> Buffer:
    """Storage for several tiles of what `buffer` holds."""
    strides = buffer.strides
    if strides is None:
        strides = tuple([product(buffer.shape[d + 1 :]) for d in range(len(buffer.shape))])
    stride = tile_stride(buffer.size, BYTES[buffer.dtype])
    return replace(buffer, shape=(tiles, *buffer.shape), strides=(stride, *strides), pipelined=by or True)


def _split(s: Stmt, own: frozenset[Buffer]) -> tuple[list[Stmt], Stmt]:
    """The statements of a loop body that fill the buffers `own`, and the rest without the buffers' allocation."""
    if isinstance(s, Alloc) and _allocates(s, own):
        copies, rest = _split(s.body, own)
        return copies, rest if s.buffer in own else Alloc(s.buffer, rest)
    copies, others = [], []
    for x in s.stmts if isinstance(s, Seq) else (s,):
        if isinstance(x, Alloc) and _allocates(x, own):
            more, rest = _split(x, own)
            copies += more
            others.append(rest)
        else:
            (copies if stored_in(x) & own else others).append(x)
    return copies, seq(*others)


def _allocates(s: Stmt, own: frozenset[Buffer]) -> bool:
    return any(isinstance(x, Alloc) and x.buffer in own for x in stmts_of(s))


def _check_copies(facts: Facts, pipeline: Pipeline, copies: Sequence[Stmt], compute: Stmt) -> None:
    """Copies are moved to another iteration, below a condition: they must need no other stage there, and no barrier."""
    names = ", ".join(facts.stages[k].op.name for k in pipeline.stages)
    late = stored_in(compute) | {x.buffer for x in stmts_of(compute) if isinstance(x, Alloc)}
    for s in [x for copy in copies for x in stmts_of(copy)]:
        law = "what is fetched ahead must not come through shared memory or from a stage of the same loop"
        read = {e.buffer for root in exprs_of(s) for e in walk(root) if isinstance(e, BufferLoad)}
        wrong = sorted(b.name for b in read if b.storage == "shared" or b in late)
        require(not wrong, LowerError, f"double_buffer {names}", law, reads=wrong)
        meets = isinstance(s, ThreadReduce)
        require(not meets, LowerError, f"double_buffer {names}", "what is fetched ahead must not join threads")
