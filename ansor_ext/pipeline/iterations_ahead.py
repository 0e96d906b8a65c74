"""The iterations of a pipeline with the work of each step cut in two: reading into registers, a step ahead, and
computing.

    for t: barrier                                barrier; read(0, 0)
           fetch tile t + 1              for t:   fetch tile t + 1
           for q in 0..n: work(t, q)              for q in 0..n - 1: read(t, q + 1); add(t, q)
                                                  if there is an iteration t + 1: barrier; read(t + 1, 0)
                                                  add(t, n - 1)

The barrier of iteration t + 1 moves up by one step: all reads of tile t stand before it, as they did; all fetches of
tile t + 2 stand after it.  What is added stays in order.  Two kinds of work are known: multiply-adds of operands
(`register_double_buffer.py`) and instructions of tensor cores on fragments (`fragment_double_buffer.py`).

Many iterations have no conditions: the last one fetches its own tile once more, into the tile that nobody reads any
more, and reads operands from there that nobody adds.  Addresses are then computed between multiply-adds, where a branch
keeps them together, one waiting for the other.  But without a branch the compiler (NVRTC 13.0) moves what goes through
registers behind most steps, next to where it is stored, and the block waits for memory in each iteration; behind a
barrier of the warp reads stay where they are.  Only without branches and with the barrier it is faster
(docs/results/gpu.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod
from typing import Protocol

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, Expr, Select, Var, as_expr, binary, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import children, free_vars, substitute
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Stmt,
    Store,
    allocated,
    bodies,
    exprs_of,
    seq,
    stmts_of,
    with_bodies,
)

from .staged_copies import staged, written_out

SETS = 2
MOST_POINTS, MOST_STEPS = 2048, 32
"""Multiply-adds, and steps, that are written out: 32 KB of instructions.

