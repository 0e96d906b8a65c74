"""The turns of a pipeline with the work of each step cut in two: reading into registers, a step ahead, and computing.

    for t: barrier                                barrier; read(0, 0)
           fetch tile t + 1              for t:   fetch tile t + 1
           for q in 0..n: work(t, q)              for q in 0..n - 1: read(t, q + 1); add(t, q)
                                                  if there is a turn t + 1: barrier; read(t + 1, 0)
                                                  add(t, n - 1)

The barrier of turn t + 1 moves up by one step: all reads of tile t stand before it, as they did; all fetches of tile
t + 2 stand after it.  What is added stays in order.  Two kinds of work are known: multiply-adds of operands
(`operands_ahead.py`) and instructions of tensor cores on fragments (`fragments_ahead.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import Protocol

from te_lite.c_text import BYTES
from te_lite.expr import Expr, Var, as_expr, binary, compare
from te_lite.simplify import Simplifier
from te_lite.stmt import Barrier, Buffer, For, ForKind, If, Stmt, allocated, seq

from .staged_copies import staged

SETS = 2
MOST_POINTS, MOST_STEPS = 2048, 32
"""Multiply-adds, and steps, that are written out: 32 KB of instructions.

Where the stage has an `auto_unroll_max_step`, that many multiply-adds, and two steps at least.  The compiler schedules
each length anew and puts sums and operands in other banks (`outer_product.py`); which one is fastest differs from
program to program, so it is a decision of the search.  The same schedules with two steps, 512 multiply-adds and 2,048
written out, on an H200: 227, 223 and 234 us (50257 x 128 x 768), 38.9, 40.9 and 40.8 (512 x 2048 x 768), 360, 367 and
352 (2048^3).
"""
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
        """Fill the registers of a step; `env` says of the variables of turns and steps what they are in it."""
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


@dataclass(frozen=True)
class Turns:
    """The loop `turns` of `barrier`, `fetch` (a later tile), and `work` in an even number of `steps`."""

    turns: For
    barrier: Barrier
    fetch: If
    steps: tuple[For, ...]
    work: Work
    simplifier: Simplifier

    @property
    def words(self) -> int:
        """32-bit words of a thread: of sums, of both sets, and of what a step makes of one."""
        held = sum([b.size * BYTES[b.dtype] for b in (self.work.sums, *self.work.registers)]) // WORD
        return held + self.work.made

    def stmt(self) -> Stmt:
        """The same, each step reading for the one behind it."""
        turn, zero = self.turns.var, as_expr(0)
        ahead, count = binary("+", turn, 1), points(self.steps)
        copies, more = staged(self.fetch.then), compare("<", ahead, self.turns.extent)
        following: list[Stmt] = [If(more, seq(self.barrier, self._read(ahead, zero)))]
        if copies.stores:
            following.insert(0, If(self.fetch.cond, seq(*copies.stores)))
        fetch, last = replace(self.fetch, then=copies.reads), self._add(as_expr(count - 1))
        loop = replace(self.turns, body=seq(fetch, *self._all_but_one(count), *following, last))
        first = [self.barrier, self._read(zero, zero)]
        return allocated([*self.work.registers, *copies.registers], seq(*first, loop))

    def _all_but_one(self, count: int) -> Iterator[Stmt]:
        """The steps but for the last one: as many written out as are not too long, and a loop over such groups."""
        limit = min(self.steps[-1].limit or MOST_POINTS, MOST_POINTS)
        most = min(limit // self.work.points, MOST_STEPS)
        size = self._whole_windows(count, most) or max(
            [n for n in range(SETS, most + 1, SETS) if count % n == 0], default=SETS
        )
        step, rest = self._var("step", size), self._var("step", size - 1)
        if count > size:
            group = self._var("group", count // size - 1)
            whole = For(step, size, ForKind.UNROLLED, self._step(binary("+", binary("*", group, size), step)))
            yield For(group, count // size - 1, ForKind.SERIAL, whole)
        yield For(rest, size - 1, ForKind.UNROLLED, self._step(binary("+", rest, count - size)))

    def _whole_windows(self, count: int, most: int) -> int:
        """The most steps, up to `most`, that are whole turns of the innermost of several loops; 0 for none.

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
        return seq(self._read(self.turns.var, binary("+", number, 1)), self._add(number))

    def _read(self, turn: Expr, step: Expr) -> Stmt:
        return self.work.read({self.turns.var: turn, **self._digits(step)}, step)

    def _add(self, step: Expr) -> Stmt:
        return self.work.add(self._digits(step), step)

    def _digits(self, step: Expr) -> dict[Var, Expr]:
        return digits(self.steps, step, self.simplifier)
