"""Scalar promotion: accumulators stay in registers while a reduction is computed.

    for k.0: for i: for k.1: for j: lanes v:   C[f(i, j) + v] = C[f(i, j) + v] + A[..] * B[..]

The loops that the address of C moves with (`i`, `j`) are *tile* loops, the others (`k.0`, `k.1`) run over the
reduction.  As the statement touches nothing but one element of C per iteration, reduction loops may go outside and
tile loops inside without changing the order in which any element is summed up:

    r0, r1, ... = C[..]
    for k.0: for k.1:   r0 = r0 + A[..] * B[..];   r1 = r1 + ...          (tile loops written out)
    C[..] = r0, ...

Which tile is held, and in what parts, is said by `te_lite/loops/register_tile.py`.  The registers are one local buffer
whose indices are all constant (see registers.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from te_lite.expr.expr import BufferLoad, Expr, Var, binary, const
from te_lite.expr.visit import free_vars, transform, walk
from te_lite.loops.perfect_nest import OF_ONE_THREAD, nested, perfect_nest
from te_lite.loops.register_tile import TileLoop, register_tile
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, Seq, Stmt, Store, bodies, seq, with_bodies

from .indices import Indices, Linear
from .processor import Options
from .vectorize import leaf_of, normal_stmt, unroll


@dataclass(frozen=True)
class ReductionNest:
    """A perfect nest: `loops` outside in, and the stores to `buffer` at the bottom (each under a lane loop or not).

    The address of what is stored moves with the variables `tile`.
    """

    loops: tuple[For, ...]
    leaf: Stmt
    buffer: Buffer
    tile: frozenset[Var]


@dataclass
class Promoter:
    """Iterations accumulations inside out, so that their sums stay in registers."""

    options: Options
    lanes: set[Var]
    indices: Indices

    def stmt(self, s: Stmt) -> Stmt:
        """`s` with the accumulators of every reduction nest in registers."""
        if isinstance(s, For):
            nest = self._nest(s)
            done = self._promote(nest) if nest is not None else None
            if done is not None:
                return done
        return with_bodies(s, tuple([self.stmt(b) for b in bodies(s)]))

    def _nest(self, s: For) -> ReductionNest | None:
        loops, body = perfect_nest(s, lambda loop: loop.var not in self.lanes)
        if any(loop.kind not in OF_ONE_THREAD for loop in loops):
            return None
        stores = [t for t in leaf_stores(body, self.lanes) if t is not None and _accumulates(t, t.buffer)]
        buffers = {t.buffer for t in stores}
        if len(buffers) != 1 or len(stores) < len(_parts(body)):
            return None
        moving = frozenset[Var]().union(*[free_vars(t.index) for t in stores])
        tile = frozenset(f.var for f in loops if f.var in moving)
        return ReductionNest(loops, body, buffers.pop(), tile)

    def _promote(self, nest: ReductionNest) -> Stmt | None:
        """The nest with the tile in registers that `register_tile` describes; None when there is none."""
        room = min(self.options.registers, self.options.max_unrolled)
        loops = [TileLoop(f.extent, f.var in nest.tile) for f in nest.loops]
        tile = register_tile(loops, len(_parts(nest.leaf)), room)
        if not tile.kept:
            return None
        first = tile.inside.index(True)
        done = self._held(nest, nest.loops[first:], tile.held[first:])
        return None if done is None else nested(nest.loops[:first], done)

    def _held(self, nest: ReductionNest, loops: Sequence[For], held: Sequence[int]) -> Stmt | None:
        """The sums of `loops` in registers, `held` iterations of each side by side; None when two may overlap."""
        parts: list[For] = []
        tile: list[For] = []
        env: dict[Var, Expr] = {}
        for loop, count in zip(loops, held, strict=True):
            if loop.var not in nest.tile:
                continue
            if count < loop.extent:
                outer, inner = self._cut(loop, count)
                env[loop.var] = binary("+", binary("*", outer.var, const(count)), inner.var)
                parts.append(outer)
                loop = inner
            tile.append(loop)
        leaf = normal_stmt(nest.leaf, self.indices, env) if env else nest.leaf
        moving = {f.var for f in tile}
        body = unroll(nested(tile, leaf), lambda f: f.var in moving, self.indices)
        slots = self._slots(body)
        if slots is None:
            return None
        reduction = [f for f in loops if f.var not in nest.tile]
        return nested(parts, _accumulated(nest.buffer, reduction, _parts(body), slots))

    def _cut(self, loop: For, part: int) -> tuple[For, For]:
        """A loop over the parts of `loop`, and one inside a part."""
        outer, inner = Var(f"{loop.var.name}.p", loop.var.dtype), Var(loop.var.name, loop.var.dtype)
        self.indices.bind(outer, loop.extent // part)
        self.indices.bind(inner, part)
        serial = replace(loop, var=outer, extent=loop.extent // part, kind=ForKind.SERIAL)
        return serial, replace(loop, var=inner, extent=part)

    def _slots(self, body: Stmt) -> list[Slot] | None:
        """Where each element or vector of the tile goes; None when two of them may overlap."""
        slots: list[Slot] = []
        for part in _parts(body):
            slot = self._slot(part, slots[-1].at + slots[-1].lanes if slots else 0)
            if slot is None:
                return None
            slots.append(slot)
        if not slots or any(not slots[0].address.same_terms(t.address) for t in slots):
            return None
        spans = sorted((t.address.const, t.lanes) for t in slots)
        apart = all(a + n <= b for (a, n), (b, _) in pairwise(spans))
        return slots if apart else None

    def _slot(self, part: Stmt, at: int) -> Slot | None:
        form = self.indices.linear(leaf_of(part).index)
        if not isinstance(part, For):
            return Slot(form, 1, at)
        return Slot(form.without(part.var), part.extent, at) if form.terms.get(part.var) == 1 else None


@dataclass(frozen=True)
class Slot:
    """`lanes` elements of the tile, from `address` on, live in the registers from `at` on."""

    address: Linear
    lanes: int
    at: int


def _parts(s: Stmt) -> tuple[Stmt, ...]:
    return s.stmts if isinstance(s, Seq) else (s,)


def leaf_stores(s: Stmt, lanes: set[Var]) -> Iterator[Store | None]:
    """The stores of a straight sequence of stores and lane loops; None for anything else."""
    for part in _parts(s):
        inner = part.body if isinstance(part, For) and part.var in lanes else part
        yield inner if isinstance(inner, Store) else None


def _accumulates(s: Store, buffer: Buffer) -> bool:
    """All accesses of `buffer` are at the index that is stored, and there is a load among them."""
    loads = [e for e in walk(s.value) if isinstance(e, BufferLoad) and e.buffer is buffer]
    inside = any(isinstance(e, BufferLoad) and e.buffer is buffer for e in walk(s.index))
    return s.buffer is buffer and not inside and bool(loads) and all(bool(e.index == s.index) for e in loads)


def _accumulated(buffer: Buffer, reduction: Sequence[For], parts: Sequence[Stmt], slots: Sequence[Slot]) -> Alloc:
    """The loops `reduction` over sums in registers, which are loaded before them and stored after them."""
    total = sum(slot.lanes for slot in slots)
    registers = Buffer(f"{buffer.name}_r", buffer.dtype, (total,), "local")
    tiles = [_in_registers(t, slot, registers) for t, slot in zip(parts, slots, strict=True)]
    loop = nested(reduction, seq(*[t[1] for t in tiles]))
    return Alloc(registers, seq(*[t[0] for t in tiles], loop, *[t[2] for t in tiles]))


def _in_registers(part: Stmt, slot: Slot, registers: Buffer) -> tuple[Stmt, Stmt, Stmt]:
    """The load before, the accumulation and the store after of one slot."""
    lane: Expr = part.var if isinstance(part, For) else const(0)
    store = leaf_of(part)
    place = binary("+", lane, const(slot.at))
    held = BufferLoad(registers, place)

    def redirect(e: Expr) -> Expr | None:
        return held if isinstance(e, BufferLoad) and e.buffer is store.buffer else None

    load = Store(registers, place, BufferLoad(store.buffer, store.index))
    work = Store(registers, place, transform(store.value, redirect))
    back = Store(store.buffer, store.index, held)
    if not isinstance(part, For):
        return load, work, back
    return replace(part, body=load), replace(part, body=work), replace(part, body=back)


def promote(s: Stmt, options: Options, lanes: set[Var], indices: Indices) -> Stmt:
    """Accumulate in registers wherever the tile of a reduction nest fits; `s` has legalised vector loops."""
    return Promoter(options, lanes, indices).stmt(s)
