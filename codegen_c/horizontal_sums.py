"""Horizontal reductions: what lies side by side in an array of the program, summed up by vectors.

    for k in 64: total = total + part[k]     ->     lanes[0:16] = part[0:16]
                                                    for c in 1 .. 3: lanes[0:16] = lanes[0:16] + part[16 c : 16 c + 16]
                                                    lanes[0:8] = lanes[0:8] + lanes[8:16]; then 4, 2 and 1 of them
                                                    total = total + lanes[0]

Such loops end the reductions of rows, whose parts are summed up in the lanes of vectors: 64 additions of which each
waits for the one before take as long as all vectors of a row.  Products, minima and maxima are treated alike.  The
order of a sum is free (docs/arithmetic.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Expr, Var, binary, const
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.perfect_nest import SEQUENTIAL
from te_lite.loops.register_tile import VECTOR_DTYPES
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, Stmt, Store, bodies, seq, stmts_of, with_bodies

from .indices import Indices
from .processor import Options

LEAST_LANES = 4
_OPERATIONS = ("+", "*", "min", "max")


@dataclass(frozen=True)
class _Sum:
    """A loop that does nothing but `total = total op part[...]`, with the next element of `part` in every iteration."""

    loop: For
    total: BufferLoad
    op: str
    part: BufferLoad

    def element(self, at: Expr) -> BufferLoad:
        """What iteration `at` adds."""
        return BufferLoad(self.part.buffer, substitute(self.part.index, {self.loop.var: at}))


def lane_sums(s: Stmt, options: Options, indices: Indices) -> Stmt:
    """`s` with the sums of its own arrays taken by vectors; vectorized loops are as schedules have them."""
    own = frozenset(x.buffer for x in stmts_of(s) if isinstance(x, Alloc))
    return _visit(s, own, options, indices)


def _visit(s: Stmt, own: frozenset[Buffer], options: Options, indices: Indices) -> Stmt:
    found = _sum_of(s, own, indices) if isinstance(s, For) else None
    if found is not None:
        lanes = gcd(found.loop.extent, options.vector_bytes // BYTES[found.part.dtype])
        if lanes >= LEAST_LANES:
            return _by_vectors(found, lanes, indices)
    return with_bodies(s, tuple([_visit(b, own, options, indices) for b in bodies(s)]))


def _sum_of(loop: For, own: frozenset[Buffer], indices: Indices) -> _Sum | None:
    match loop.body:
        case Store(buffer=total, index=index, value=Binary(op=op, a=BufferLoad() as a, b=BufferLoad() as b)):
            held, part = (a, b) if a.buffer is total else (b, a)
        case _:
            return None
    serial = loop.kind in SEQUENTIAL and op in _OPERATIONS and part.dtype in VECTOR_DTYPES
    fixed = held.buffer is total and bool(held.index == index) and loop.var not in free_vars(index)
    if not serial or not fixed or part.buffer is total or part.buffer not in own:
        return None
    return _Sum(loop, held, op, part) if indices.contiguous(part.index, loop.var, loop.extent) else None


def _by_vectors(found: _Sum, lanes: int, indices: Indices) -> Stmt:
    held = Buffer(f"{found.part.buffer.name}_lanes", found.part.dtype, (lanes,), "local")

    def variable(name: str, extent: int) -> Var:
        var = Var(name, found.loop.var.dtype)
        indices.bind(var, extent)
        return var

    def vector(count: int, element: Callable[[Var], Expr], added: bool = True) -> For:
        """An element becomes each of the first `count` lanes, or is added to it."""
        lane = variable("v", count)
        value = binary(found.op, BufferLoad(held, lane), element(lane)) if added else element(lane)
        return For(lane, count, ForKind.VECTORIZED, Store(held, lane, value))

    def half(count: int) -> For:
        return vector(count, lambda lane: BufferLoad(held, binary("+", lane, const(count))))

    parts: list[Stmt] = [vector(lanes, found.element, added=False)]
    more = found.loop.extent // lanes - 1
    if more:
        iteration = variable("c", more)
        start = binary("*", binary("+", iteration, const(1)), const(lanes))
        further = vector(lanes, lambda lane: found.element(binary("+", start, lane)))
        parts.append(For(iteration, more, found.loop.kind, further))
    parts += [half(1 << k) for k in reversed(range(lanes.bit_length() - 1))]
    total = binary(found.op, found.total, BufferLoad(held, const(0)))
    return Alloc(held, seq(*parts, Store(found.total.buffer, found.total.index, total)))
