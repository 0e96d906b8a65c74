"""Points of a stage's loops: which element they compute, what they read, and when they are computed at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..bounds.loop_scope import BLOCKS, THREAD_RANK, THREADS, standing_loops
from ..bounds.reads import counted_through, index_form
from ..expr.expr import BufferLoad, Const, Expr, Load, Reduce, Var, as_expr, binary, compare
from ..expr.visit import conjuncts, substitute, transform, walk
from ..schedule.loop_value import all_values, split_guards
from ..schedule.state import ATTACHED, ROOT, FuseRel, Iter
from .edges import Edge, Edges
from .lower_facts import Facts


@dataclass(frozen=True)
class Point:
    """One point of the loops of `stage`: variables by uid, axis values, and what must hold for it to be computed.

    `values` are those of all iterators, by uid, from where the axes begin.  A stage that runs over is computed beyond
    the edge too: `inside` says where that is not, and `nearest` has the axes that may be there, moved to the edge.
    """

    variables: Mapping[int, Expr]
    local: list[Expr]
    env: dict[Var, Expr]
    guards: list[Expr]
    inside: list[Expr]
    nearest: dict[Var, Expr]
    stage: int
    values: Mapping[int, Expr]


class Points:
    """The points of the stages of a program; with `over`, stages are computed beyond the edge of their axes."""

    def __init__(self, low: Facts, over: bool = True) -> None:
        self.low = low
        self.edges = Edges(low, over)

    def at(self, k: int, variables: Mapping[int, Expr]) -> Point:
        """The point of stage k where its loops have these values, by uid."""
        low, stage = self.low, self.low.stages[k]
        values = all_values(stage, variables)
        local = [values[d] for d in range(len(stage.op.axis))]
        env: dict[Var, Expr] = {}
        for d, axis in enumerate((*stage.op.axis, *stage.op.reduce_axis)):
            if d in values:
                env[axis] = low.simplifier.simplify(binary("+", low.minima[k][d], values[d]))
        reduce = [v for v in stage.op.reduce_axis if v in env]
        bounded = [v for v in reduce if isinstance(v.extent, Expr) or stage.along]
        reduced = [compare("<", env[v], substitute(as_expr(v.extent), env)) for v in bounded]
        edges, over = self._edges(k, env), k in self.edges.beyond
        inside = [guard for edge in edges for guard in edge.guards]
        within = over and self._reads_in_storage(k, env)
        guards = split_guards(stage, variables, self.edges.neutral_axes(k) if within else ())
        guards += ([] if over else inside) + reduced + self._thread_guards(k, variables)
        nearest = {edge.axis: edge.nearest for edge in edges} if over else {}
        if nearest and not within and self.edges.asks_where(k) and not self.edges.copies(k):
            kept = bool(reduce) and self.edges.keeps(k)
            env, guards, nearest = (env, guards + inside, {}) if kept else ({**env, **nearest}, guards, {})
        return Point(variables, local, env, self.open(guards), self.open(inside) if over else [], nearest, k, values)

    def _edges(self, k: int, env: Mapping[Var, Expr]) -> list[Edge]:
        """The axes that may leave their extents: a region may begin before them or end behind."""
        low, found = self.low, []
        for d, axis in enumerate(low.stages[k].op.axis):
            first = low.minima[k][d]
            last = binary("+", first, int(low.regions(k)[d].extent) - 1)
            before = not low.simplifier.prove(compare(">=", first, 0))
            behind = not low.simplifier.prove(compare("<", last, axis.extent))
            found += [Edge(axis, env[axis], axis.extent, before, behind)] if before or behind else []
        return found

    def _thread_guards(self, k: int, variables: Mapping[int, Expr]) -> list[Expr]:
        """What keeps out the threads of the launch that a loop over fewer threads does not have."""
        low = self.low
        own = [(variables[it.uid], it) for it in low.stages[k].iters if it.uid in variables]
        around = [(low.vars[target][it.uid], it) for target, it in self.standing(k) + self.threads_of_region(k)]
        launch = low.kernel_tags(k)
        loops = [(value, it.length, launch.get(it.annotation, 0)) for value, it in own + around]
        return [compare("<", value, extent) for value, extent, threads in loops if extent < threads]

    def standing(self, k: int) -> list[tuple[int, Iter]]:
        """The thread loops `(stage, loop)` around stage k whose threads share neither its storage nor that of a
        stage in between."""
        loops, stages = standing_loops(self.low.stages, self.low.bounds.scopes, k), self.low.stages
        return [(s, it) for s, uid in loops if (it := stages[s].vars[uid]).annotation in THREAD_RANK]

    def threads_of_region(self, k: int) -> list[tuple[int, Iter]]:
        """The thread loops `(stage, loop)` that the place of stage k's region depends on."""
        low, found = self.low, []
        for stage, uid in {a for r in low.regions(k) for a in r.min.loops()}:
            for rel in low.stages[stage].relations:
                if isinstance(rel, FuseRel) and uid in rel.parts:
                    uid = rel.fused
            it = low.stages[stage].vars[uid]
            found += [(stage, it)] if it.annotation in BLOCKS + THREADS else []
        return found

    def standing_tags(self, k: int) -> set[str]:
        """The thread axes among `standing`."""
        return {it.annotation for _, it in self.standing(k)}

    def open(self, guards: list[Expr]) -> list[Expr]:
        """The guards that do not always hold."""
        simple = dict.fromkeys(map(self.low.simplifier.simplify, guards))
        return [guard for guard in simple if not (isinstance(guard, Const) and guard.value)]

    def value(self, e: Expr, point: Point) -> Expr:
        """An expression of the body at a point: axes replaced, reads turned into buffer reads.

        What has no element for a point beyond the edge is read at the nearest point inside.
        """
        low, env, edge = self.low, point.env, {**point.env, **point.nearest}

        def swap(x: Expr) -> Expr | None:
            if isinstance(x, Var):
                return env.get(x)
            if isinstance(x, Load):
                k, output = low.index_of[x.tensor.op.key], x.tensor.value_index
                if self._is_fused(point.stage) and not point.nearest:
                    index = low.flat_index(k, output, [self._counted(i, point) for i in x.indices])
                    return BufferLoad(low.buffers[k, output], transform(self._counted(index, point), swap))
                indices = [transform(i, swap) for i in x.indices]
                if point.nearest and not self._in_storage(k, indices):
                    moved = [transform(substitute(i, edge), swap) for i in x.indices]
                    if low.stages[k].where != ATTACHED or self._in_storage(k, moved):
                        indices = moved  # a region begins where the point is, and seldom holds what is at the edge
                return BufferLoad(low.buffers[k, output], low.flat_index(k, output, indices))
            return None

        return low.simplifier.simplify(transform(e, swap))

    def _is_fused(self, k: int) -> bool:
        """Whether loops of stage k, at root, were fused of axes, all of which begin at 0."""
        stage = self.low.stages[k]
        rank = len(stage.op.axis)
        fused = [rel for rel in stage.relations if isinstance(rel, FuseRel) and max(rel.parts) < rank]
        at_0 = [isinstance(e, Const) and e.value == 0 for e in self.low.minima[k][:rank]]
        return stage.where == ROOT and bool(fused) and all(at_0)

    def _counted(self, index: Expr, point: Point) -> Expr:
        """An index over the axes of a stage, by the value of a loop that was fused of them if it counts through it."""
        stage = self.low.stages[point.stage]
        form = index_form(index, {v: d for d, v in enumerate(stage.op.axis)})
        counted = next((c for c in counted_through(stage, form) if c.same), None)
        if counted is None or counted.rel.fused not in point.values:
            return index
        total = binary("*", point.values[counted.rel.fused], counted.factor)
        for axis, c in counted.rest.terms:
            total = binary("+", total, binary("*", stage.op.axis[axis], c))
        return binary("+", total, counted.rest.const)

    def place(self, output: int, point: Point) -> Expr:
        """Where a stage stores the element of an output at a point."""
        low, k = self.low, point.stage
        if self._is_fused(k):
            index = self._counted(low.flat_index(k, output, low.stages[k].op.axis), point)
            return low.simplifier.simplify(substitute(index, point.env))
        return low.simplifier.simplify(low.flat_index(k, output, point.local, local=True))

    def folded_where(self, k: int, reduction: Reduce, point: Point) -> list[Expr]:
        """What a point must fulfil to be folded into stage k, besides its guards, unless it always does."""
        if reduction.condition is None:
            return []
        asked = list(conjuncts(reduction.condition))
        if self._reads_in_storage(k, point.env):
            asked = [c for c in asked if not self.edges.is_neutral_where_not(k, c)]
        return self.open([self.value(c, point) for c in asked])

    def _reads_in_storage(self, k: int, env: Mapping[Var, Expr]) -> bool:
        """Whether all reads of the body of stage k at a point surely find an element."""
        reads = [x for body in self.low.bodies[k] for x in walk(body) if isinstance(x, Load)]
        return all(
            self._in_storage(self.low.index_of[x.tensor.op.key], [substitute(i, env) for i in x.indices]) for x in reads
        )

    def _in_storage(self, k: int, indices: Sequence[Expr]) -> bool:
        """Whether the storage of stage k surely has an element for these indices."""
        low, prove = self.low, self.low.simplifier.prove
        own = low.stages[k].where == ATTACHED
        for d, index in enumerate(indices):
            local = low.simplifier.simplify(binary("-", index, low.minima[k][d]) if own else index)
            size = low.regions(k)[d].extent if own else low.stages[k].op.extents[d]
            if not (prove(compare(">=", local, 0)) and prove(compare("<", local, size))):
                return False
        return True
