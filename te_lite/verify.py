"""What every lowered program must satisfy: small named checks, run after each pass in the tests.

A check yields one sentence per finding.  `in_bounds` refutes, it does not prove: it tries points of the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .errors import InterpError, LowerError
from .expr import BufferLoad, Call, Expr, Load, Logical, Reduce, Var, logical_not
from .interp_expr import Value, evaluate
from .interval import INDEX_DTYPES
from .step import SCOPES, is_scope
from .stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    LoweredFunc,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    bodies,
    exprs_of,
)
from .stmt_text import head_text, pretty
from .visit import children, free_vars, walk

Path = tuple[Stmt, ...]
Check = Callable[[LoweredFunc], Iterator[str]]

TAGS = {
    ForKind.BLOCK: ("blockIdx.x", "blockIdx.y", "blockIdx.z"),
    ForKind.THREAD: ("threadIdx.x", "threadIdx.y", "threadIdx.z"),
}
_POINTS = 512


def verify(func: LoweredFunc) -> None:
    """Raise LowerError with the first finding of the first check that finds something."""
    for check in CHECKS:
        for finding in check(func):
            raise LowerError(f"{func.name}: {check.__name__}: {finding}")


def paths(s: Stmt) -> Iterator[tuple[Stmt, Path]]:
    """Every statement under `s`, with those around it from the outside in."""
    stack: list[tuple[Stmt, Path]] = [(s, ())]
    while stack:
        node, path = stack.pop()
        yield node, path
        stack.extend((b, (*path, node)) for b in reversed(bodies(node)))


def _kernel_loop(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind in TAGS


def _accesses(s: Stmt) -> Iterator[tuple[Buffer, Expr]]:
    if isinstance(s, Store):
        yield s.buffer, s.index
    for e in exprs_of(s):
        for node in walk(e):
            if isinstance(node, BufferLoad):
                yield node.buffer, node.index


# ---------------------------------------------------------------------------------------------- definitions


def variables(func: LoweredFunc) -> Iterator[str]:
    """A loop variable is defined once on a path, by a loop with a positive extent, around all its uses."""
    for s, path in paths(func.body):
        bound = [x.var for x in path if isinstance(x, For)]
        if isinstance(s, For):
            if any(v is s.var for v in bound):
                yield f"the variable {s.var.name} is bound by two nested loops"
            if not isinstance(s.extent, int) or s.extent < 1:
                yield f"the extent of loop {s.var.name} must be a positive integer, got extent={s.extent!r}"
        used = {v for e in exprs_of(s) for v in free_vars(e)}
        if isinstance(s, ThreadReduce):
            used.add(s.thread)
        for v in used:
            if not any(v is x for x in bound):
                yield f"the variable {v.name} of `{head_text(s)}` is bound by no loop around it"


def buffers(func: LoweredFunc) -> Iterator[str]:
    """A buffer is an argument or allocated once, around all its uses."""
    for k, b in enumerate(func.args):
        if b in func.args[:k]:
            yield f"the buffer {b.name} is two arguments"
    for s, path in paths(func.body):
        known = [*func.args, *(x.buffer for x in path if isinstance(x, Alloc))]
        if isinstance(s, Alloc) and s.buffer in known:
            yield f"the buffer {s.buffer.name} is allocated twice"
        used = [b for b, _ in _accesses(s)] + (list(s.dst) if isinstance(s, ThreadReduce) else [])
        for b in used:
            if b not in known:
                yield f"the buffer {b.name} of `{head_text(s)}` is neither argument nor allocated around it"


def scopes(func: LoweredFunc) -> Iterator[str]:
    """Arguments are global; shared memory exists in kernels only."""
    for b in func.args:
        if b.scope != "global":
            yield f"the argument {b.name} must be global, got scope={b.scope!r}"
    for s, path in paths(func.body):
        if not isinstance(s, Alloc):
            continue
        if not is_scope(s.buffer.scope):
            yield f"the scope of {s.buffer.name} must be one of {', '.join(SCOPES)}, got scope={s.buffer.scope!r}"
        if s.buffer.storage == "shared" and not any(map(_kernel_loop, path)):
            yield f"the shared buffer {s.buffer.name} is allocated outside of a kernel"


# ----------------------------------------------------------------------------------------------- expressions


def lowered(func: LoweredFunc) -> Iterator[str]:
    """No tensor-level node is left."""
    for s, _ in paths(func.body):
        for e in exprs_of(s):
            for node in walk(e):
                if isinstance(node, Load | Reduce):
                    yield f"`{pretty(node)}` is not lowered"


def dtypes(func: LoweredFunc) -> Iterator[str]:
    """Stores have the dtype of their buffer, indices are int32 or int64, conditions are bool."""
    for s, _ in paths(func.body):
        if isinstance(s, Store) and s.value.dtype != s.buffer.dtype:
            yield f"`{head_text(s)}` stores {s.value.dtype} to a buffer of {s.buffer.dtype}"
        if isinstance(s, If) and s.cond.dtype != "bool":
            yield f"the condition `{pretty(s.cond)}` is {s.cond.dtype}, not bool"
        for b, index in _accesses(s):
            if index.dtype not in INDEX_DTYPES:
                yield f"the index `{pretty(index)}` of {b.name} is {index.dtype}, no {' or '.join(INDEX_DTYPES)}"


def in_bounds(func: LoweredFunc) -> Iterator[str]:
    """No access is outside of its buffer at the points that are tried, given the conditions around it."""
    for s, path in paths(func.body):
        if not isinstance(s, Store | If | ThreadReduce):
            continue
        points = _sample({x.var: x.extent for x in path if isinstance(x, For)})
        for buffer, index, conditions in _guarded_accesses(s, tuple([x.cond for x in path if isinstance(x, If)])):
            found = _outside(buffer, index, conditions, points)
            if found is not None:
                at, value = found
                where = ", ".join(f"{v.name}={values[at]}" for v, values in points.items())
                yield f"{buffer.name}[{value}] in `{head_text(s)}` is outside of {buffer.size} elements where {where}"


Guarded = tuple[Buffer, Expr, tuple[Expr, ...]]
"""A buffer, an index, and the conditions under which the element is touched."""


def _guarded_accesses(s: Stmt, guards: tuple[Expr, ...]) -> list[Guarded]:
    """The accesses of `s` itself, each with its conditions."""
    stored = [(s.buffer, s.index, guards)] if isinstance(s, Store) else []
    return stored + [load for e in exprs_of(s) for load in _guarded_loads(e, guards)]


def _guarded_loads(e: Expr, guards: tuple[Expr, ...]) -> list[Guarded]:
    """The loads in `e`, each with the conditions under which it is evaluated."""
    parts: list[tuple[Expr, tuple[Expr, ...]]] = [(k, guards) for k in children(e)]
    match e:
        case Call(func="if_then_else", args=(cond, a, b)):
            parts = [(cond, guards), (a, (*guards, cond)), (b, (*guards, logical_not(cond)))]
        case Logical(op=op, a=a, b=b):
            parts = [(a, guards), (b, (*guards, a if op == "&&" else logical_not(a)))]
    own = [(e.buffer, e.index, guards)] if isinstance(e, BufferLoad) else []
    return own + [load for part, conditions in parts for load in _guarded_loads(part, conditions)]


def _sample(loops: dict[Var, int]) -> dict[Var, Value]:
    """All points of the loops, or the first, the last and a walk through the others."""
    total = int(np.prod([max(n, 1) for n in loops.values()], dtype=object))
    count = min(total, _POINTS)
    step = max(1, int(total * 0.6180339887) | 1) if total > _POINTS else 1
    flat = [k * step % total for k in range(count)] + [total - 1]
    out: dict[Var, Value] = {}
    for v, n in loops.items():
        out[v] = np.array([x % max(n, 1) for x in flat], np.int64)
        flat = [x // max(n, 1) for x in flat]
    return out


def _count(points: dict[Var, Value]) -> int:
    return max((len(v) for v in points.values()), default=1)


def _outside(
    buffer: Buffer, index: Expr, conditions: tuple[Expr, ...], points: dict[Var, Value]
) -> tuple[int, int] | None:
    """A point where all conditions hold and the index is outside, and the index; None also when memory decides."""
    if any(isinstance(x, BufferLoad | Load | Reduce) for e in (index, *conditions) for x in walk(e)):
        return None
    alive = np.ones(_count(points), bool)
    try:
        for cond in conditions:
            alive = alive & evaluate(cond, points, alive)
        value = np.broadcast_to(evaluate(index, points, alive), alive.shape)
    except InterpError:
        return None
    bad = alive & ((value < 0) | (value >= buffer.size))
    at = int(np.argmax(bad))
    return (at, int(value[at])) if bad[at] else None


# -------------------------------------------------------------------------------------------------- parallelism


def kernels(func: LoweredFunc) -> Iterator[str]:
    """Block and thread loops are the outermost nest, blocks before threads, one loop per axis."""
    for s, path in paths(func.body):
        if not isinstance(s, For):
            continue
        name = s.tag or s.var.name
        around = [x for x in path if isinstance(x, For) and x.kind in TAGS]
        if s.kind not in TAGS:
            if s.tag:
                yield f"loop {s.var.name} is {s.kind.value}, and has the tag {s.tag}"
            if s.kind is ForKind.PARALLEL and around:
                yield f"the parallel loop {s.var.name} is inside a kernel"
            continue
        if s.tag not in TAGS[s.kind]:
            yield f"the tag of {s.kind.value} loop {s.var.name} must be one of {', '.join(TAGS[s.kind])}, got {s.tag!r}"
        if any(x.tag == s.tag for x in around):
            yield f"{name} is bound twice in one kernel"
        if s.kind is ForKind.BLOCK and any(x.kind is ForKind.THREAD for x in around):
            yield f"{name} is inside a thread loop"
        first = path.index(around[0]) if around else len(path)
        between = [x for x in path[first:] if not isinstance(x, Alloc) and not _kernel_loop(x)]
        outside = [x for x in path[:first] if not isinstance(x, Alloc | Seq)]
        for x in (*between, *outside):
            yield f"{name} is inside `{head_text(x)}`, a kernel's loops must be outermost"


def meetings(func: LoweredFunc) -> Iterator[str]:
    """Barriers and thread reductions are in kernels; a reduction names a thread loop and fits it."""
    for s, path in paths(func.body):
        if not isinstance(s, Barrier | ThreadReduce):
            continue
        if not any(map(_kernel_loop, path)):
            yield f"`{head_text(s)}` is outside of a kernel"
        if isinstance(s, ThreadReduce):
            yield from _reduction_findings(s, path)


def _reduction_findings(s: ThreadReduce, path: Path) -> Iterator[str]:
    text = head_text(s)
    loops = [x for x in path if isinstance(x, For) and x.var is s.thread]
    if not loops or loops[0].kind is not ForKind.THREAD:
        yield f"{s.thread.name} of `{text}` is not the variable of a thread loop"
    elif not 1 <= s.extent <= loops[0].extent:
        yield f"`{text}` needs between 1 and {loops[0].extent} threads, got extent={s.extent}"
    if not len(s.dst) == len(s.src) == len(s.combiner.result):
        yield f"`{text}` needs {len(s.combiner.result)} results and sources, got {len(s.dst)} and {len(s.src)}"
    for b, e in zip(s.dst, s.src, strict=False):
        if b.storage != "local" or b.size != 1 or b.dtype != e.dtype:
            yield f"the result of `{text}` needs a local buffer of one {e.dtype}, got {b!r}"


def vectors(func: LoweredFunc) -> Iterator[str]:
    """A vectorized loop is innermost and has no barrier."""
    for s, path in paths(func.body):
        outer = [x.var.name for x in path if isinstance(x, For) and x.kind is ForKind.VECTORIZED]
        if outer and isinstance(s, For | Barrier | ThreadReduce):
            yield f"the vectorized loop {outer[0]} contains `{head_text(s)}`"


CHECKS: tuple[Check, ...] = (
    variables, buffers, scopes, lowered, dtypes, kernels, meetings, vectors, in_bounds,
)  # fmt: skip
