"""The axes at points of the loops: of splits and fuses by hand, then at every call in lowering."""

from types import ModuleType
from typing import Any

import numpy as np

import mini_ansor.lower as lower
import mini_ansor.steps as steps
from mini_ansor.__main__ import matmul
from mini_ansor.bounds import Bounds
from mini_ansor.expr import Axis, Const, Expr, substitute
from mini_ansor.program import FuseRel, Machine, Stage, Step
from mini_ansor.steps import replay

from ..core.mini import WORKLOADS, drawn, fuse, put_in, split
from ..core.verdict import function, need

HINT = """A split by (4, 2): a turn of the first part moves the parent by 4 * 2, one of the second by 2, one of the last
by 1. A fused loop of parts with 3, 4 and 5 turns is a number with three digits: the last digit is the value % 5, what
is left is the value // 5."""

CASES: list[tuple[str, list[Step]]] = [
    ("i split by (4,)", [split(2, 0, 24, (4,))]),
    ("i split by (3, 2)", [split(2, 0, 24, (3, 2))]),
    ("i split by (5, 3)", [split(2, 0, 24, (5, 3))]),
    ("i and j fused", [fuse(2, (0, 1))]),
    ("i, j and k fused", [fuse(2, (0, 1, 2))]),
    ("i and j fused, and that split by (3,)", [fuse(2, (0, 1)), split(2, 0, 192, (3,))]),
    ("i split by (3, 2), and the two inner ones fused", [split(2, 0, 24, (3, 2)), fuse(2, (1, 2))]),
]


class Compared:
    """The learner's function, whose every result is compared with that of `mini_ansor` at some points of the loops."""

    def __init__(self, filled: Any) -> None:
        self.filled, self.original, self.case = filled, steps.axis_values, ""
        self.rng = np.random.default_rng(4)

    def __call__(self, stage: Stage, loops: dict[int, Any]) -> dict[int, Expr]:
        got: dict[int, Any] = self.filled(stage, dict(loops))
        want = self.original(stage, loops)
        need(isinstance(got, dict), "`axis_values` gives back a dict, of expressions by the id of the iterator")
        need(... not in got.values(), "`axis_values` still has its hole: replace both `...`")
        axes = {a for a in loops.values() if isinstance(a, Axis)}
        for _ in range(4):
            turns = {a: Const(int(self.rng.integers(a.extent))) for a in axes}
            for i, value in want.items():
                self.compare(stage, i, got.get(i), value, turns, loops)
        return got

    def compare(self, stage: Stage, i: int, got: Any, want: Expr, turns: dict[Axis, Const], loops: Any) -> None:
        """Raise Wrong when iterator `i` has another value at a point."""
        it = stage.iters[i]
        need(got is not None, f"{self.case}: {it.name} follows from the loops and is not among your values")
        a, b = (number(e, turns) for e in (got, want))
        point = ", ".join(f"{stage.iters[n].name} is {number(e, turns)}" for n, e in loops.items())
        if it.id in {p for rel in stage.relations if isinstance(rel, FuseRel) for p in rel.parts}:
            why = "the last part of a fused loop counts fastest, and no part leaves its extent"
        else:
            why = "a turn of a part moves the parent by the product of the lengths of all later parts"
        need(a == b, f"{self.case}: where {point}, {it.name} is {b}, yours {a}: {why}")


def number(e: Any, turns: dict[Axis, Const]) -> Any:
    """The value of an expression at a point; indices of constants fold to one."""
    at = substitute(e, turns) if isinstance(e, Expr) else e
    return int(at.value) if isinstance(at, Const) else at


def check(answer: ModuleType) -> None:
    """By hand first, so that the sentence is about one step."""
    compared = Compared(function(answer, "axis_values"))
    for case, made in CASES:
        compared.case = f"{case} (24 x 8, k of 6)"
        stage = Bounds(replay(matmul(24, 8, 6), made)).state.stages[2]
        compared(stage, {it.id: Axis(it.name, it.length) for it in stage.current})
    with put_in(lower, "axis_values", compared), put_in(steps, "axis_values", compared):
        for name, make in WORKLOADS.items():
            compared.case = f"a program of {name}"
            for state in drawn(make(), Machine(), 5):
                lower.lower(state)
