"""A schedule step by step: the loop nest before and after each step, with what went and what came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from te_lite.computation.text import dag_text
from te_lite.errors import LowerError
from te_lite.printing.python_text import python_steps
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State, initial_state

from .boxes import Box
from .nest import nest_of, open_nest
from .nest_picture import nest_boxes


@dataclass(frozen=True)
class StepFrame:
    """A step: its letters in a record, its lines as a schedule, and the nests; lines that differ have a class."""

    letters: str
    lines: tuple[str, ...]
    before: tuple[Box, ...]
    after: tuple[Box, ...]
    note: str


def step_frames(state: State) -> list[StepFrame]:
    """What each step of a state does, in order."""
    now, found = initial_state(state.dag), list[StepFrame]()
    before, _ = _boxes(now)
    for step, lines in zip(state.steps, python_steps(state)[1:], strict=True):
        now = apply(now, step)
        after, note = _boxes(now)
        found.append(StepFrame(step.tag, lines, _marked(before, after, "gone"), _marked(after, before, "new"), note))
        before = after
    return found


def unscheduled(state: State) -> tuple[tuple[Box, ...], str]:
    """The nest before the first step, and the computation as text."""
    return _boxes(initial_state(state.dag))[0], dag_text(state.dag.ops)


def _boxes(state: State) -> tuple[tuple[Box, ...], str]:
    """The nest, and why it is shown without bounds where it is: half of a schedule may have none."""
    try:
        return tuple(nest_boxes(nest_of(state))), ""
    except LowerError as error:
        return tuple(nest_boxes(open_nest(state))), f"no bounds yet: {error}"


def _marked(boxes: Sequence[Box], others: Sequence[Box], kind: str) -> tuple[Box, ...]:
    """The boxes with a class for the lines that the others do not have, as often as they do not have them."""
    left = Counter(_lines(boxes))
    left.subtract(Counter(_lines(others)))
    return tuple([_with_kinds(box, left, kind) for box in boxes])


def _lines(boxes: Sequence[Box]) -> list[str]:
    return [line for box in boxes for line in (*map(str.strip, box.lines), *_lines(box.inside))]


def _with_kinds(box: Box, left: Counter[str], kind: str) -> Box:
    kinds = []
    for k, line in enumerate(map(str.strip, box.lines)):
        own = box.kinds[k] if k < len(box.kinds) else ""
        kinds.append(f"{own} {kind}".strip() if left[line] > 0 else own)
        left[line] -= 1
    return replace(box, kinds=tuple(kinds), inside=tuple([_with_kinds(inner, left, kind) for inner in box.inside]))
