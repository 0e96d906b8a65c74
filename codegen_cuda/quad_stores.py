"""Elements of two bytes that tensor cores leave in registers are stored 16 bytes at a time.

A lane has two neighbours in each row of 8 columns (`te_lite/mma.py`); the four lanes of a row have all of it, and so of
the next columns.  Stored as they are, each store of a warp writes 4 bytes a lane, in 8 rows of 16 bytes.  So four lanes
exchange what they have of four tiles of 8 columns, and lane q of them stores tile q:

    for j, i: C[.. + 8 * j + 2 * q + v] = f(d[j, i, v])      v in 0..2, a vector; q = lane % 4

    for j in steps of 4, i: groups[t, v] = f(d[j + t, i, v])                           t in 0..4
                            C[.. + 8 * (j + q)] = group q of the four lanes            16 bytes

On an H100, microseconds, halves (sums in float32 gain nothing, whose stores are of 32 bytes a row):

    1024^3, 64 x 128 a block                                         7.60     5.94
    197 x 3072 x 768, 64 x 96                                        6.31     5.41
    4096^3, 128 x 256                                                245      220
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from te_lite.c_text import BYTES
from te_lite.expr import BufferLoad, Expr, Var, as_expr, binary, same
from te_lite.fragment import LANES
from te_lite.perfect_nest import IN_TURN
from te_lite.simplify import Simplifier
from te_lite.stmt import (
    Buffer,
    For,
    ForKind,
    If,
    QuadStore,
    Stmt,
    Store,
    allocated,
    bodies,
    seq,
    stmts_of,
    with_bodies,
    written_by,
)
from te_lite.visit import free_vars, substitute, walk

from .cuda_program import VECTOR_BYTES, KernelNest
from .indices import vector_start

QUAD = 4
PART_BYTES = VECTOR_BYTES // QUAD
"""That a lane has of a group."""
STORE_HELPER = """\
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
}"""


def lanes_text(s: QuadStore) -> str:
    """The mask of the lanes that come together."""
    return "0xffffffffu" if s.whole else "15u << (threadIdx.x & 28)"


def with_quad_stores(nest: KernelNest) -> Stmt:
    """The body of a kernel whose warps are the threads along x, with such stores of what it does not read itself."""
    lane = nest.loops.get("threadIdx.x")
    if lane is None or lane.extent != LANES:
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
        made = self._exchanged(s, whole) if isinstance(s, For) and s.kind in IN_TURN else None
        return with_bodies(s, tuple([self.rewritten(b, whole) for b in bodies(s)])) if made is None else made

    def _exchanged(self, s: For, whole: bool) -> Stmt | None:
        """The loop over tiles of columns in steps of four; None where it is no such loop."""
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
        four, groups = self._var(s.var.name, s.extent // QUAD), self._groups(store.buffer.dtype)
        first = binary("*", four, QUAD)
        part = self._part(s.var, first, vector, store.value, groups)
        place = self.ranges.simplify(substitute(to, {s.var: binary("+", first, binary("%", self.lane, QUAD))}))
        come = whole and all(self._still(x.cond) for x in between if isinstance(x, If))
        body = seq(part, QuadStore(BufferLoad(store.buffer, place), BufferLoad(groups, as_expr(0)), come))
        for x in reversed(between):
            body = with_bodies(x, (body,))
        return allocated([groups], For(four, s.extent // QUAD, s.kind, body))

    def _may_stand(self, between: Sequence[For | If], s: For, vector: For) -> bool:
        """Whether loops are of one thread, and conditions the same for all that four lanes store together."""
        conds = [x.cond for x in between if isinstance(x, If)]
        alike = all(self._alike(c) and not {s.var, vector.var} & free_vars(c) for c in conds)
        return alike and all(x.kind in IN_TURN for x in between if isinstance(x, For))

    def _to(self, s: For, vector: For, store: Store) -> Expr | None:
        """Where the first lane of four stores its first element, if all four store neighbours, in steps of 8."""
        nbytes = BYTES[store.buffer.dtype]
        start = vector_start(store.index, vector.var, vector.extent)
        sizes = s.extent % QUAD == 0 and vector.extent * nbytes == PART_BYTES and nbytes < PART_BYTES
        if start is None or not sizes or store.buffer not in self.alone:
            return None
        quad, one = self._var("quad", LANES // QUAD), self._var("one", QUAD)
        own, width = binary("*", quad, QUAD), VECTOR_BYTES // nbytes
        first = self._of_lane(start, own)
        lanes = same(self._of_lane(start, binary("+", own, one)), self._plus(first, binary("*", one, vector.extent)))
        ahead = self.ranges.simplify(substitute(start, {s.var: binary("+", s.var, 1)}))
        steps = same(ahead, self._plus(start, as_expr(width)))
        element = self._var("element", width)
        whole = vector_start(binary("+", first, element), element, width) is not None
        law = lanes and steps and whole
        return self._of_lane(start, binary("*", binary("//", self.lane, QUAD), QUAD)) if law else None

    def _part(self, tiles: Var, first: Expr, vector: For, value: Expr, groups: Buffer) -> Stmt:
        """What the lane has of four tiles, from the `first` one on."""
        tile, element = self._var(tiles.name, QUAD), self._var(vector.var.name, vector.extent)
        made = self.ranges.simplify(substitute(value, {tiles: binary("+", first, tile), vector.var: element}))
        place = binary("+", binary("*", tile, vector.extent), element)
        lanes = replace(vector, var=element, body=Store(groups, place, made))
        return For(tile, QUAD, ForKind.UNROLLED, lanes)

    def _groups(self, dtype: str) -> Buffer:
        return Buffer("groups", dtype, (VECTOR_BYTES // BYTES[dtype],), "local")

    def _var(self, name: str, extent: int) -> Var:
        var = Var(name)
        self.ranges.bind(var, 0, extent - 1)
        return var

    def _of_lane(self, e: Expr, lane: Expr) -> Expr:
        return self.ranges.simplify(substitute(e, {self.lane: lane}))

    def _plus(self, a: Expr, b: Expr) -> Expr:
        return self.ranges.simplify(binary("+", a, b))

    def _still(self, e: Expr) -> bool:
        return self.lane not in free_vars(e)

    def _alike(self, cond: Expr) -> bool:
        """Whether a condition holds for all or none of four lanes; what it reads may differ between them."""
        if any(isinstance(x, BufferLoad) for x in walk(cond)):
            return False
        quad, one = self._var("quad", LANES // QUAD), self._var("one", QUAD)
        own = binary("*", quad, QUAD)
        return same(self._of_lane(cond, binary("+", own, one)), self._of_lane(cond, own))
