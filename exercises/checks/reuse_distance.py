"""The reuse of every tensor in every nest of random programs, beside that of `mini_ansor`."""

from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mini_ansor.features as features
from mini_ansor.__main__ import matmul
from mini_ansor.features import Access, Nest
from mini_ansor.program import Machine
from mini_ansor.steps import replay

from ..core.mini import WORKLOADS, drawn, put_in, split
from ..core.verdict import function, need

HINT = """`nest.innermost(loops)` gives the innermost of some loops that is longer than 1, or -1. A loop j has
`nest.inside[j + 1]` turns inside of it. `access.shared` counts loops, so the last of them is number
`access.shared - 1`; without others there is none."""
KINDS = ("reuse_loop", "reuse_serial", "reuse_none")


class Compared:
    """The learner's function in the place of a method of `mini_ansor`; `seen` counts what kinds it was asked about."""

    def __init__(self, filled: Any) -> None:
        self.filled, self.original, self.case = filled, features._Program._reuse, ""
        self.seen: Counter[str] = Counter()

    def __call__(
        self, program: Any, access: Access, nest: Nest, moves: dict[int, float], total: Sequence[float]
    ) -> Any:
        got, want = self.filled(access, nest, dict(moves), total), self.original(program, access, nest, moves, total)
        need(isinstance(got, dict) and ... not in got.values(), "`reuse` still has its hole: replace every `...`")
        loops = [f"{self.named(nest, j)}{self.about(j, access, moves)}" for j in range(len(nest.extents))]
        others = f"; {access.others} other stages use it, in {access.shared} loops in common" if access.others else ""
        self.compare(f"{self.case}, stage {nest.stage.op.name}, loops {', '.join(loops)}{others}", got, want)
        return got

    def named(self, nest: Nest, j: int) -> str:
        """A loop with its number and its turns."""
        return f"{j} of {nest.extents[j]:g}"

    def about(self, j: int, access: Access, moves: dict[int, float]) -> str:
        """What a loop does to the address."""
        return " (fixed)" if j in access.nest.fixed else " (moves)" if j in moves else ""

    def compare(self, case: str, got: dict[str, float], want: dict[str, float]) -> None:
        """Raise Wrong with the first column that differs."""
        right, yours = (next((k for k in KINDS if found.get(k)), "missing") for found in (want, got))
        self.seen[right] += 1
        need(
            right == yours,
            f"{case}: the nearest is {right}, yours {yours}: the loop further in decides, and fixed ones do not count",
        )
        for name, why in (
            ("reuse_ct", "the turns of that loop, or the other stages"),
            ("reuse_dis_iter", "the turns of the loops inside of that one"),
            ("reuse_dis_bytes", "the bytes that the loops inside of that one touch"),
        ):
            a, b = got.get(name, 0.0), want.get(name, 0.0)
            need(a == b, f"{case}: {name} is {b:g}, yours {a:g}: {why}")


def check(answer: ModuleType) -> None:
    """The product as it is written, one with a loop of one turn, then programs that share and keep tiles."""
    compared, machine = Compared(function(answer, "reuse")), Machine()

    def patched(*given: Any) -> Any:
        return compared(*given)

    with put_in(features._Program, "_reuse", patched):
        for case, steps in (
            ("a product as it is written", []),
            ("a product with a loop of one turn inside", [split(2, 1, 8, (1,)), split(2, 3, 6, (1,))]),
        ):
            compared.case = case
            features.features(replay(matmul(24, 8, 6), steps), machine)
        for name, make in WORKLOADS.items():
            compared.case = f"a program of {name}"
            for state in drawn(make(), machine, 8):
                features.features(state, machine)
    assert all(compared.seen[kind] for kind in KINDS), compared.seen
