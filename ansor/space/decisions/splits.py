"""The splits of a state, and which of them have undecided lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from te_lite.schedule.loop_steps import Split, Splitting
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import SplitRel, State
from te_lite.schedule.step import Length

from ...sketch.predicates import traced_steps


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
