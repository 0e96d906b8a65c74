"""Vectorised epilogue stores: what a thread writes side by side, where a schedule did not say so.

    for r, c, v: C[2048 * r + 32 * v + c] = acc[r, v, c]      for r, v: the 4 elements of c as one float4

A compiler does not know that an index is a multiple of four, and writes the elements of a tile one by one.  The loop
along them goes inside: each iteration writes a place of its own, and none reads what others write.

Where a nest has several such stores, some of them behind conditions (tiles of which the last ones are cut), vectors are
written one behind the other in the iterations of a loop that is as much shorter:

    for v: C[v] = acc[v]; if (32 * b + v < 90) C[v + 64] = acc[v + 4]
    for v / 2: C[v .. v + 2] = ..; if (32 * b + v < 90) C[v + 64 .. v + 66] = ..        v: 0, 2, ..

All elements of a vector are behind a condition or none is where what is compared is a multiple of its width, on both
sides.  Vectors start at multiples of their width: they are the same place or none, so no store passes another one.

A vector is written from four registers of a group.  Sums that lie so all through the kernel meet operands of their own
bank in every second multiply-add (`outer_product.py`), and the compiler does not move them: to it, they are one value.
So they are written through `apart`, an exclusive or with a zero that it does not know; so are those that an activation
follows, else reads of shared memory come in clusters (docs/results/gpu.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Compare, Const, Expr, Logical, Var, as_expr, binary, compare
from te_lite.expr.visit import free_vars, substitute, walk
from te_lite.loops.perfect_nest import SEQUENTIAL, nested, perfect_nest
from te_lite.loops.stmt import For, ForKind, If, Seq, Stmt, Store, bodies, exprs_of, seq, with_bodies

from ..program.cuda_program import VECTOR_BYTES
from ..program.indices import divisor, vector_start

APART = """static __device__ __forceinline__ float apart(float x) {
  return __uint_as_float(__float_as_uint(x) ^ (gridDim.z - 1));
}"""


def with_vector_writes(s: Stmt) -> Stmt:
    """A kernel whose stores of registers to global memory are vectors where they can be."""
    loops, inner = perfect_nest(s, lambda loop: loop.kind in SEQUENTIAL)
    lane = _lane(loops, inner) if isinstance(inner, Store) else None
    if lane is None and isinstance(inner, Seq | If) and (together := _together(loops, inner)) is not None:
        return together
    if lane is None:
        return _whole_vectors(s) or with_bodies(s, tuple([with_vector_writes(b) for b in bodies(s)]))
    return nested([x for x in loops if x is not lane], nested([lane], inner, ForKind.VECTORIZED))


def _whole_vectors(s: Stmt) -> Stmt | None:
    """Lanes of memory up to a bound as vectors, and one by one in the vector that the bound cuts; else None."""
    match s:
        case For(
            var=lane, extent=width, kind=ForKind.VECTORIZED,
            body=If(cond=Compare(op="<", a=a, b=Const(value=bound)), then=Store() as store),
        ) if store.buffer.storage == "global" and vector_start(a, lane, width) is not None:  # fmt: skip
            last = substitute(a, {lane: as_expr(width - 1)})
            whole = If(compare("<", last, bound), replace(s, body=store))
            return seq(whole, If(compare("<", bound - 1, last), replace(s, kind=ForKind.UNROLLED)))
    return None


def _lane(loops: Sequence[For], s: Store) -> For | None:
    """The loop along neighbours in memory, whose iterations are whole vectors that start at multiples of their size."""
    if not loops or s.buffer.storage != "global" or not _moves_registers(s):
        return None
    for width in _widths(s):
        for loop in reversed(loops):
            if loop.extent % width == 0 and vector_start(s.index, loop.var, width) is not None:
                return loop
    return None


def _widths(s: Store) -> tuple[int, ...]:
    return tuple([n for n in (8, 4, 2) if n * BYTES[s.buffer.dtype] <= VECTOR_BYTES])


def _moves_registers(s: Store) -> bool:
    """Whether a store reads registers, and not what it writes."""
    read = {e.buffer for root in exprs_of(s) for e in walk(root) if isinstance(e, BufferLoad)}
    return s.buffer not in read and any(b.storage == "local" for b in read)


def _together(loops: Sequence[For], inner: Seq | If) -> Stmt | None:
    """Such loops around several stores to one tensor, with vectors of all of them; None where they have none."""
    stores = _stores(inner)
    if stores is None or len({x.buffer for x in stores}) > 1 or stores[0].buffer.storage != "global":
        return None
    for width in _widths(stores[0]):
        for lane in reversed(loops):
            if lane.extent % width == 0 and _in_vectors(inner, lane.var, width):
                iterations = replace(lane, extent=lane.extent // width)
                return nested([iterations if x is lane else x for x in loops], _vectors(inner, lane.var, width))
    return None


def _stores(s: Stmt) -> list[Store] | None:
    """The stores of registers that a statement consists of, beside loops and conditions; None where it has others.

    Conditions read no memory, which the stores could write.
    """
    match s:
        case Store():
            return [s] if _moves_registers(s) else None
        case If(cond=cond) if any(isinstance(e, BufferLoad) for e in walk(cond)):
            return None
        case For(kind=kind) if kind not in SEQUENTIAL:
            return None
        case Seq() | If() | For():
            found = [_stores(b) for b in bodies(s)]
            return None if None in found else [x for part in found for x in part or ()]
    return None


def _in_vectors(s: Stmt, lane: Var, width: int) -> bool:
    """Whether the lanes of each store are vectors, and conditions around them are the same for all of a vector."""
    if isinstance(s, Store):
        return vector_start(s.index, lane, width) is not None
    same = not isinstance(s, If) or _alike(s.cond, lane, width)
    return same and all(_in_vectors(b, lane, width) for b in bodies(s))


def _alike(cond: Expr, lane: Var, width: int) -> bool:
    """Whether a condition is the same for all lanes of a vector."""
    match cond:
        case Logical(op="&&", a=a, b=b):
            return _alike(a, lane, width) and _alike(b, lane, width)
        case Compare(op="<", a=a, b=b) if lane not in free_vars(b) and divisor(b) % width == 0:
            return lane not in free_vars(a) or vector_start(a, lane, width) is not None
    return lane not in free_vars(cond)


def _vectors(s: Stmt, lane: Var, width: int) -> Stmt:
    """A statement in an iteration of a loop over vectors, which are loops of their own around the stores."""
    first = binary("*", lane, width)
    if isinstance(s, Store):
        within = Var(lane.name, lane.dtype)
        place = {lane: binary("+", first, within)}
        moved = replace(s, index=substitute(s.index, place), value=substitute(s.value, place))
        return For(within, width, ForKind.VECTORIZED, moved)
    inner = with_bodies(s, tuple([_vectors(b, lane, width) for b in bodies(s)]))
    return replace(inner, cond=substitute(inner.cond, {lane: first})) if isinstance(inner, If) else inner
