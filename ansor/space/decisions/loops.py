"""Questions about the loops of a stage that several kinds of decisions ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from te_lite.expr.lanes import where
from te_lite.schedule.loop_steps import Fuse
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.mark_steps import Annotate
from te_lite.schedule.state import INLINED, Iter, Stage, State
from te_lite.schedule.step import Step

from ...sketch.predicates import UNROLL_INNER, named_axes


def loops_of_programs(state: State) -> list[int]:
    """The stages that have loops of their own."""
    return [k for k, s in enumerate(state.stages) if not s.is_placeholder and s.where != INLINED]


def always_unrolled(stage: Stage) -> list[Iter]:
    """The loops of the innermost tile that the operation asks to unroll."""
    listed = named_axes(stage, UNROLL_INNER)
    out: list[Iter] = []
    seen: set[int] = set()
    for it in reversed(stage.iters) if listed else ():
        axes = root_axes(stage, it.uid)
        if axes <= seen:
            continue
        seen |= axes
        if len(axes) == 1 and axes <= listed and it.annotation == "none":
            out.append(it)
    return out


def annotated_loops(steps: Sequence[Step], annotation: str) -> Iterator[tuple[Annotate, int]]:
    """The steps that give a loop this annotation, and how many loops were fused into it."""
    fused: dict[int, int] = {}
    for step in steps:
        match step:
            case Fuse(stage=k, iters=iters):
                fused[k] = len(iters)
            case Annotate(stage=k, annotation=given):
                count = fused.pop(k, 1)
                if given == annotation:
                    yield step, count


def without_units(loops: Sequence[Iter], count: Any) -> Any:
    """The fewest of `loops` that run as many times as the first `count` of them: those of extent 1 behind are left."""
    out: Any = 0
    for n, it in enumerate(loops, 1):
        out = where((it.extent != 1) & (n <= count), n, out)
    return out
