"""A kind of step of one's own: `peel` writes the last turns of a loop behind it.

    for i in 0..13:                         for i in 0..12:
        for j in 0..8:                          for j in 0..8:
            if i*8 + j < 100: S(i*8 + j)            S(i*8 + j)
                                            for j in 0..8:
                                                if j < 4: S(j + 96)

What those turns need a guard for, the others do not.  The class below is all there is to it; the package is as it was.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import codegen_c
import te_lite as te
from te_lite.errors import LowerError, ScheduleError, require
from te_lite.expr.expr import as_expr, binary
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import For, bodies, map_exprs, seq, with_bodies
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.loop_steps import loop_at
from te_lite.schedule.replay import replay
from te_lite.schedule.state import Ask
from te_lite.schedule.step import Step, from_json, register, to_json

ASKED = f"{__name__}:peeled"


@register(primitive="s[C].peel")
@dataclass(frozen=True, slots=True)
class Peel(Step):
    """Write the last `turns` turns of a loop behind it."""

    tag: ClassVar[str] = "PEL"
    stage: int
    iter: int
    turns: int

    @classmethod
    def primitive(cls, part, axis, turns=1):
        part.schedule.apply(cls(part.id, part.position(axis), turns))

    def effect(self, state):
        """The stage asks for it, of the loop with this uid; extents are known when it is lowered."""
        stage, loop = state.stages[self.stage], loop_at(state, self.stage, self.iter, "peel")
        require(self.turns > 0, ScheduleError, f"peel {stage.op.name}", "at least one turn is needed", turns=self.turns)
        ask = Ask(f"peel: {loop.name}", ASKED, (loop.uid, self.turns))
        return state.with_stage(self.stage, replace(stage, asks=(*stage.asks, ask)))

    def python(self, words, before):
        words.call(self.stage, f"peel({words.loop(before, self.stage, self.iter)}, {self.turns})")


def peeled(facts):
    """The rewriting of nests that is asked for: loops are found by their variables."""
    wanted = {}
    for k, stage in enumerate(facts.stages):
        for uid, turns in [ask.numbers for ask in stage.asks if ask.lowering == ASKED]:
            loop = stage.vars[uid]
            ok = uid in stage.leaf and loop.annotation in ("none", "unroll") and turns < loop.length
            law = "it must be a plain loop of more turns than are peeled, in the end"
            require(ok, LowerError, f"peel {stage.op.name}.{loop.name}", law, turns=turns)
            wanted[facts.vars[k][uid]] = turns

    def turns_of(loop, start, count):
        own = facts.new_var(loop.var.name, count)
        here = {loop.var: binary("+", own, start) if count > 1 else as_expr(start)}
        body = map_exprs(loop.body, lambda e: simplified(substitute(e, here)))
        return replace(loop, var=own, extent=count, body=body) if count > 1 else body

    def rewritten(root, nest):
        nest = with_bodies(nest, tuple(rewritten(root, body) for body in bodies(nest)))
        if not isinstance(nest, For) or nest.var not in wanted:
            return nest
        whole = nest.extent - wanted[nest.var]
        return seq(turns_of(nest, 0, whole), turns_of(nest, whole, wanted[nest.var]))

    simplified = facts.simplifier.simplify
    return rewritten


def scheduled():
    """Twice a vector of 100 elements, in pieces of 8 of which the last is half a one."""
    A = te.placeholder((100,), name="A")
    B = te.compute((100,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(B.op.axis[0], factor=8)
    s[B].peel(outer)
    s[B].vectorize(inner)
    return s.state


if __name__ == "__main__":
    state = scheduled()
    print(state)
    print(te.lower(state))
    print(python_schedule(state))

    # its record, and its Python text, make the same program
    line = [to_json(step) for step in state.steps]
    print(line)
    assert replay(state.dag, [from_json(step) for step in line]) == state
    names = {"s": te.Schedule(state.dag), "te": te, **python_names(state.dag)}
    exec(python_schedule(state), names)
    assert names["s"].state == state

    # it computes the same in the interpreter and in C
    x, y, z = np.arange(100, dtype="float32"), np.zeros(100, "float32"), np.zeros(100, "float32")
    run(te.lower(state), [x, y])
    codegen_c.build(te.lower(state))(x, z)
    assert (y == 2 * x).all() and (z == y).all()
    print("the same in the interpreter and in C")
