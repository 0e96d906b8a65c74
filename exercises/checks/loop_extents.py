"""Extents of all iterators: of splits by hand, then in bound inference of schedules and of random programs."""

from collections.abc import Sequence
from types import ModuleType

import mini_ansor.bounds as bounds
from mini_ansor.__main__ import matmul
from mini_ansor.expr import Op
from mini_ansor.program import Machine, Stage, Step
from mini_ansor.steps import replay

from ..core.mini import WORKLOADS, drawn, fuse, product_and_relu, put_in, split
from ..core.verdict import function, need

HINT = """Begin with the innermost part: it is as long as its length says, or as the rest where that is shorter; then
divide the rest by the length, and round up. What is left in the end is the first part. 7 by (2, 3): 3, the rest is 3;
2, the rest is 2."""

CASES: list[tuple[str, list[Step]]] = [
    ("i of 12 split by (3,)", [split(2, 0, 12, (3,))]),
    ("i of 12 split by (2, 3)", [split(2, 0, 12, (2, 3))]),
    ("i of 12 split by (5,)", [split(2, 0, 12, (5,))]),
    ("i of 12 split by (4, 20)", [split(2, 0, 12, (4, 20))]),
    ("i of 12 split by (8, 4)", [split(2, 0, 12, (8, 4))]),
    ("i of 12 fused with j of 8", [fuse(2, (0, 1))]),
    ("i and j fused, and the 96 split by (10,)", [fuse(2, (0, 1)), split(2, 0, 96, (10,))]),
]
WHY = {
    ("axis", "more"): "it is an axis, and these begin with `roots`",
    ("axis", "fewer"): "it is an axis, and these begin with `roots`",
    ("first", "more"): "the first part takes what the lengths of all others leave",
    ("first", "fewer"): "the first part takes the rest, and what does not divide needs one more turn",
    ("other", "more"): "a part is no longer than what is left to split",
    ("other", "fewer"): "a part has the length that its split says, where so much is left by those further in",
    ("fused", "more"): "it counts through all points of its parts",
    ("fused", "fewer"): "it counts through all points of its parts",
}


def check(answer: ModuleType) -> None:
    """Splits and fuses alone, so that the sentence is about one of them; then what bound inference makes of it."""
    filled = function(answer, "filled")
    for case, steps in CASES:
        stage = replay(matmul(12, 8, 6), steps).stages[2]
        got, want = filled(stage, [12, 8, 6]), bounds.filled(stage, [12, 8, 6])
        compared(case, got, want)
    tile: list[Step] = [split(3, 0, 12, (4,)), split(2, 1, 8, (5,)), Step("CA", (2, 3, 0))]
    inferred(filled, "C, whose j is split by 5, inside a tile of 4 rows", product_and_relu(12, 8, 6), tile)
    for name, make in WORKLOADS.items():
        for state in drawn(make(), Machine(), 6):
            inferred(filled, f"a program of {name}", state.args, state.steps)


def inferred(filled: object, case: str, args: Sequence[Op], steps: Sequence[Step]) -> None:
    """Bounds with the learner's function in mini_ansor are those without."""
    state = replay(args, steps)
    want = bounds.Bounds(state).state.stages
    with put_in(bounds, "filled", filled):
        got = bounds.Bounds(state).state.stages
    for a, b in zip(got, want, strict=True):
        compared(f"{case}, stage {b.op.name}", a, b)


def compared(case: str, got: Stage, want: Stage) -> None:
    """Raise Wrong with an iterator of another extent, the innermost one of a split, and why it has that."""
    need(isinstance(got, Stage), "`filled` gives back the stage with other iterators")
    need(not any(vars(it)["extent"] is ... for it in got.iters), "`filled` still has its hole: replace both `...`")
    for a, b in reversed(list(zip(got.iters, want.iters, strict=True))):
        if a.extent != b.extent:
            kind = "fused" if b.name.endswith("@") else "first" if b.name.endswith(".0") else "other"
            kind = "axis" if b.id < want.roots else kind
            why = WHY[kind, "more" if (a.extent or 0) > (b.extent or 0) else "fewer"]
            need(False, f"{case}: {b.name} runs {b.extent} times, yours {a.extent}: {why}")
