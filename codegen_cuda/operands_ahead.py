"""Operands of the next step are read into registers while the multiply-adds of this one run.

A kernel that fetches its shared tiles ahead (`te_lite/double_buffer.py`) still waits for shared memory: the operands of
a step of the reduction come some thirty cycles after they are asked for, and behind a barrier none was asked for yet.
So each thread keeps two sets of operands, and reads a step ahead; in the last step of a turn, from the tile
of the next one:

    for t: barrier                                          barrier; operands(0, 0)
           fetch tile t + 1                         for t:  fetch tile t + 1
           for q in 0..n: acc += a[t, q] * b[t, q]          for q in 0..n - 1: operands(t, q + 1); acc += operands q
                                                            if there is a turn t + 1: barrier; operands(t + 1, 0)
                                                            acc += operands n - 1

The operand of the longer side of a tile is read first: each of its values is needed once in a step, those of the other
side throughout, and the compiler then places reads 35 and more instructions before their use.  In the other order it
placed a fifth of them six before (8 x 16 sums, nvrtc 13.0), behind the last use of the same registers.

The barrier of turn t + 1 moves up by one step: all reads of tile t stand before it, as they did; all fetches of tile
t + 2 stand after it.  Every sum has its terms in the order that it had.  Kernels of 2048^3 written by hand, with 8 x 16
sums a thread, take 360 microseconds so on an H200, and 405 without; cuBLAS takes 341.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from te_lite.c_text import BYTES
from te_lite.expr import Binary, BufferLoad, Cast, Expr, Var, as_expr, binary, compare, same
from te_lite.perfect_nest import IN_TURN, nested, perfect_nest
from te_lite.simplify import Simplifier
from te_lite.stmt import (
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    allocated,
    bodies,
    map_exprs,
    seq,
    with_bodies,
)
from te_lite.visit import free_vars, substitute, transform, walk

from .outer_product import far_first
from .staged_copies import staged

SETS = 2
REGISTERS, MOST_REGISTERS = 65536, 255
"""Of a multiprocessor; that a thread can name."""
OTHER_REGISTERS = 47
"""Those of addresses, and of what is fetched: sums and operands must leave so many."""
LEAST_POINTS = 8
"""Multiply-adds of a step: fewer are no time in which anything could come."""
MOST_POINTS, MOST_STEPS = 2048, 32
"""Multiply-adds, and steps, that are written out: 32 KB of instructions."""
WORD = 4


def with_operands_ahead(body: Stmt, simplifier: Simplifier, threads: int) -> Stmt:
    """A kernel of so many `threads` a block whose pipelined accumulations read their operands a step ahead.

    `simplifier` knows the ranges of all loops; it learns those of new ones.
    """
    match body:
        case For(
            kind=ForKind.SERIAL, body=Seq(stmts=(Barrier(publishes=True) as publish, If() as fetch, For() as nest))
        ):
            found = _pipeline(body, publish, fetch, nest, simplifier)
            if found is not None and found.words <= most_words(threads):
                return found.stmt()
    return with_bodies(body, tuple([with_operands_ahead(b, simplifier, threads) for b in bodies(body)]))


def most_words(threads: int) -> int:
    """The registers that a thread of a block of so many has for sums and operands."""
    return min(MOST_REGISTERS, REGISTERS // threads) - OTHER_REGISTERS


def _pipeline(turns: For, barrier: Barrier, fetch: If, nest: For, simplifier: Simplifier) -> _Pipeline | None:
    """The parts of a loop over turns; None where operands cannot be read ahead."""
    loops, s = perfect_nest(nest)
    if not isinstance(s, Store) or s.buffer.storage != "local" or any(x.kind not in IN_TURN for x in loops):
        return None
    sums = free_vars(s.index)
    steps, tile = [[x for x in loops if (x.var in sums) == inside] for inside in (False, True)]
    loads = _operands(s.value)
    if not loads or _points(steps) % SETS or _points(tile) < LEAST_POINTS or _reads_pipelined(s.value, loads):
        return None
    found = tuple(sorted([_operand(load, tile) for load in loads], key=lambda x: -x.registers.size))
    return _Pipeline(turns, barrier, fetch, tuple(steps), tuple(tile), s, found, simplifier)


def _points(loops: Iterable[For]) -> int:
    return prod([x.extent for x in loops])


def _operands(e: Expr) -> list[BufferLoad]:
    """The distinct reads of pipelined tiles that a value always makes."""
    found: list[BufferLoad] = []
    for load in _certain(e):
        if load.buffer.pipelined and not any(same(load, x) for x in found):
            found.append(load)
    return found


def _certain(e: Expr) -> Iterator[BufferLoad]:
    match e:
        case BufferLoad():
            yield e
        case Binary(a=a, b=b):
            yield from _certain(a)
            yield from _certain(b)
        case Cast(a=a):
            yield from _certain(a)


def _reads_pipelined(e: Expr, but: list[BufferLoad]) -> bool:
    """Whether there are other reads of pipelined tiles, under conditions or in indices."""
    reads = [x for x in walk(e) if isinstance(x, BufferLoad) and x.buffer.pipelined]
    return any(not any(same(x, known) for known in but) for x in reads)


@dataclass(frozen=True)
class _Operand:
    """The two sets of registers for what `load` reads in the iterations of `loops`, those of the tile that move it."""

    load: BufferLoad
    loops: tuple[For, ...]
    registers: Buffer

    def place(self, step: Expr) -> Expr:
        """Where an element for step number `step` is."""
        index = binary("%", step, SETS)
        for loop in self.loops:
            index = binary("+", binary("*", index, loop.extent), loop.var)
        return index


def _operand(load: BufferLoad, tile: list[For]) -> _Operand:
    loops = tuple(far_first([x for x in tile if x.var in free_vars(load.index)], load))
    shape = (SETS, *[x.extent for x in loops])
    return _Operand(load, loops, Buffer(f"{load.buffer.name}_operands", load.dtype, shape, "local"))


@dataclass(frozen=True)
class _Pipeline:
    """`turns` of `barrier`, `fetch` (a later tile), and in all `steps` the accumulation `sum` for all of `tile`."""

    turns: For
    barrier: Barrier
    fetch: If
    steps: tuple[For, ...]
    tile: tuple[For, ...]
    sum: Store
    operands: tuple[_Operand, ...]
    simplifier: Simplifier

    @property
    def words(self) -> int:
        """32-bit words of sums and operands of a thread."""
        return sum([b.size * BYTES[b.dtype] for b in (self.sum.buffer, *[f.registers for f in self.operands])]) // WORD

    def stmt(self) -> Stmt:
        turn, zero = self.turns.var, as_expr(0)
        ahead, count = binary("+", turn, 1), _points(self.steps)
        copies, more = staged(self.fetch.then), compare("<", ahead, self.turns.extent)
        following: list[Stmt] = [If(more, seq(self.barrier, self._read(ahead, zero)))]
        if copies.stores:
            following.insert(0, If(self.fetch.cond, seq(*copies.stores)))
        fetch, last = replace(self.fetch, then=copies.reads), self._add(as_expr(count - 1))
        loop = replace(self.turns, body=seq(fetch, *self._all_but_one(count), *following, last))
        first = [self.barrier, self._read(zero, zero)]
        registers = [*[f.registers for f in self.operands], *copies.registers]
        return allocated(registers, seq(*first, loop))

    def _all_but_one(self, count: int) -> Iterator[Stmt]:
        """The steps but for the last one: as many written out as are not too long, and a loop over such groups."""
        most = min(MOST_POINTS // _points(self.tile), MOST_STEPS)
        size = max([n for n in range(SETS, most + 1, SETS) if count % n == 0], default=SETS)
        step, rest = self._var("step", size), self._var("step", size - 1)
        if count > size:
            group = self._var("group", count // size - 1)
            whole = For(step, size, ForKind.UNROLLED, self._step(binary("+", binary("*", group, size), step)))
            yield For(group, count // size - 1, ForKind.SERIAL, whole)
        yield For(rest, size - 1, ForKind.UNROLLED, self._step(binary("+", rest, count - size)))

    def _var(self, name: str, extent: int) -> Var:
        var = Var(name)
        self.simplifier.bind(var, 0, extent - 1)
        return var

    def _step(self, number: Expr) -> Stmt:
        return seq(self._read(self.turns.var, binary("+", number, 1)), self._add(number))

    def _read(self, turn: Expr, step: Expr) -> Stmt:
        """Read the operands of step number `step` of a turn."""
        env = {self.turns.var: turn, **self._digits(step)}
        return seq(*[self._filled(f, step, env) for f in self.operands])

    def _filled(self, operand: _Operand, step: Expr, env: Mapping[Var, Expr]) -> Stmt:
        load = BufferLoad(operand.load.buffer, self._simple(substitute(operand.load.index, env)))
        store = Store(operand.registers, self._simple(operand.place(step)), load)
        return nested(operand.loops, store, ForKind.UNROLLED)

    def _add(self, step: Expr) -> Stmt:
        """The accumulation of step number `step`, its operands from registers."""
        env = self._digits(step)

        def registers(e: Expr) -> Expr | None:
            if isinstance(e, Var):
                return env.get(e)
            found = [f for f in self.operands if isinstance(e, BufferLoad) and same(e, f.load)]
            return BufferLoad(found[0].registers, self._simple(found[0].place(step))) if found else None

        return nested(self.tile, map_exprs(self.sum, lambda e: transform(e, registers)), ForKind.UNROLLED)

    def _digits(self, step: Expr) -> dict[Var, Expr]:
        """The variables of the steps' loops in step number `step`."""
        env: dict[Var, Expr] = {}
        stride = 1
        for x in reversed(self.steps):
            env[x.var] = self._simple(binary("%", binary("//", step, stride), x.extent))
            stride *= x.extent
        return env

    def _simple(self, e: Expr) -> Expr:
        return self.simplifier.simplify(e)
