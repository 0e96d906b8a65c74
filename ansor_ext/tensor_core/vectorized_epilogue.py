"""What tensor cores leave in registers is stored 16 bytes at a time.

A lane has two neighbours in each row of 8 columns (`mma.py`); the four lanes of a row have all of
it, and so of the next columns.  Stored as they are, halves are 4 bytes a lane, 16 of a row.  So four lanes exchange
what they have of four tiles of 8 columns, and lane q of them stores tile q; of words, of which two neighbours are 8
bytes, two lanes exchange halves of two tiles:

    for j, i: C[.. + 8 * j + 2 * q + v] = f(d[j, i, v])      v in 0..2, a vector; q = lane % 4

    for j in steps of 4, i: groups[t, v] = f(d[j + t, i, v])                           t in 0..4
                            C[.. + 8 * (j + q)] = group q of the four lanes            16 bytes

On an H100, microseconds, halves and TF32:

    1024^3, 64 x 128 a block                                         7.60     5.94
    197 x 3072 x 768, 64 x 96                                        6.31     5.41
    4096^3, 128 x 256                                                245      220          433      427
    2048^3, the same                                                                       56.8     54.6
    128 x 3072 x 768, 64 x 48                                                              6.89     6.73
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen_cuda.program.cuda_program import VECTOR_BYTES, KernelNest
from codegen_cuda.program.indices import vector_start
from te_lite.bounds.loop_scope import LANES
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, walk
from te_lite.loops.perfect_nest import SEQUENTIAL
from te_lite.loops.stmt import (
    Buffer,
    For,
    ForKind,
    If,
    Stmt,
    Store,
    allocated,
    bodies,
    seq,
    stmts_of,
    with_bodies,
    written_by,
)

from .instructions import QuadStore, WarpMultiply

QUAD = 4
"""Lanes that have a row of a tile."""
HELPERS = {
    4: """\
// Four lanes have parts of four groups of 16 bytes each; each of them stores the group of its number.
static __device__ __forceinline__ void store_quad(void *to, const void *groups, unsigned lanes) {
  const unsigned *part = (const unsigned *)groups;
  unsigned x[4] = {part[0], part[1], part[2], part[3]};
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  #pragma unroll
  for (int k = 0; k < 4; k += 2) {
    const unsigned other = __shfl_xor_sync(lanes, odd ? x[k] : x[k + 1], 1);
    if (odd) x[k] = other;
    else x[k + 1] = other;
  }
  #pragma unroll
  for (int k = 0; k < 2; ++k) {
    const unsigned other = __shfl_xor_sync(lanes, high ? x[k] : x[k + 2], 2);
    if (high) x[k] = other;
    else x[k + 2] = other;
  }
  *(uint4 *)to = make_uint4(x[0], x[1], x[2], x[3]);
}""",
    2: """\
