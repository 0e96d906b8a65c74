"""Sketches beyond Ansor's rules, beside the ordinary ones (which they leave alone)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from te_lite.dag import ComputeDAG
from te_lite.errors import require
from te_lite.state import State

from ...core.errors import TaskError
from ...core.hardware import HardwareParams
from ...core.options import SketchOptions
from ...core.target import Target
from ..rule import SketchContext
from .double_buffer import double_buffer_sketches, double_buffered
from .injective import injective_sketches
from .packed_read import packed_read_sketches
from .padded_shared import padded_shared_sketches
from .row_loops import row_loop_sketches
from .rows import row_sketches
from .skinny import skinny_sketches
from .split_reduction import split_reduction_sketches


def _ahead(rule: Callable[[SketchContext], list[State]]) -> Callable[[SketchContext], list[State]]:
    """The sketches of another rule, with their shared copies fetched ahead."""

    def sketches(ctx: SketchContext) -> list[State]:
        found = [double_buffered(s) for s in rule(ctx)] if ctx.target.is_gpu else []
        return [s for s in found if s is not None]

    return sketches


EXTRA_RULES: dict[str, Callable[[SketchContext], list[State]]] = {
    "split_reduction": split_reduction_sketches,
    "injective": injective_sketches,
    "rows": lambda ctx: row_sketches(ctx) + row_loop_sketches(ctx),
    "packed_read": packed_read_sketches,
    "padded_shared": padded_shared_sketches,
    "double_buffer": double_buffer_sketches,
    "skinny": skinny_sketches,
    "split_reduction_ahead": _ahead(split_reduction_sketches),
    "padded_shared_ahead": _ahead(padded_shared_sketches),
}


def extra_sketches(
    dag: ComputeDAG,
    target: Target | str,
    hardware: HardwareParams | None = None,
    options: SketchOptions | None = None,
    rules: Sequence[str] = tuple(EXTRA_RULES),
) -> list[State]:
    """The sketches that the named extra rules give for `dag`, in the order of the rules; none when none applies.

    They are completed like ordinary sketches, and their programs are recorded with the same kinds of steps.
    Raises TaskError for an unknown rule or a target without sketch rules.
    """
    target = Target.of(target)
    hardware = (hardware or HardwareParams(target=target)).completed(target)
    ctx = SketchContext(dag, target, hardware, options or SketchOptions())
    out: list[State] = []
    for name in rules:
        require(name in EXTRA_RULES, TaskError, "extra rule", f"known are {', '.join(EXTRA_RULES)}", got=name)
        out += EXTRA_RULES[name](ctx)
    return out
