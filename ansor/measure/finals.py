"""Which programs are timed once more, in turns, when a search ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..core.baseline import Baseline
from ..core.hints import ansor
from ..core.measure_values import MeasureInput
from ..core.steady import MOST_FACTOR
from .progress import seconds_text

FINALISTS = 5
HOPELESS = 3.0
"""A program that nobody searched for and that took so many times as long as the best one is not timed again."""

Leader = tuple[float, int, MeasureInput]
"""Seconds, the number of the trial (0 for none of this run), the program."""


def order(leader: Leader) -> tuple[float, int]:
    """By seconds, then by the number."""
    return leader[:2]


def finalists(
    own: Sequence[Leader], logged: Sequence[Leader], baselines: Sequence[Leader], most: int = FINALISTS
) -> list[Leader]:  # fmt: skip
    """The `most` best of a run and of its logs, whose programs are given best first, and each program once.

    Further, the best of the logs in any case, since they may have believed it for a better reason than one figure, and
    the programs that nobody searched for where they are near.  None where nothing ran.
    """
    steps = {inp.steps for _, _, inp in own}
    others = [leader for leader in logged if leader[2].steps not in steps]
    chosen = sorted([*own, *others], key=order)[:most]
    near = [leader for leader in baselines if chosen and leader[0] < HOPELESS * chosen[0][0]]
    for leader in [*[best for best in logged[:1] if best in others], *near]:
        if leader[2].steps not in {inp.steps for _, _, inp in chosen}:
            chosen.append(leader)
    return chosen


def near_after_all(timed: Sequence[Leader], best: Leader, baselines: Sequence[Leader]) -> list[Leader]:
    """The baselines that were left out of the turns for a lucky figure, and are near the program that is `best` now."""
    steps = {inp.steps for _, _, inp in timed}
    return [leader for leader in baselines if leader[2].steps not in steps and leader[0] < HOPELESS * best[0]]


def times_slower(leaders: Sequence[Leader], timed: Sequence[Leader], baselines: Sequence[Leader]) -> float:
    """How many times what their log says those programs take at least that were measured before this run.

    `leaders` have the seconds that were known before, `timed` those in turns.  0 where none is of a log.
    """
    unsearched = {inp.steps for _, _, inp in baselines}
    before = {inp.steps: cost for cost, trial, inp in leaders if trial == 0 and inp.steps not in unsearched}
    return min([cost / before[inp.steps] for cost, _, inp in timed if inp.steps in before], default=0.0)


def nothing_better(timed: Sequence[Leader], baselines: Mapping[Baseline, Leader]) -> str:
    """What is to be said where no program that was searched for beats those that need no search; empty for nothing.

    `timed` are programs in turns, best first; the others are known by one figure.
    """
    in_turns = {inp.steps: seconds for seconds, _, inp in timed}
    took = [(in_turns.get(inp.steps, seconds), which) for which, (seconds, _, inp) in baselines.items()]
    seconds, which = min(took, key=lambda pair: pair[0], default=(math.inf, Baseline.UNTUNED))
    if seconds > timed[0][0]:
        return ""
    text = f"no program that was searched for is faster than {which.phrase}, which took {seconds_text(seconds)}"
    return f"slower than {which.name.lower()}: {text}"


def slower_text(times: float) -> str:
    """What is to be said where the programs of a log take so many times what it says of them; empty for nothing."""
    if times <= MOST_FACTOR:
        return ""
    law = f"take {times:.2g} times what it says of them; the machine is busy now, or another one"
    return f"the programs of the log {law}, so time them again later: {ansor('remeasure', 'LOG')}"