Where the stage has an `auto_unroll_max_step`, that many multiply-adds, and two steps at least.  The compiler schedules
each length anew and puts sums and operands in other banks (`outer_product.py`); which one is fastest differs from
program to program, so it is a decision of the search (docs/results/gpu.md).
"""
LEAST_ITERATIONS = 6
"""Iterations that hide one more fetch."""
WORD = 4

Env = Mapping[Var, Expr]


class Work(Protocol):
    """What a step does with two sets of `registers`, of which step number q has number q % 2."""

    @property
    def registers(self) -> Sequence[Buffer]: ...

    @property
    def sums(self) -> Buffer: ...

    @property
    def made(self) -> int:
        """32-bit words that a step makes of its registers before it computes."""
        ...

    @property
    def points(self) -> int:
        """Instructions that compute, in a step."""
        ...

    def read(self, env: Env, step: Expr) -> Stmt:
        """Fill the registers of a step; `env` says of the variables of iterations and steps what they are in it."""
        ...

    def add(self, env: Env, step: Expr) -> Stmt:
        """Compute on them."""
        ...


def points(loops: Iterable[For]) -> int:
    """The iterations of nested loops."""
    return prod([x.extent for x in loops])


def digits(loops: Sequence[For], number: Expr, simplifier: Simplifier) -> dict[Var, Expr]:
    """The variables of nested loops in iteration number `number`."""
    env: dict[Var, Expr] = {}
    stride = 1
    for x in reversed(loops):
        env[x.var] = simplifier.simplify(binary("%", binary("//", number, stride), x.extent))
        stride *= x.extent
    return env


def reads_by_tile(e: Expr, var: Var) -> bool:
    """Whether `var` decides in an expression which tile is read, by its number, and nothing else."""
    modulo = isinstance(e, Binary) and e.op == "%"
    return modulo or (e is not var and all(reads_by_tile(child, var) for child in children(e)))


def _fetched(s: Stmt, there: Env) -> Stmt:
    """Copies of an iteration into the tile that is next, of what the iteration `there` copies."""
    if isinstance(s, Store):
        return replace(s, value=substitute(s.value, there))
    inner = with_bodies(s, tuple([_fetched(b, there) for b in bodies(s)]))
    return replace(inner, cond=substitute(inner.cond, there)) if isinstance(inner, If) else inner


@dataclass(frozen=True)
class Iterations:
    """The loop `iterations` of `barrier`, `fetch` (a later tile), and `work` in an even number of `steps`.

    `whole_warps`: the block has no other ones, and reads may be kept in place; `once`: no loop runs the iterations
    again, and the last one may be as the others.
    """

    iterations: For
    barrier: Barrier
    fetch: If
    steps: tuple[For, ...]
    work: Work
    simplifier: Simplifier
    whole_warps: bool
    once: bool

    @cached_property
    def goes_on(self) -> bool:
        """Whether the last iteration does what the others do: it reads what is in the next tile, wherever that ends."""
        var, reads = self.iterations.var, self.work.read({}, as_expr(0))
        last = free_vars(self.fetch.cond) == {var}  # nothing but the last iteration fetches nothing
        inside = all(reads_by_tile(e, var) for s in stmts_of(reads) for e in exprs_of(s))
        return self.once and last and inside and self.barrier.left == 0 and self.iterations.extent >= LEAST_ITERATIONS

    @property
    def words(self) -> int:
        """32-bit words of a thread: of sums, of both sets, and of what a step makes of one."""
        held = sum([b.size * BYTES[b.dtype] for b in (self.work.sums, *self.work.registers)]) // WORD
        return held + self.work.made

    def stmt(self) -> Stmt:
        """The same, each step reading for the one behind it."""
        iteration, zero, count, end = self.iterations.var, as_expr(0), points(self.steps), self.iterations.extent - 2
        ahead, there = binary("+", iteration, 1), Select(compare("<", iteration, end), iteration, as_expr(end))
        copies = staged(_fetched(self.fetch.then, {iteration: there}) if self.goes_on else self.fetch.then)
        together = [Barrier(warp=True)] if self.whole_warps and copies.registers else []
        more = compare("<", ahead, self.iterations.extent)
        steps = [*self._groups(count), *self._last_steps(count, copies.stores)]
        following = self._if(more, seq(self.barrier, self._read(ahead, zero)))
        fetch, last = self._if(self.fetch.cond, copies.reads), self._add(as_expr(count - 1))
        first = [self.barrier, self._read(zero, zero)]
        loop = replace(self.iterations, body=seq(fetch, *together, *steps, following, last))
        return allocated([*self.work.registers, *copies.registers], seq(*first, loop))

    def _if(self, cond: Expr, s: Stmt) -> Stmt:
        return s if self.goes_on else If(cond, s)

    def _size(self, count: int) -> int:
        """How many of the steps are written out: as many as are not too long."""
        limit = min(self.steps[-1].limit or MOST_POINTS, MOST_POINTS)
        most = min(limit // self.work.points, MOST_STEPS)
        return self._whole_windows(count, most) or max(
            [n for n in range(SETS, most + 1, SETS) if count % n == 0], default=SETS
        )

    def _groups(self, count: int) -> Iterator[Stmt]:
        """A loop over groups of steps that are written out, but for the last group."""
        size = self._size(count)
        if count > size:
            step, group = self._var("step", size), self._var("group", count // size - 1)
            whole = For(step, size, ForKind.UNROLLED, self._step(binary("+", binary("*", group, size), step)))
            yield For(group, count // size - 1, ForKind.SERIAL, whole)

    def _last_steps(self, count: int, stores: Sequence[Stmt]) -> Iterator[Stmt]:
        """The steps of the last group but the last one, and the stores of what was fetched.

        Stores at once keep all warps waiting for shared memory; where they are under no condition, they stand between
        the steps of the second half: what was fetched is there by then.
        """
        size = self._size(count) - 1
        parts = [x for s in stores for x in written_out(s)] if self.goes_on else []
        if not parts:
            yield self._steps(count, size, 0, size)
            yield from [self._if(self.fetch.cond, seq(*stores))] if stores else []
            return
        places = [size // 2 + (n + 1) * (size - size // 2) // len(parts) for n in range(len(parts))]
        begin = 0
        for end, part in zip(places, parts, strict=True):
            yield from [self._steps(count, size, begin, end)] if end > begin else []
            yield part
            begin = end

    def _steps(self, count: int, size: int, begin: int, end: int) -> Stmt:
        """Those from `begin` to before `end` of the last `size` steps but one."""
        step = self._var("step", end - begin)
        return For(step, end - begin, ForKind.UNROLLED, self._step(binary("+", step, count - size - 1 + begin)))

    def _whole_windows(self, count: int, most: int) -> int:
        """The most steps, up to `most`, that are whole iterations of the innermost of several loops; 0 for none.

        Where windows move along a line, its terms read the same elements, and a compiler sees that where all of them
        are written out.
        """
        whole = lcm(SETS, self.steps[-1].extent) if len(self.steps) > 1 else 1
        return max([n for n in range(whole, most + 1, whole) if count % n == 0], default=0) if whole > SETS else 0

    def _var(self, name: str, extent: int) -> Var:
        var = Var(name)
        self.simplifier.bind(var, 0, extent - 1)
        return var

    def _step(self, number: Expr) -> Stmt:
        return seq(self._read(self.iterations.var, binary("+", number, 1)), self._add(number))

    def _read(self, iteration: Expr, step: Expr) -> Stmt:
        return self.work.read({self.iterations.var: iteration, **self._digits(step)}, step)

    def _add(self, step: Expr) -> Stmt:
        return self.work.add(self._digits(step), step)

    def _digits(self, step: Expr) -> dict[Var, Expr]:
        return digits(self.steps, step, self.simplifier)
