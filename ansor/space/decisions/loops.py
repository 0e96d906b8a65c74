"""Questions about the loops and splits of a stage that several kinds of decisions ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from te_lite.expr.lanes import where
from te_lite.schedule.loop_steps import Annotate, Fuse, Split, Splitting
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import INLINED, Iter, SplitRel, Stage, State
from te_lite.schedule.step import Length, Step

from ...sketch.predicates import UNROLL_INNER, named_axes, traced_steps


def holes(sketch: State) -> dict[int, Split]:
    """The splits with undecided lengths, by their position in the step list."""
    return {
        position: step
        for position, step in enumerate(sketch.steps)
        if isinstance(step, Split) and any(length is None for length in step.lengths)
    }


def fill(sketch: State, lengths: Mapping[int, Sequence[Length]]) -> State:
    """`sketch` with the lengths of the splits at the given step positions replaced, replayed from the start.

    A length is an int or an int64 array with one lane per program.  Raises ScheduleError for a length that does not
    fit its step.
    """
    steps = list(sketch.steps)
    for position, values in lengths.items():
        step = steps[position]
        assert isinstance(step, Split)
        steps[position] = replace(step, lengths=tuple(values))
    return replay(sketch.dag, steps)


def rfactor_positions(sketch: State) -> list[int]:
    """The positions of the undecided splits that an rfactor follows."""
    return [p for p in holes(sketch) if any(isinstance(step, RFactor) for step in sketch.steps[p + 1 : p + 2])]


def split_positions(state: State, k: int) -> list[int]:
    """The positions of the steps that made the splits of stage `k`, in the order of its relations.

    Steps that came before the stage was derived anew (rfactor) are older than its relations.
    """
    found = [p for p, step in traced_steps(state.steps, k) if isinstance(step, Splitting)]
    count = sum(isinstance(rel, SplitRel) for rel in state.stages[k].relations)
    return found[:count][::-1]


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
