"""Sketches beyond Ansor's rules, beside the ordinary ones (which they leave alone)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean
from te_lite.later import when_called
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State

from ...core.errors import TaskError
from ...core.target.hardware import HardwareParams
from ...core.target.target import Target
from ...core.values.options import SketchOptions
from ..generate import ordinary_sketches
from ..rule import SketchContext
from .injective import injective_sketches
from .joined_columns import joined_column_sketches
from .joined_rows import joined_row_sketches
from .long_products import long_product_sketches
from .micro_kernel import micro_kernel_sketches
from .packed_read import packed_read_sketches
from .row_loops import row_loop_sketches
from .shared_panels import shared_panel_sketches
from .split_reduction import split_reduction_sketches
from .windows import window_sketches
from .winograd import winograd_sketches

Rule = Callable[[SketchContext], list[State]]
Change = Callable[[State], State | None]

padded: Change = when_called("ansor.sketch.extra.padded_shared", "padded")
transposed: Change = when_called("ansor.sketch.extra.transposed_shared", "transposed")
double_buffered: Change = when_called("ansor.sketch.extra.double_buffer", "double_buffered")
register_tiled: Callable[[SketchContext, list[State]], list[State]] = when_called(
    "ansor.sketch.extra.register_tiles", "register_tiled"
)


def _register_tiles(ctx: SketchContext) -> list[State]:
    """Ansor's sketches of products with tiles fetched ahead, transposed where they are read in strides."""
    found = _changed(ordinary_sketches, lambda s: transposed(s) or s, double_buffered)(ctx)
    return register_tiled(ctx, found) if found else []


def _on_gpus(rule: Rule) -> Rule:
    """A rule that has sketches for GPUs alone."""
    return lambda ctx: rule(ctx) if ctx.target.is_gpu else []


def _changed(rule: Callable[[SketchContext], Sequence[State]], *changes: Change) -> Rule:
    """The sketches of another rule for GPUs, each with all changes; without those that one does not apply to."""

    def sketches(ctx: SketchContext) -> list[State]:
        found = list(rule(ctx)) if ctx.target.is_gpu else []
        for change in changes:
            found = [s for s in map(change, found) if s is not None]
        return found

    return sketches


row_sketches = _on_gpus(when_called("ansor.sketch.extra.rows", "row_sketches"))

EXTRA_RULES: dict[str, Rule] = {
    "split_reduction": split_reduction_sketches,
    "injective": injective_sketches,
    "rows": lambda ctx: row_sketches(ctx) + row_loop_sketches(ctx),
    "long_rows": _on_gpus(when_called("ansor.sketch.extra.long_rows", "long_row_sketches")),
    "packed_read": packed_read_sketches,
    "micro_kernel": lambda ctx: micro_kernel_sketches(ctx) + long_product_sketches(ctx),
    "joined_rows": joined_row_sketches,
    "joined_columns": joined_column_sketches,
    "shared_panels": shared_panel_sketches,
    "winograd": winograd_sketches,
    "windows": window_sketches,
    "padded_shared": _changed(ordinary_sketches, padded),
    "double_buffer": _changed(ordinary_sketches, double_buffered),
    "skinny": _on_gpus(when_called("ansor.sketch.extra.skinny", "skinny_sketches")),
    "transposed_shared": _changed(ordinary_sketches, transposed),
    "split_reduction_ahead": _changed(split_reduction_sketches, double_buffered),
    "padded_shared_ahead": _changed(ordinary_sketches, padded, double_buffered),
    "transposed_shared_ahead": _changed(ordinary_sketches, transposed, double_buffered),
    "register_tiles": _register_tiles,
    "sliced_tiles": _on_gpus(when_called("ansor.sketch.extra.sliced_tiles", "sliced_sketches")),
    "tensor_core": _on_gpus(when_called("ansor.sketch.extra.tensor_core", "tensor_core_sketches")),
    "attention": _on_gpus(when_called("ansor.sketch.extra.attention", "attention_sketches")),
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
