"""Lowering: from bounds to loops, buffers and stores.

    stmt = For(var, kind, body) | If(cond, body) | Store(buffer, index, value) | Seq(parts) | Alloc(buffer, body)
         | Barrier() | FoldThreads(part, fold, threads)                         the last two in kernels of a GPU

Buffers are flat: an operation with one axis stands for each, and a `Load` of it has one index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from .bounds import Bounds, LoopVar, infer_bounds, thread_rank
from .expr import FOLDS, INDEX, Axis, Binary, Const, Expr, Load, Op, Reduce, binary, children, proven, rebuild
from .expr import span, terms, total, transform, walk
from .program import Iter, State, StepError
from .steps import axis_values, split_guards


class Var(Axis):
    """The variable of a loop, made by lowering."""


class Stmt:
    """The base of all statements."""


@dataclass(frozen=True)
class For(Stmt):
    """`kind` is serial, parallel, vectorize, unroll or vthread."""

    var: Var
    kind: str
    body: Stmt


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
class FoldThreads(Stmt):
    """`part`, a buffer of one element in each thread, becomes the fold of those of all threads along x."""

    part: Op
    fold: str
    threads: int


@dataclass(frozen=True)
class Lowered:
    """A program: `args` in order, buffers of its own for whole tensors, and a nest for each stage at root.

    On a GPU each nest is a kernel; `launch` has the variables of its blocks and threads.
    """

    args: tuple[Op, ...]
    own: tuple[Op, ...]
    nests: tuple[Stmt, ...]
    launch: tuple[dict[str, Var], ...]


def lower(state: State) -> Lowered:
    """The loop nests of a state.  Raises StepError for one that has none."""
    return _Lowering(infer_bounds(state)).run()


def simplify(e: Expr) -> Expr:
    """An index with like terms collected, and quotients and remainders of known value resolved."""
    e = rebuild(e, [simplify(c) for c in children(e)])
    if not isinstance(e, Binary) or e.dtype != INDEX:
        return e
    if e.op not in ("//", "%") or not isinstance(e.b, Const) or e.b.value <= 0:
        return total(terms(e))
    # Terms that are multiples of the divisor leave the rest in 0 .. divisor - 1, if they do.
    n, found = int(e.b.value), terms(e.a)
    rest = total({t: c for t, c in found.items() if c % n})
    low, high = span(rest)
    if low < 0 or high >= n:
        return e
    return rest if e.op == "%" else total({t: c // n for t, c in found.items() if c % n == 0})


# ------------------------------------------------------------------------------------------------------------- nests


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
                if thread_rank(it.annotation) is not None and it.annotation != "vthread":
                    known = self.launch[k].get(it.annotation)
                    most = max(it.length, known.extent if known else 1)
                    self.launch[k][it.annotation] = Var(it.annotation, most)
        self.loops = {k: self._variables(k) for k in self.computed}
        values = {k: axis_values(self.stages[k], self.loops[k]) for k in self.computed}

        def at_loop(x: Expr) -> Expr | None:
            return values[x.stage][x.id] if isinstance(x, LoopVar) else None

        self.starts = {k: [simplify(transform(r.start, at_loop)) for r in bounds.regions[k]] for k in self.computed}
        self.buffers = {k: self._buffer(k) for k in range(len(self.stages)) if self.stages[k].where != "inlined"}

    def run(self) -> Lowered:
        roots = [k for k in self.computed if self.stages[k].where == "root"]
        args = tuple(self.buffers[self.index[op.key]] for op in self.state.args)
        own = tuple(self.buffers[k] for k in roots if self.buffers[k] not in args)
        nests = tuple(sink_virtual_threads(self.nest(k)) for k in roots)
        return Lowered(args, own, nests, tuple(self.launch[k] for k in roots))

    def _variables(self, k: int, prefix: str = "") -> dict[int, Expr]:
        """The variable of every loop of stage k, by id."""
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

    def _sizes(self, k: int) -> list[int]:
        """The extents of the storage of stage k: those of the tensor, or of its region."""
        op = self.stages[k].op
        return (
            list(op.shape) if self.state.is_argument(k) else [r.extent for r in self.bounds.regions[k][: len(op.axes)]]
        )

    def _buffer(self, k: int) -> Op:
        op, scope = self.stages[k].op, "global" if self.state.is_argument(k) else self.bounds.scopes[k]
        return Op(op.name, (Axis("at", prod(self._sizes(k))),), None, op.dtype, op.key, scope=scope)

    def nest(self, k: int) -> Stmt:
        """The loops of stage k, and of the stages that are computed inside of them."""
        stage = self.stages[k]
        if any(it.kind == "reduce" and it.annotation == "threadIdx.x" for it in stage.current):
            return self._across_threads(k)
        body, copies = self._update(k), 1
        first = next((p for p, it in enumerate(stage.current) if it.kind == "reduce"), None)
        for p, it in reversed(list(enumerate(stage.current))):
            inside, limit = self.state.attached(k, it.id), self.state.unroll_limit(k)
            copies = limit + 1 if inside else copies * it.length
            body = self._loop(k, it, self._behind(inside, body), unroll=copies <= limit)
            body = Seq((self._initialise(k, p), body)) if p == first else body
        return body

    def _loop(self, k: int, it: Iter, body: Stmt, unroll: bool = False) -> Stmt:
        """`body` in a loop; a block or thread is no loop, but may have less to do than others."""
        if it.annotation in self.launch[k]:
            var = self.launch[k][it.annotation]
            return body if var.extent == it.extent else If(binary("<", var, it.length), body)
        kind = ("unroll" if unroll else "serial") if it.annotation == "none" else it.annotation
        for part in reversed(self._parts(k, it)):
            var_or_zero = self.loops[k][part.id]
            body = For(var_or_zero, kind, body) if isinstance(var_or_zero, Var) else body
        return body

    def _behind(self, inside: Sequence[int], body: Stmt) -> Stmt:
        """`body` behind the nests of the stages that are computed in its loop, producers first."""
        for child in sorted(inside, reverse=True):
            nest = self.nest(child)
            nest = Seq((Barrier(), nest, Barrier())) if self.bounds.scopes[child] == "shared" else nest
            body = Seq((nest, body))
            body = body if self.state.is_argument(child) else Alloc(self.buffers[child], body)
        return body

    # --------------------------------------------------------------------------------------------------------- points

    def _update(self, k: int) -> Stmt:
        """The innermost statement of stage k."""
        body, index, loops = self.bounds.bodies[k], self._own_index(k, self.loops[k]), self.loops[k]
        assert body is not None
        value = self._value(k, body.source if isinstance(body, Reduce) else body, loops)
        if isinstance(body, Reduce):
            value = binary(FOLDS[body.fold][0], Load(self.buffers[k], (index,)), value)
        return self._guarded(k, loops, Store(self.buffers[k], index, value))

    def _initialise(self, k: int, first: int) -> Stmt:
        """The identity, in the space loops from position `first` on."""
        stage, body, fresh = self.stages[k], self.bounds.bodies[k], self._variables(k, "init_")
        assert isinstance(body, Reduce)
        inner = [it for it in stage.current[first:] if it.kind == "space"]
        loops = {**self.loops[k], **{part.id: fresh[part.id] for it in inner for part in self._parts(k, it)}}
        loops = {i: v for i, v in loops.items() if stage.iters[i].kind != "reduce"}
        identity = Const(FOLDS[body.fold][1], body.dtype)
        nest = self._guarded(k, loops, Store(self.buffers[k], self._own_index(k, loops), identity))
        for it in [it for it in reversed(inner) if it.annotation not in self.launch[k]]:
            for part in reversed(self._parts(k, it)):
                var = loops[part.id]
                kind = "vectorize" if it.annotation == "vectorize" else "serial"
                nest = For(var, kind, nest) if isinstance(var, Var) else nest
        return nest

    def _across_threads(self, k: int) -> Stmt:
        """A reduction that the threads of a block share: each folds a part, then they fold these together."""
        stage, body, thread = self.stages[k], self.bounds.bodies[k], self.launch[k]["threadIdx.x"]
        assert isinstance(body, Reduce)
        part = Op(f"{stage.op.name}.part", (Axis("at", 1),), None, body.dtype, f"{stage.op.key}.part", scope="local")
        here = Load(part, (Const(0),))
        value = binary(FOLDS[body.fold][0], here, self._value(k, body.source, self.loops[k]))
        nest = self._guarded(k, self.loops[k], Store(part, Const(0), value))
        reduced = [it for it in stage.current if it.kind == "reduce"]
        for it in reversed(reduced):
            nest = self._loop(k, it, self._behind(self.state.attached(k, it.id), nest))
        space = {i: v for i, v in self.loops[k].items() if stage.iters[i].kind != "reduce"}
        result = If(binary("<", thread, 1), Store(self.buffers[k], self._own_index(k, space), here))
        threads = prod(it.length for it in reduced if it.annotation == "threadIdx.x")
        start = Store(part, Const(0), Const(FOLDS[body.fold][1], body.dtype))
        nest = Alloc(part, Seq((start, nest, FoldThreads(part, body.fold, threads), result)))
        for it in reversed([it for it in stage.current if it.kind != "reduce"]):
            nest = self._loop(k, it, self._behind(self.state.attached(k, it.id), nest))
        return nest

    def _own_index(self, k: int, loops: dict[int, Expr]) -> Expr:
        """Where stage k keeps the point that the variables `loops` are at."""
        values = axis_values(self.stages[k], loops)
        local = [values[d] for d in range(self.stages[k].rank)]
        if self.state.is_argument(k):
            local = [start + x for start, x in zip(self.starts[k], local, strict=False)]
        return simplify(_flat(local, self._sizes(k)))

    def _env(self, k: int, loops: dict[int, Expr]) -> dict[Axis, Expr]:
        """The values of the axes of stage k that the variables `loops` give."""
        values, axes = axis_values(self.stages[k], loops), self.stages[k].op.all_axes
        return {a: simplify(self.starts[k][n] + values[n]) for n, a in enumerate(axes) if n in values}

    def _value(self, k: int, e: Expr, loops: dict[int, Expr]) -> Expr:
        """`e` at a point: axes as variables, and tensors as places in buffers."""
        env = self._env(k, loops)

        def at(x: Expr) -> Expr:
            if isinstance(x, Axis):
                return env[x]
            parts = [at(c) for c in children(x)]
            if not isinstance(x, Load):
                return rebuild(x, parts)
            p = self.index[x.op.key]
            if not self.state.is_argument(p):
                parts = [i - start for i, start in zip(parts, self.starts[p], strict=False)]
            return Load(self.buffers[p], (simplify(_flat(parts, self._sizes(p))),))

        return simplify(at(e))

    def _guarded(self, k: int, loops: dict[int, Expr], body: Stmt) -> Stmt:
        """`body` at points that exist: loops may run over the end of an axis, and regions over that of a tensor."""
        guards = split_guards(self.stages[k], loops)
        for a, value in self._env(k, loops).items():
            guards += [binary("<", value, a.extent), binary("<", Const(-1), value)]
        for guard in {g: None for g in map(simplify, guards) if not proven(g)}:
            body = If(guard, body)
        return body


def _flat(indices: Sequence[Expr], sizes: Sequence[int]) -> Expr:
    """The place of an element in row-major order."""
    place: Expr = Const(0)
    for i, n in zip(indices, sizes, strict=True):
        place = place * n + i
    return place


# -------------------------------------------------------------------------------------------------- virtual threads


def sink_virtual_threads(s: Stmt) -> Stmt:
    """Virtual threads run side by side: their loops go down to single stores, past barriers and shared tiles."""
    match s:
        case For(var, "vthread", body):
            return _sunk(var, sink_virtual_threads(body), {})
        case For() | If() | Alloc():
            return replace(s, body=sink_virtual_threads(s.body))
        case Seq(parts):
            return Seq(tuple(sink_virtual_threads(p) for p in parts))
        case _:
            return s


def _sunk(var: Var, s: Stmt, copies: dict[Op, Op]) -> Stmt:
    """`s` for all values of `var`; a private buffer has a copy for each (`copies`: by the buffer, the one with all)."""

    def moved(e: Expr) -> Expr:
        parts = [moved(c) for c in children(e)]
        if isinstance(e, Load) and e.op in copies:
            return Load(copies[e.op], (simplify(parts[0] + var * e.op.shape[0]),))
        return rebuild(e, parts)

    match s:
        case Seq(parts):
            return Seq(tuple(_sunk(var, p, copies) for p in parts))
        case Alloc(buffer, body) if buffer.scope == "local":
            wide = replace(buffer, axes=(Axis("at", buffer.shape[0] * var.extent),))
            return Alloc(wide, _sunk(var, body, {**copies, buffer: wide}))
        case For() | Alloc():
            return replace(s, body=_sunk(var, s.body, copies))
        case If(cond, Store() | If() as body):
            inner = _sunk(var, body, copies)
            if isinstance(inner, For) and inner.var is var:
                return replace(inner, body=If(moved(cond), inner.body))
            return For(var, "unroll", If(moved(cond), inner)) if var in set(walk(cond)) else If(cond, inner)
        case If(cond, body) if var not in set(walk(cond)):
            return If(cond, _sunk(var, body, copies))
        case Store(buffer, index, value):
            own = copies.get(buffer, buffer)
            place = simplify(moved(index) + var * buffer.shape[0]) if buffer in copies else moved(index)
            store = Store(own, place, moved(value))
            return For(var, "unroll", store) if var in {*walk(store.index), *walk(store.value)} else store
        case If():
            raise StepError("virtual threads: a loop inside a condition on a virtual thread has no place")
        case _:
            return s