// Two lanes have halves of two groups of 16 bytes each; each of them stores the group of its number.
static __device__ __forceinline__ void store_pair(void *to, const void *groups, unsigned lanes) {
  const unsigned *part = (const unsigned *)groups;
  unsigned x[4] = {part[0], part[1], part[2], part[3]};
  const bool odd = threadIdx.x & 1;
  #pragma unroll
  for (int k = 0; k < 2; ++k) {
    const unsigned other = __shfl_xor_sync(lanes, odd ? x[k] : x[k + 2], 1);
    if (odd) x[k] = other;
    else x[k + 2] = other;
  }
  *(uint4 *)to = make_uint4(x[0], x[1], x[2], x[3]);
}""",
}
"""By the number of lanes."""
NAMES = {4: "store_quad", 2: "store_pair"}


def lanes_text(s: QuadStore) -> str:
    """The mask of the lanes that come together."""
    return "0xffffffffu" if s.whole else "15u << (threadIdx.x & 28)"


def with_vectorized_epilogue(nest: KernelNest) -> Stmt:
    """The body of a kernel, with such stores of what it does not read itself where tensor cores multiply."""
    lane = nest.loops.get("threadIdx.x")
    multiplies = any(isinstance(s, WarpMultiply) for s in stmts_of(nest.body))
    if lane is None or lane.extent != LANES or not multiplies:
        return nest.body
    stores = Counter([b for s in stmts_of(nest.body) for b in written_by(s)])
    alone = frozenset([b for b, n in stores.items() if n == 1 and b.storage == "global" and b not in nest.read()])
    return _Quads(lane.var, alone, nest.ranges()).rewritten(nest.body, True)


@dataclass(frozen=True)
class _Quads:
    """Stores to the buffers `alone`, to which a kernel has no other access, by the threads `lane` of warps."""

    lane: Var
    alone: frozenset[Buffer]
    ranges: Simplifier

    def rewritten(self, s: Stmt, whole: bool) -> Stmt:
        """`whole`: all threads of a warp come to the statement; otherwise whole fours of them do."""
        if isinstance(s, If):
            return replace(s, then=self.rewritten(s.then, whole and self._still(s.cond))) if self._alike(s.cond) else s
        made = self._exchanged(s, whole) if isinstance(s, For) and s.kind in SEQUENTIAL else None
        return with_bodies(s, tuple([self.rewritten(b, whole) for b in bodies(s)])) if made is None else made

    def _exchanged(self, s: For, whole: bool) -> Stmt | None:
        """The loop over tiles of columns in steps of four or two; None where it is no such loop."""
        between: list[For | If] = []
        vector, store = None, s.body
        while isinstance(store, For | If):
            if isinstance(store, For) and store.kind is ForKind.VECTORIZED:
                vector = store
            else:
                between.append(store)
            store = store.then if isinstance(store, If) else store.body
        to = self._to(s, vector, store) if vector is not None and isinstance(store, Store) else None
        if to is None or vector is None or not isinstance(store, Store) or not self._may_stand(between, s, vector):
            return None
        lanes, dtype = _lanes(store, vector), store.buffer.dtype
        steps, groups = s.extent // lanes, Buffer("groups", dtype, (VECTOR_BYTES // BYTES[dtype],), "local")
        step = self._var(s.var.name, steps)
        first = binary("*", step, lanes)
        place = self.ranges.simplify(substitute(to, {s.var: binary("+", first, binary("%", self.lane, lanes))}))
        come = whole and all(self._still(x.cond) for x in between if isinstance(x, If))
        stored = QuadStore(BufferLoad(store.buffer, place), BufferLoad(groups, as_expr(0)), lanes, come)
        body = seq(self._parts(s.var, first, lanes, vector, store.value, groups), stored)
        for x in reversed(between):
            body = with_bodies(x, (body,))
        return allocated([groups], For(step, steps, s.kind, body))

    def _may_stand(self, between: Sequence[For | If], s: For, vector: For) -> bool:
        """Whether loops are of one thread, and conditions the same for all that four lanes store together."""
        conds = [x.cond for x in between if isinstance(x, If)]
        alike = all(self._alike(c) and not {s.var, vector.var} & free_vars(c) for c in conds)
        return alike and all(x.kind in SEQUENTIAL for x in between if isinstance(x, For))

    def _to(self, s: For, vector: For, store: Store) -> Expr | None:
        """Where the first lane of a group stores its first element, if the lanes store neighbours, the loop runs over
        tiles of what four of them store, and groups begin at multiples of 16 bytes."""
        lanes, start = _lanes(store, vector), vector_start(store.index, vector.var, vector.extent)
        if start is None or lanes not in NAMES or s.extent % lanes or store.buffer not in self.alone:
            return None
        group, one = self._var("group", LANES // lanes), self._var("one", lanes)
        own, width = binary("*", group, lanes), VECTOR_BYTES // BYTES[store.buffer.dtype]
        first = self._of_lane(start, own)
        behind = self.ranges.simplify(binary("+", first, binary("*", one, vector.extent)))
        ahead = self.ranges.simplify(substitute(start, {s.var: binary("+", s.var, 1)}))
        if not same(ahead, self.ranges.simplify(binary("+", start, QUAD * vector.extent))):
            return None
        element = self._var("element", width)
        whole = vector_start(binary("+", first, element), element, width) is not None
        if not whole or not same(self._of_lane(start, binary("+", own, one)), behind):
            return None
        return self._of_lane(start, binary("*", binary("//", self.lane, lanes), lanes))

    def _parts(self, tiles: Var, first: Expr, lanes: int, vector: For, value: Expr, groups: Buffer) -> Stmt:
        """What a lane has of as many tiles, from the `first` one on."""
        tile, element = self._var(tiles.name, lanes), self._var(vector.var.name, vector.extent)
        made = self.ranges.simplify(substitute(value, {tiles: binary("+", first, tile), vector.var: element}))
        place = binary("+", binary("*", tile, vector.extent), element)
        own = replace(vector, var=element, body=Store(groups, place, made))
        return For(tile, lanes, ForKind.UNROLLED, own)

    def _var(self, name: str, extent: int) -> Var:
        var = Var(name)
        self.ranges.bind(var, 0, extent - 1)
        return var

    def _of_lane(self, e: Expr, lane: Expr) -> Expr:
        return self.ranges.simplify(substitute(e, {self.lane: lane}))

    def _still(self, e: Expr) -> bool:
        return self.lane not in free_vars(e)

    def _alike(self, cond: Expr) -> bool:
        """Whether a condition holds for all or none of four lanes; what it reads may differ between them."""
        if any(isinstance(x, BufferLoad) for x in walk(cond)):
            return False
        quad, one = self._var("quad", LANES // QUAD), self._var("one", QUAD)
        own = binary("*", quad, QUAD)
        return same(self._of_lane(cond, binary("+", own, one)), self._of_lane(cond, own))


def _lanes(store: Store, vector: For) -> int:
    """The lanes whose vectors are 16 bytes; 0 where none are."""
    nbytes = vector.extent * BYTES[store.buffer.dtype]
    return VECTOR_BYTES // nbytes if VECTOR_BYTES % nbytes == 0 else 0
