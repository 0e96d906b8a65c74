"""Sketches beyond Ansor's rules, beside the ordinary ones (which they leave alone)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from te_lite.dag import ComputeDAG
from te_lite.errors import require
from te_lite.spelling import did_you_mean
from te_lite.state import State

from ...core.errors import TaskError
from ...core.hardware import HardwareParams
from ...core.options import SketchOptions
from ...core.target import Target
from ..generate import ordinary_sketches
from ..rule import SketchContext
from .attention import attention_sketches
from .double_buffer import double_buffered
from .injective import injective_sketches
from .joined_columns import joined_column_sketches
from .joined_rows import joined_row_sketches
from .long_products import long_product_sketches
from .long_rows import long_row_sketches
from .micro_kernel import micro_kernel_sketches
from .packed_read import packed_read_sketches
from .padded_shared import padded
from .register_tiles import register_tiled
from .row_loops import row_loop_sketches
from .rows import row_sketches
from .shared_panels import shared_panel_sketches
from .skinny import skinny_sketches
from .sliced_tiles import sliced_sketches
from .split_reduction import split_reduction_sketches
from .tensor_core import tensor_core_sketches
from .transposed_shared import transposed
from .windows import window_sketches
from .winograd import winograd_sketches

Rule = Callable[[SketchContext], list[State]]


def _register_tiles(ctx: SketchContext) -> list[State]:
    """Ansor's sketches of products with tiles fetched ahead, transposed where they are read in strides."""
    return register_tiled(ctx, _changed(ordinary_sketches, lambda s: transposed(s) or s, double_buffered)(ctx))


def _changed(rule: Callable[[SketchContext], Sequence[State]], *changes: Callable[[State], State | None]) -> Rule:
    """The sketches of another rule for GPUs, each with all changes; without those that one does not apply to."""

    def sketches(ctx: SketchContext) -> list[State]:
        found = list(rule(ctx)) if ctx.target.is_gpu else []
        for change in changes:
            found = [s for s in map(change, found) if s is not None]
        return found

    return sketches


EXTRA_RULES: dict[str, Rule] = {
    "split_reduction": split_reduction_sketches,
    "injective": injective_sketches,
    "rows": lambda ctx: row_sketches(ctx) + row_loop_sketches(ctx),
    "long_rows": long_row_sketches,
    "packed_read": packed_read_sketches,
    "micro_kernel": lambda ctx: micro_kernel_sketches(ctx) + long_product_sketches(ctx),
    "joined_rows": joined_row_sketches,
    "joined_columns": joined_column_sketches,
    "shared_panels": shared_panel_sketches,
    "winograd": winograd_sketches,
    "windows": window_sketches,
    "padded_shared": _changed(ordinary_sketches, padded),
    "double_buffer": _changed(ordinary_sketches, double_buffered),
    "skinny": skinny_sketches,
    "transposed_shared": _changed(ordinary_sketches, transposed),
    "split_reduction_ahead": _changed(split_reduction_sketches, double_buffered),
    "padded_shared_ahead": _changed(ordinary_sketches, padded, double_buffered),
    "transposed_shared_ahead": _changed(ordinary_sketches, transposed, double_buffered),
    "register_tiles": _register_tiles,
    "sliced_tiles": sliced_sketches,
    "tensor_core": tensor_core_sketches,
    "attention": attention_sketches,
    "split_reduction_transposed_ahead": _changed(split_reduction_sketches, transposed, double_buffered),
}


def extra_rules(asked: str) -> tuple[str, ...]:
    """The rules that a parameter names, with commas; `all` is all.  Raises TaskError for one that is unknown."""
    names = tuple(EXTRA_RULES if asked == "all" else [name.strip() for name in asked.split(",") if name.strip()])
    for name in names:
        if name not in EXTRA_RULES:
            law = f"the rule is unknown, {did_you_mean(name, EXTRA_RULES)}known are {', '.join(EXTRA_RULES)}"
            raise TaskError(f"extra_sketch_rules: {law}, got {name!r}")
    return names


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
