"""Operands of the next step are read into registers while the multiply-adds of this one run.

A kernel that fetches its shared tiles ahead (`ansor_ext/pipeline/lowering.py`) still waits for shared memory: the
operands of a step of the reduction come some thirty cycles after they are asked for, and behind a barrier none was
asked for yet.  So each thread keeps two sets of operands, and reads a step ahead (`iterations_ahead.py`); in the
last step of an iteration, from the tile of the next one:

    for q in 0..n: acc += a[t, q] * b[t, q]          for q in 0..n - 1: operands(t, q + 1); acc += operands q
                                                     if there is an iteration t + 1: barrier; operands(t + 1, 0)
                                                     acc += operands n - 1

The operand of the longer side of a tile is read first: each of its values is needed once in a step, those of the other
side throughout, and the compiler then places reads 35 and more instructions before their use.  In the other order it
placed a fifth of them six before (8 x 16 sums, nvrtc 13.0), behind the last use of the same registers.

Every sum has its terms in the order that it had.  What it wins: docs/results/gpu.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen_cuda.passes.outer_product import far_first
from te_lite.bounds.loop_scope import LANES
from te_lite.expr.expr import Binary, BufferLoad, Cast, Expr, Var, binary, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, transform, walk
from te_lite.extensions import installed_part
from te_lite.loops.perfect_nest import SEQUENTIAL, iteration, nested, perfect_nest
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    Seq,
    Stmt,
    Store,
    bodies,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from .iterations_ahead import SETS, Env, Iterations, Work, points

REGISTERS, MOST_REGISTERS = 65536, 255
"""Of a multiprocessor; that a thread can name."""
OTHER_REGISTERS = 47
"""Those of addresses, and of what is fetched: sums and operands must leave so many."""
LEAST_POINTS = 8
"""Multiply-adds of a step: fewer are no time in which anything could come."""


def with_register_double_buffers(body: Stmt, simplifier: Simplifier, threads: int, again: bool = False) -> Stmt:
    """A kernel of so many `threads` a block whose pipelined accumulations read their operands a step ahead.

    `simplifier` knows the ranges of all loops; it learns those of new ones.  `again`: a loop runs the body again.
    """
    match body:
        case For(
            kind=ForKind.SERIAL, body=Seq(stmts=(Barrier(publishes=True) as publish, If() as fetch, For() as nest))
        ):
            found = _multiply_adds(nest, simplifier) or _of_fragments(nest, simplifier)
            if found is not None:
                steps, work = found
                adds = isinstance(work, _MultiplyAdds)
                iterations = Iterations(
                    body, publish, fetch, steps, work, simplifier, adds and threads % LANES == 0, adds and not again
                )
                if points(steps) % SETS == 0 and iterations.words <= most_words(threads):
                    return iterations.stmt()
    again = again or isinstance(body, For)
    return with_bodies(body, tuple([with_register_double_buffers(b, simplifier, threads, again) for b in bodies(body)]))


def _of_fragments(nest: For, simplifier: Simplifier) -> tuple[tuple[For, ...], Work] | None:
    """The loops over steps of tensor cores, and the work of one, where the extension that has these finds any."""
    asked = installed_part("fragments_ahead") if any(isinstance(s, Instruction) for s in stmts_of(nest)) else None
    found: tuple[tuple[For, ...], Work] | None = None if asked is None else asked(nest, simplifier)
    return found


def most_words(threads: int) -> int:
    """The registers that a thread of a block of so many has for sums and operands."""
    return min(MOST_REGISTERS, REGISTERS // threads) - OTHER_REGISTERS


def _multiply_adds(nest: For, simplifier: Simplifier) -> tuple[tuple[For, ...], Work] | None:
    """The loops over steps, and the work of one; None where operands cannot be read ahead."""
    loops, s = perfect_nest(nest)
    if not isinstance(s, Store) or s.buffer.storage != "local" or any(x.kind not in SEQUENTIAL for x in loops):
        return None
    sums = free_vars(s.index)
    steps, tile = [[x for x in loops if (x.var in sums) == inside] for inside in (False, True)]
    loads = _operands(s.value)
    if not loads or points(tile) < LEAST_POINTS or _reads_pipelined(s.value, loads):
        return None
    found = tuple(sorted([_operand(load, tile) for load in loads], key=lambda x: -x.registers.size))
    return tuple(steps), _MultiplyAdds(tuple(tile), s, found, simplifier)


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
        return iteration(self.loops, binary("%", step, SETS))


def _operand(load: BufferLoad, tile: list[For]) -> _Operand:
    loops = tuple(far_first([x for x in tile if x.var in free_vars(load.index)], load))
    shape = (SETS, *[x.extent for x in loops])
    return _Operand(load, loops, Buffer(f"{load.buffer.name}_operands", load.dtype, shape, "local"))


@dataclass(frozen=True)
class _MultiplyAdds:
    """The accumulation `sum` for all of `tile`."""

    tile: tuple[For, ...]
    sum: Store
    operands: tuple[_Operand, ...]
    simplifier: Simplifier

    @property
    def registers(self) -> Sequence[Buffer]:
        return [f.registers for f in self.operands]

    @property
    def sums(self) -> Buffer:
        return self.sum.buffer

    @property
    def made(self) -> int:
        return 0

    @property
    def points(self) -> int:
        return points(self.tile)

    def read(self, env: Env, step: Expr) -> Stmt:
        return seq(*[self._filled(f, env, step) for f in self.operands])

    def _filled(self, operand: _Operand, env: Env, step: Expr) -> Stmt:
        load = BufferLoad(operand.load.buffer, self._simple(substitute(operand.load.index, env)))
        store = Store(operand.registers, self._simple(operand.place(step)), load)
        return nested(operand.loops, store, ForKind.UNROLLED)

    def add(self, env: Env, step: Expr) -> Stmt:
        def registers(e: Expr) -> Expr | None:
            if isinstance(e, Var):
                return env.get(e)
            found = [f for f in self.operands if isinstance(e, BufferLoad) and same(e, f.load)]
            return BufferLoad(found[0].registers, self._simple(found[0].place(step))) if found else None

        return nested(self.tile, map_exprs(self.sum, lambda e: transform(e, registers)), ForKind.UNROLLED)

    def _simple(self, e: Expr) -> Expr:
        return self.simplifier.simplify(e)
