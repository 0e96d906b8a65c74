"""Fragments of the next step are loaded while the tensor cores work on those of this one.

A warp that loads the fragments of a step and multiplies them waits for shared memory in each step, and for the slowest
warp at each barrier, with idle tensor cores.  So it keeps two sets of fragments and loads a step ahead
(`iterations_ahead.py`):

    for q in 0..n: load a, b; d += a * b             for q in 0..n - 1: load a, b of q + 1; d += a * b of q
                                                     with an iteration t + 1: barrier; load a, b of its first step
                                                     d += a * b of n - 1

Floats in two parts are cut in each step, and the parts of all fragments are in registers while it multiplies.  Where
sums, both sets and parts are more than a thread has, the compiler keeps some of them in memory, and loading ahead
loses.  What it wins and loses: docs/results/tensor_cores.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from te_lite.expr.expr import BufferLoad, Expr, Var, binary
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, transform, walk
from te_lite.loops.perfect_nest import SEQUENTIAL, perfect_nest
from te_lite.loops.stmt import (
    Buffer,
    For,
    Seq,
    Stmt,
    Store,
    bodies,
    exprs_of,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
    written_by,
)

from ..pipeline.iterations_ahead import SETS, Env, points
from .instructions import WarpLoad, WarpMultiply


def fragment_multiplies(nest: For, simplifier: Simplifier) -> tuple[tuple[For, ...], FragmentMultiplies] | None:
    """The loops over steps, and the work of one; None where fragments cannot be loaded ahead."""
    steps, body = perfect_nest(nest)
    held: list[Buffer] = []
    *loads, multiply = flattened(body, held)
    leaves = [s for s in stmts_of(multiply) if not isinstance(s, For | Seq)]
    instructions = [s for s in leaves if isinstance(s, WarpMultiply)]
    sums = {s.d.buffer for s in instructions}
    if not instructions or len(instructions) < len(leaves) or len(sums) != 1 or sums & set(held):
        return None
    plain = all(x.kind in SEQUENTIAL for x in steps) and all(fills(s, held) for s in loads)
    still = not any(x.var in free_vars(s.d) for s in instructions for x in steps)
    if not plain or not still or any(e.buffer not in held for s in instructions for e in (s.a, s.b)):
        return None
    sets = {b: Buffer(f"{b.name}_ahead", b.dtype, (SETS, *b.shape), b.scope) for b in held}
    parts = max([s.op.element.parts for s in instructions])
    return steps, FragmentMultiplies(tuple(loads), multiply, sets, next(iter(sums)), simplifier, parts=parts)


def fills(s: Stmt, held: Collection[Buffer]) -> bool:
    """Whether a statement only copies pipelined tiles to `held` buffers."""
    leaves = [x for x in stmts_of(s) if not isinstance(x, For | Seq)]
    if not all(isinstance(x, Store | WarpLoad) and set(written_by(x)) <= set(held) for x in leaves):
        return False
    read = {e.buffer for x in leaves for root in _values(x) for e in walk(root) if isinstance(e, BufferLoad)}
    return all(b.pipelined for b in read)


def _values(s: Stmt) -> tuple[Expr, ...]:
    """What a copy reads, and where it writes."""
    return (s.to.index, s.row) if isinstance(s, WarpLoad) else exprs_of(s)


@dataclass(frozen=True)
class FragmentMultiplies:
    """Work of a step: `loads` into held buffers, each of which has a place of `count` in `sets`, then `multiply`, by
    instructions that cut elements into `parts`."""

    loads: tuple[Stmt, ...]
    multiply: Stmt
    sets: Mapping[Buffer, Buffer]
    sums: Buffer
    simplifier: Simplifier
    count: int = SETS
    parts: int = 1

    @property
    def registers(self) -> Sequence[Buffer]:
        return list(self.sets.values())

    @property
    def made(self) -> int:
        return sum([b.size for b in self.sets]) * self.parts if self.parts > 1 else 0

    @property
    def points(self) -> int:
        loops, _ = perfect_nest(self.multiply)
        return points(loops)

    def read(self, env: Env, step: Expr) -> Stmt:
        return seq(*[self._of(s, env, step) for s in self.loads])

    def add(self, env: Env, step: Expr) -> Stmt:
        return self._of(self.multiply, env, step)

    def _of(self, s: Stmt, env: Env, step: Expr) -> Stmt:
        """The statement in step number `step`, on the set of registers of that step."""
        if bodies(s):
            return with_bodies(s, tuple([self._of(b, env, step) for b in bodies(s)]))

        def moved(e: Expr) -> Expr | None:
            if isinstance(e, Var):
                return env.get(e)
            if isinstance(e, BufferLoad):
                return BufferLoad(
                    self.sets.get(e.buffer, e.buffer), self._index(e.buffer, transform(e.index, moved), step)
                )
            return None

        out = map_exprs(s, lambda e: transform(e, moved))
        if isinstance(out, Store) and out.buffer in self.sets:
            return Store(self.sets[out.buffer], self._index(out.buffer, out.index, step), out.value)
        return out

    def _index(self, buffer: Buffer, index: Expr, step: Expr) -> Expr:
        """Where an element is in the set of a step; elsewhere, where it was."""
        if buffer in self.sets:
            index = binary("+", binary("*", binary("%", step, self.count), buffer.size), index)
        return self.simplifier.simplify(index)
