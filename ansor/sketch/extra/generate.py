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
from .long_rows import long_row_sketches
from .micro_kernel import micro_kernel_sketches
from .packed_read import packed_read_sketches
from .padded_shared import padded_shared_sketches
from .row_loops import row_loop_sketches
from .rows import row_sketches
from .skinny import skinny_sketches
from .split_reduction import split_reduction_sketches
from .tensor_core import tensor_core_sketches
from .transposed_shared import transposed, transposed_shared_sketches

Rule = Callable[[SketchContext], list[State]]


def _changed(rule: Rule, change: Callable[[State], State | None]) -> Rule:
    """The sketches of another rule for GPUs, each with a change; without those that it does not apply to."""

    def sketches(ctx: SketchContext) -> list[State]:
        found = [change(s) for s in rule(ctx)] if ctx.target.is_gpu else []
        return [s for s in found if s is not None]

    return sketches


def _ahead(rule: Rule) -> Rule:
    """The sketches of another rule, with their shared copies fetched ahead."""
    return _changed(rule, double_buffered)


def _transposed(rule: Rule) -> Rule:
    """The sketches of another rule, with shared copies that are read in strides transposed."""
    return _changed(rule, transposed)


EXTRA_RULES: dict[str, Rule] = {
    "split_reduction": split_reduction_sketches,
    "injective": injective_sketches,
    "rows": lambda ctx: row_sketches(ctx) + row_loop_sketches(ctx),
    "long_rows": long_row_sketches,
    "packed_read": packed_read_sketches,
    "micro_kernel": micro_kernel_sketches,
    "padded_shared": padded_shared_sketches,
    "double_buffer": double_buffer_sketches,
    "skinny": skinny_sketches,
    "transposed_shared": transposed_shared_sketches,
    "tensor_core": tensor_core_sketches,
    "split_reduction_ahead": _ahead(split_reduction_sketches),
    "padded_shared_ahead": _ahead(padded_shared_sketches),
    "transposed_shared_ahead": _ahead(transposed_shared_sketches),
    "split_reduction_transposed_ahead": _ahead(_transposed(split_reduction_sketches)),
}


def extra_sketches(
    dag: ComputeDAG,
    target: Target | str,
    hardware: HardwareParams | None = None,
    options: SketchOptions | None = None,
    rules: Sequence[str] = tuple(EXTRA_RULES),
    stored_as_read: bool = False,
) -> list[State]:
    """The sketches that the named extra rules give for `dag`, in the order of the rules; none when none applies.

    `stored_as_read`: see `SketchContext`.
    They are completed like ordinary sketches, and their programs are recorded with the same kinds of steps.
    Raises TaskError for an unknown rule or a target without sketch rules.
    """
    target = Target.of(target)
    hardware = (hardware or HardwareParams(target=target)).completed(target)
    ctx = SketchContext(dag, target, hardware, options or SketchOptions(), stored_as_read=stored_as_read)
    out: list[State] = []
    for name in rules:
        require(name in EXTRA_RULES, TaskError, "extra rule", f"known are {', '.join(EXTRA_RULES)}", got=name)
        out += EXTRA_RULES[name](ctx)
    return out
