"""What a thread writes side by side goes to memory in vectors, where a schedule did not say so.

    for r, c, v: C[2048 * r + 32 * v + c] = acc[r, v, c]      for r, v: the 4 elements of c as one float4

A compiler does not know that an index is a multiple of four, and writes the elements of a tile one by one.  The loop
along them goes inside: each iteration writes a place of its own, and none reads what others write.

A vector is written from four registers of a group.  Sums that lie so all through the kernel meet operands of their own
bank in every second multiply-add (`outer_product.py`), and the compiler does not move them: to it, they are one value.
So they are written through `apart`, an exclusive or with a zero that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence

from te_lite.c_text import BYTES
from te_lite.expr import BufferLoad
from te_lite.perfect_nest import IN_TURN, nested, perfect_nest
from te_lite.stmt import For, ForKind, Stmt, Store, bodies, exprs_of, with_bodies
from te_lite.visit import walk

from .cuda_program import VECTOR_BYTES
from .indices import vector_start

APART = """static __device__ __forceinline__ float apart(float x) {
  return __uint_as_float(__float_as_uint(x) ^ (gridDim.z - 1));
}"""


def with_vector_writes(s: Stmt) -> Stmt:
    """A kernel whose stores of registers to global memory are vectors where they can be."""
    loops, inner = perfect_nest(s, lambda loop: loop.kind in IN_TURN)
    lane = _lane(loops, inner) if isinstance(inner, Store) else None
    if lane is None:
        return with_bodies(s, tuple([with_vector_writes(b) for b in bodies(s)]))
    return nested([x for x in loops if x is not lane], nested([lane], inner, ForKind.VECTORIZED))


def _lane(loops: Sequence[For], s: Store) -> For | None:
    """The loop along neighbours in memory, whose turns are whole vectors that start at multiples of their size."""
    if not loops or s.buffer.storage != "global":
        return None
    read = {e.buffer for root in exprs_of(s) for e in walk(root) if isinstance(e, BufferLoad)}
    if s.buffer in read or not any(b.storage == "local" for b in read):
        return None
    widest = VECTOR_BYTES // BYTES[s.buffer.dtype]
    for width in (n for n in (8, 4, 2) if n <= widest):
        for loop in reversed(loops):
            if loop.extent % width == 0 and vector_start(s.index, loop.var, width) is not None:
                return loop
    return None
