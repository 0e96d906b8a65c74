"""Sums that blocks of a cluster add up, each a part of the terms: a long sum of few results fills a machine.

    for s: clear d[s]                                    block s of the cluster: clear d
           copy(0) ... copy(S - 2)                                   copy(0) ... copy(S - 2)
           for t: barrier; copy(t + S - 1)       becomes             for t: barrier; copy(t + S - 1)
                  d[s] += A[s, t] * B[s, t]                                 d += A[s, t] * B[s, t]
    for j, i: sum = 0                                                total = a share of d of all blocks, added up
              for s: sum += d[s, j, i]                               for j of the share, i: C[j, i] = f(total[j, i])
              C[j, i] = f(sum)

That is what a program says whose parts of sums (`rfactor`) stay in the registers of the threads that add them up: a
block by itself computes one part after the other.  The parts need not wait for each other, so each is one of a block
(`ring.py`), and what another block has is read from its shared memory, in which its ring was.  Parts are added in the
order of the program, from zero.  Shares are columns, in steps of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from codegen_cuda.program.cuda_program import KernelNest
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Const, Expr, Var, as_expr, binary, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, transform
from te_lite.loops.stmt import (
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    Stmt,
    Store,
    allocated,
    bodies,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from ..pipeline.emission import by_engine
from ..pipeline.staged_copies import enclosing
from .instructions import RingCall, WarpMultiply
from .tile_copies import refuse

REGISTERS = 4
"""Sums of a thread of 8 columns."""
MOST_BLOCKS = 8
"""Of a cluster."""
Sum = tuple[tuple[Buffer, Expr], Expr]
"""The element that parts are summed up in, and the place of the first one."""


@dataclass(frozen=True)
class Shares:
    """Blocks of a cluster, one for each part of the sums; `sums` of a thread, and the `total` of those of its share."""

    blocks: int
    sums: Buffer
    total: Buffer

    def added(self, room: Buffer, threads: int) -> RingCall:
        """What adds up a share, with the shared memory `room` for the sums of so many threads."""
        nbytes = room.size * BYTES[room.dtype]
        fits = threads * self.sums.size * BYTES[self.sums.dtype] <= nbytes
        refuse(fits, "a ring must have room for the sums", nbytes=nbytes)
        counts = self.blocks, self.sums.size // REGISTERS, self.total.size // REGISTERS, threads
        places = [BufferLoad(b, as_expr(0)) for b in (self.total, self.sums, room)]
        return RingCall("cluster_add", tuple(places), ", ".join(map(str, counts)))


def over_cluster(nest: KernelNest) -> tuple[KernelNest, Shares | None]:
    """A kernel whose parts of sums are of one block each, and how they are added up; as it is where it has no such
    parts.  Raises EmitError for parts that are added otherwise."""
    held: list[Buffer] = []
    match list(flattened(nest.body, held)):
        case [For(kind=ForKind.SERIAL) as part, For() as epilogue] if "blockIdx.y" not in nest.loops:
            found = [s.d for s in stmts_of(part) if isinstance(s, WarpMultiply)]
            if len(found) == 1 and part.var in free_vars(found[0].index) and by_engine(part):
                return _split(nest, held, part, epilogue, found[0].buffer)
    return nest, None


def _split(
    nest: KernelNest, held: Sequence[Buffer], part: For, epilogue: For, found: Buffer
) -> tuple[KernelNest, Shares]:
    even = part.extent <= MOST_BLOCKS and epilogue.extent % part.extent == 0 and found.dtype == "float32"
    refuse(even, "2 to 8 blocks add up a part of the terms each, of floats, and a share of the columns")
    sums, ranges = replace(found, shape=(found.size // part.extent,)), nest.ranges()
    total = Buffer("total", sums.dtype, (epilogue.extent // part.extent * REGISTERS,), "local")

    def own(e: BufferLoad) -> BufferLoad:
        return BufferLoad(sums, ranges.simplify(binary("-", e.index, binary("*", part.var, sums.size))))

    body = seq(_with_places(part.body, found, own), _of_share(epilogue, part, found, total, ranges))
    loops = {**nest.loops, "blockIdx.y": For(part.var, part.extent, ForKind.BLOCK, seq(), "blockIdx.y")}
    kept = [sums if b is found else b for b in held]
    return KernelNest(loops, allocated([*kept, total], body)), Shares(part.extent, sums, total)


def _with_places(s: Stmt, of: Buffer, place: Callable[[BufferLoad], BufferLoad]) -> Stmt:
    """A statement with other places for those in a buffer."""
    if isinstance(s, Store) and s.buffer is of:
        to = place(BufferLoad(of, s.index))
        s = Store(to.buffer, to.index, s.value)
    if isinstance(s, Store | Instruction):
        return map_exprs(
            s, lambda e: transform(e, lambda x: place(x) if isinstance(x, BufferLoad) and x.buffer is of else None)
        )
    return with_bodies(s, tuple([_with_places(b, of, place) for b in bodies(s)]))


def _of_share(epilogue: For, part: For, sums: Buffer, total: Buffer, ranges: Simplifier) -> For:
    """What stores the results of a share: the program's loops over its tiles of 8 columns, in which a sum over all
    parts is one of `total`."""
    around, inner = enclosing(epilogue)
    *adding, stored = flattened(inner, [])
    (kept, at), term = _added(adding, epilogue, part, sums)
    share, each = Var("share"), total.size // REGISTERS
    tile = {epilogue.var: binary("+", binary("*", part.var, each), share)}

    def added(e: BufferLoad) -> BufferLoad:
        env = {epilogue.var: share, **({at: e.index} if isinstance(at, Var) else {})}
        return BufferLoad(total, ranges.simplify(substitute(term, env)))

    asked = [s.cond for s in around[1:] if isinstance(s, If) and epilogue.var in free_vars(s.cond)]
    refuse(not asked, "no condition on tiles may be around the sum of parts and what stores it", conditions=asked)
    body = map_exprs(_with_places(stored, kept, added), lambda e: substitute(e, tile))
    for s in reversed(around[1:]):
        body = with_bodies(s, (body,))
    return replace(epilogue, var=share, extent=each, body=body)


def _added(adding: Sequence[Stmt], epilogue: For, part: For, sums: Buffer) -> Sum:
    """The sum over all parts that statements in the loop over tiles are.  Raises EmitError for others."""
    found = [x for s in adding for x in _sums_over(s, part.extent, sums)]
    refuse(len(found) == len(adding) == 1, "parts of a sum must be added up where the sum is used")
    tiles = sums.size == REGISTERS * epilogue.extent * part.extent
    tiles = tiles and _step(found[0][1], epilogue.var) == REGISTERS
    refuse(tiles, "results must be stored in a loop over all tiles of 8 columns")
    return found[0]


def _sums_over(s: Stmt, parts: int, sums: Buffer) -> Iterator[Sum]:
    """Where a statement sums up all parts of a place in `sums`, from zero."""
    for x in stmts_of(s):
        match list(flattened(x, [])):
            case [Store(buffer=to, index=at, value=Const(value=0)), For(extent=n, body=Store() as more) as loop]:
                match more.value:
                    case Binary(op="+", a=BufferLoad() as old, b=BufferLoad() as new) if n == parts:
                        same_place = same(more.index, at) and same(old.index, at) and more.buffer is old.buffer is to
                        if same_place and new.buffer is sums and _step(new.index, loop.var) == sums.size // parts:
                            yield (to, at), substitute(new.index, {loop.var: as_expr(0)})


def _step(e: Expr, var: Var) -> object:
    """By how much an expression grows with a variable; None where that is no number."""
    begin, following = [substitute(e, {var: as_expr(n)}) for n in (0, 1)]
    found = Simplifier().simplify(binary("-", following, begin))
    return found.value if isinstance(found, Const) else None
