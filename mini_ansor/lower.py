"""Lowering: from bounds to loops, buffers and stores.

Buffers are one-dimensional: each is an `Op` with one axis, and a `Load` of it has one index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from .bounds import RANK, Bounds, LoopVar, enclosing
from .expr import Axis, Call, Const, Expr, Load, Op, Reduce, binary, children, loads, proven, rebuild
from .expr import span, substitute, terms, total, walk
from .program import Iter, State, StepError
from .steps import axis_values, split_guards


class Var(Axis):
    """The variable of a loop, made by lowering."""


class Stmt:
    """The base of all statements."""


@dataclass(frozen=True)
class For(Stmt):
    """A loop over all values of `var`."""

    var: Var
    kind: str  # serial, parallel, vectorize or unroll
    body: Stmt
    beyond: int = 0  # iterations behind the last one, in the padding of a row


@dataclass(frozen=True)
class If(Stmt):
    """`body` where `cond` holds."""

    cond: Expr
    body: Stmt


@dataclass(frozen=True)
class Store(Stmt):
    """One element."""

    buffer: Op
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Seq(Stmt):
    """One after the other."""

    parts: tuple[Stmt, ...]


@dataclass(frozen=True)
class Alloc(Stmt):
    """A buffer that `body` alone uses."""

    buffer: Op
    body: Stmt


class Barrier(Stmt):
    """All threads of a block wait for each other."""


@dataclass(frozen=True)
class Lowered:
    """A program."""

    args: tuple[Op, ...]  # buffers of inputs and results, in order
    own: tuple[Op, ...]  # its own buffers for whole tensors
    nests: tuple[Stmt, ...]  # one for each stage at root: on a GPU a kernel
    launch: tuple[dict[str, Var], ...]  # the variables of blocks and threads of each kernel


def lower(state: State) -> Lowered:
    """The loop nests of a state.  Raises StepError for one that has none."""
    nests = _Lowering(Bounds(state))
    roots = [k for k in nests.computed if nests.stages[k].where == "root"]
    args = tuple(nests.buffers[nests.index[op.key]] for op in state.args)
    own = tuple(nests.buffers[k] for k in roots if nests.buffers[k] not in args)
    return Lowered(args, own, tuple(nests.nest(k) for k in roots), tuple(nests.launch[k] for k in roots))


def simplify(e: Expr) -> Expr:
    """An index with like terms collected, and quotients and remainders of known value resolved."""
    e = rebuild(e, [simplify(c) for c in children(e)])
    match e:
        case Call("//" | "%" as op, (a, Const(value, "int32"))) if value > 0:
            # Terms that are multiples of the divisor leave the rest in 0 .. divisor - 1, if they do.
            n, found = int(value), terms(a)
            rest = total({t: c for t, c in found.items() if c % n})
            low, high = span(rest)
            if low < 0 or high >= n:
                return e
            return rest if op == "%" else total({t: c // n for t, c in found.items() if c % n == 0})
        case Call("+" | "-" | "*", _, "int32"):
            return total(terms(e))
    return e


class _Lowering:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.state, self.stages = bounds, bounds.state, bounds.state.stages
        self.index = {s.op.key: k for k, s in enumerate(self.stages)}
        self.computed = [k for k, body in enumerate(bounds.bodies) if body is not None]
        self.launch: dict[int, dict[str, Var]] = {k: {} for k in self.computed}
        """The blocks and threads of the kernel of each stage, which all stages of a kernel share."""
        for k in reversed(self.computed):
            at = self.stages[k].at
            self.launch[k] = self.launch[k] if at is None else self.launch[at[0]]
            for it in self.stages[k].current:
                if it.annotation in RANK and (it.annotation != "vthread" or it.length > 1):
                    known = self.launch[k].get(it.annotation)
                    if known and it.annotation == "vthread":
                        raise StepError(f"{self.stages[k].op.name}: its kernel has two loops of virtual threads")
                    most = max(it.length, known.extent if known else 1)
                    self.launch[k][it.annotation] = Var(it.annotation, most)
        self.loops = {k: self._variables(k) for k in self.computed}
        values: dict[Axis, Expr] = {}
        for k in self.computed:
            for i, value in axis_values(self.stages[k], self.loops[k]).items():
                values[LoopVar(self.stages[k].iters[i].name, self.stages[k].iters[i].length, k, i)] = value
        self.starts = {k: [simplify(substitute(r.start, values)) for r in bounds.regions[k]] for k in self.computed}
        self.sizes, self.buffers, self.copies = dict[int, list[int]](), dict[int, Op](), dict[int, Var]()
        for k, s in enumerate(self.stages):
            whole = self.state.is_argument(k)
            self.sizes[k] = list(s.op.shape) if whole else [r.extent for r in bounds.regions[k][: s.rank]]
            scope = "global" if whole else bounds.scopes[k]
            around = [self.stages[n].iters[i].annotation for n, i in enclosing(self.stages, k)]
            if scope == "local" and "vthread" in around and "vthread" in self.launch[k]:
                self.copies[k] = self.launch[k]["vthread"]  # which each have one of their own
                self.sizes[k].insert(0, self.copies[k].extent)
            # Of a row of 7 gcc makes scalars, of 8 a vector: rows of tiles are padded, and vector loops go on there.
            if s.where == "iter" and not whole and s.op.axes and not self.launch[k] and self.sizes[k][-1] > 2:
                self.sizes[k][-1] += -self.sizes[k][-1] % 4
            self.buffers[k] = replace(s.op, axes=(Axis("at", prod(self.sizes[k])),), body=None, scope=scope)

    def _variables(self, k: int, prefix: str = "") -> dict[int, Expr]:
        """The variable of every loop of stage k, by id; a loop of one iteration has none."""
        out: dict[int, Expr] = {}
        for it in self.stages[k].current:
            for part in self._parts(k, it):
                named = Const(0) if part.extent == 1 else Var(prefix + part.name, part.length)
                out[part.id] = self.launch[k].get(it.annotation, named)
        return out

    def _parts(self, k: int, it: Iter) -> list[Iter]:
        """The loops that stand for one: itself, or those it was fused of, where it need not be one loop."""
        stage, apart = self.stages[k], it.annotation in ("none", "vectorize")
        return [stage.iters[i] for i in stage.unfused(it.id)] if apart else [it]

    def nest(self, k: int) -> Stmt:
        """The loops of stage k, and of the stages that are computed inside of them."""
        stage, target, body = self.stages[k], self.buffers[k], self.bounds.bodies[k]
        shared = any(it.kind == "reduce" and it.annotation == "threadIdx.x" for it in stage.current)
        if shared and "vthread" in self.launch[k]:
            raise StepError(f"{stage.op.name}: threads share a reduction of virtual threads")
        if shared:  # each thread folds a part of its own
            target = replace(target, name=f"{target.name}.part", axes=(Axis("at", 1),), scope="local")
        loops = sorted(stage.current, key=lambda it: it.kind == "reduce") if shared else stage.current
        first = next((p for p, it in enumerate(loops) if it.kind == "reduce"), None)
        nest, copies = self._update(k, target), 1
        for p, it in reversed(list(enumerate(loops))):
            inside, limit = self.state.attached(k, it.id), self.state.unroll_limit(k)
            copies = limit + 1 if inside else copies * it.length
            nest = self._loop(k, it, self.loops[k], self._behind(inside, nest), unroll=copies <= limit)
            if p == first and isinstance(body, Reduce):
                nest = nest if shared else Seq((self._initialise(k, p, body), nest))
                nest = self._across_threads(k, body, target, nest) if shared else nest
        return nest

    def _loop(self, k: int, it: Iter, variables: dict[int, Expr], body: Stmt, unroll: bool = False) -> Stmt:
        """`body` in a loop; a block or thread is no loop, but may have less to do than others."""
        if it.annotation in self.launch[k]:
            var = self.launch[k][it.annotation]
            return body if var.extent == it.extent else If(binary("<", var, it.length), body)
        kind = ("unroll" if unroll else "serial") if it.annotation == "none" else it.annotation
        for v in [variables[part.id] for part in reversed(self._parts(k, it))]:
            body = For(v, kind, body, self._beyond(k, v, kind, body)) if isinstance(v, Var) else body
        return body

    def _beyond(self, k: int, var: Var, kind: str, body: Stmt) -> int:
        """How many lanes of padding a vector loop may compute, too: where it is a row, and reads stay near its end."""
        if kind != "vectorize" or not isinstance(body, Store) or terms(body.index).get(var) != 1:
            return 0
        row, reads = self.bounds.regions[k][self.stages[k].rank - 1].extent, loads(body.value)
        steps = [terms(load.indices[0]) for load in reads]
        near = all(0 <= found.pop(var, 0) <= 2 for found in steps) and all(load.dtype == "float32" for load in reads)
        others = {x for found in steps for t in found for x in walk(t)}
        alone = var not in others and not any(isinstance(x, Load) for x in others)
        padded = near and alone and row == var.extent and not self.state.is_argument(k)
        return self.sizes[k][-1] - row if padded else 0

    def _behind(self, inside: Sequence[int], body: Stmt) -> Stmt:
        """`body` behind the nests of the stages that are computed in its loop, producers first."""
        for child in sorted(inside, reverse=True):
            nest = self.nest(child)
            nest = Seq((Barrier(), nest, Barrier())) if self.bounds.scopes[child] == "shared" else nest
            body = Seq((nest, body))
            body = body if self.state.is_argument(child) else Alloc(self.buffers[child], body)
        return body

    def _update(self, k: int, target: Op) -> Stmt:
        """The innermost statement of stage k: a reduction folds another value into its element of `target`."""
        body, loops = self.bounds.bodies[k], self.loops[k]
        place = self._place(k, loops) if target is self.buffers[k] else Const(0)
        value = self._value(k, body.source if isinstance(body, Reduce) else body, loops)
        value = body.fold_in(Load(target, (place,)), value) if isinstance(body, Reduce) else value
        return self._guarded(k, loops, Store(target, place, value))

    def _initialise(self, k: int, first: int, reduction: Reduce) -> Stmt:
        """The identity, in the space loops from position `first` on, which get variables of their own."""
        stage, fresh = self.stages[k], self._variables(k, "init_")
        inner = [it for it in stage.current[first:] if it.kind == "space"]
        loops = {**self.loops[k], **{part.id: fresh[part.id] for it in inner for part in self._parts(k, it)}}
        loops = {i: v for i, v in loops.items() if stage.iters[i].kind != "reduce"}
        nest = self._guarded(k, loops, Store(self.buffers[k], self._place(k, loops), reduction.identity))
        for it in reversed(inner):
            nest = self._loop(k, it, loops, nest)
        return nest

    def _across_threads(self, k: int, reduction: Reduce, part: Op, body: Stmt) -> Stmt:
        """A reduction that the threads of a block share: `body` folds a part for each, then they fold these."""
        stage, thread = self.stages[k], self.launch[k]["threadIdx.x"]
        threads = prod(it.length for it in stage.current if it.annotation == "threadIdx.x")
        parts = replace(part, name=f"{part.name}s", axes=(Axis("at", threads),), scope="shared")
        share = Store(parts, thread, Load(part, (Const(0),)))
        todo: list[Stmt] = [Store(part, Const(0), reduction.identity), body, share, Barrier()]
        apart = 1
        while apart < threads:
            both = reduction.fold_in(Load(parts, (thread,)), Load(parts, (thread + apart,)))
            pair = If(binary("<", thread, threads - apart), Store(parts, thread, both))
            todo += [If(binary("<", thread % (2 * apart), 1), pair), Barrier()]
            apart *= 2
        space = {i: v for i, v in self.loops[k].items() if stage.iters[i].kind != "reduce"}
        result = Store(self.buffers[k], self._place(k, space), Load(parts, (Const(0),)))
        todo += [If(binary("<", thread, 1), self._guarded(k, space, result)), Barrier()]
        return Alloc(part, Alloc(parts, Seq(tuple(todo))))

    def _env(self, k: int, loops: dict[int, Expr]) -> dict[Axis, Expr]:
        """The values of the axes of stage k that the variables `loops` give."""
        values, axes = axis_values(self.stages[k], loops), self.stages[k].op.all_axes
        return {a: simplify(self.starts[k][n] + values[n]) for n, a in enumerate(axes) if n in values}

    def _place(self, k: int, loops: dict[int, Expr]) -> Expr:
        """Where stage k keeps the point that the variables `loops` are at."""
        env = self._env(k, loops)
        return self._element(k, [env[a] for a in self.stages[k].op.axes])

    def _element(self, k: int, point: Sequence[Expr]) -> Expr:
        """Where the buffer of stage k has a point of its tensor: a buffer begins where the region of the stage does."""
        if not self.state.is_argument(k):
            point = [i - start for i, start in zip(point, self.starts[k], strict=False)]
        place: Expr = Const(0)
        for i, n in zip([self.copies[k], *point] if k in self.copies else point, self.sizes[k], strict=True):
            place = place * n + i  # row-major order
        return simplify(place)

    def _value(self, k: int, e: Expr | None, loops: dict[int, Expr]) -> Expr:
        """`e` at a point: axes as variables, and tensors as places in buffers."""
        env = self._env(k, loops)

        def at(x: Expr) -> Expr:
            if isinstance(x, Axis):
                return env[x]
            parts = [at(c) for c in children(x)]
            if not isinstance(x, Load):
                return rebuild(x, parts)
            p = self.index[x.op.key]
            return Load(self.buffers[p], (self._element(p, parts),))

        assert e is not None
        return simplify(at(e))

    def _guarded(self, k: int, loops: dict[int, Expr], store: Store) -> Stmt:
        """A store at points that exist: loops may go over the end of an axis, and regions over that of a tensor."""
        guards = split_guards(self.stages[k], loops)
        for a, value in self._env(k, loops).items():
            guards += [binary("<", value, a.extent), binary("<", Const(-1), value)]
        body: Stmt = store
        guards = [g for g in map(simplify, guards) if not proven(g)]
        for guard in dict.fromkeys(guards):
            body = If(guard, body)
        # Virtual threads run side by side: their loop is around each single store.
        var, used = self.launch[k].get("vthread"), [x for e in (store.index, store.value, *guards) for x in walk(e)]
        return body if var is None or not any(x is var for x in used) else For(var, "unroll", body)
