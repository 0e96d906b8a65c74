"""Which programs are timed once more, in turns, when a search ends."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core.host.hints import ansor
from ..core.tasks.measure_values import Baseline, MeasureInput
from ..core.values.steady import MOST_FACTOR, most_figures
from .progress import seconds_text

SHARE = 4
SLOW = 1.0
"""Seconds that one call of all of them may take, where they are more than the least number."""
HOPELESS = 3.0
"""A program that nobody searched for and that took so many times as long as the best one is not timed again."""

Leader = tuple[float, int, MeasureInput]
"""Seconds, the number of the trial (0 for none of this run), the program."""


def order(leader: Leader) -> tuple[float, int]:
    """By seconds, then by the number."""
    return leader[:2]


@dataclass(frozen=True)
class Field:
    """How many programs are timed once more: a quarter of all within these bounds, fewer of slow ones.

    In six searches on busy cores the best of 64 programs, as turns told, was the 3rd to the 28th by its single figure.
    """

    least: int
    most: int

    def size(self, leaders: Leaders) -> int:
        """Of the leaders of a run."""
        fast = int(SLOW / leaders.best[0][0]) if leaders.best else 0
        return max(self.least, min(self.most, leaders.trials // SHARE, fast))


FINALISTS = Field(5, 16)


@dataclass
class Leaders:
    """The best programs of a task in a run, best first, of `trials` that ran."""

    trials: int = 0
    best: list[Leader] = field(default_factory=list)

    def add(self, leader: Leader) -> None:
        self.trials += 1
        bisect.insort(self.best, leader, key=order)
        del self.best[FINALISTS.most :]


def finalists(
    own: Sequence[Leader], logged: Sequence[Leader], baselines: Sequence[Leader], most: int
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


def nothing_better(
    timed: Sequence[tuple[Leader, Sequence[float]]], raced: Sequence[Leader], baselines: Mapping[Baseline, Leader]
) -> str:  # fmt: skip
    """What is to be said where no program that was searched for beats those that need no search; empty for nothing.

    `timed` are programs and their figures in turns, best first (`by_turns`).  Others of those that `raced` lost; who
    did not is known by one figure.
    """
    most = most_figures(figures for _, figures in timed)
    in_turns = {inp.steps: math.inf for _, _, inp in raced}
    in_turns |= {inp.steps: seconds for (seconds, _, inp), figures in timed if len(figures) == most}
    took = [(in_turns.get(inp.steps, seconds), which) for which, (seconds, _, inp) in baselines.items()]
    seconds, which = min(took, key=lambda pair: pair[0], default=(math.inf, Baseline.UNTUNED))
    if seconds > timed[0][0][0]:
        return ""
    text = f"no program that was searched for is faster than {which.phrase}, which took {seconds_text(seconds)}"
    return f"slower than {which.name.lower()}: {text}"


def slower_text(times: float) -> str:
    """What is to be said where the programs of a log take so many times what it says of them; empty for nothing."""
    if times <= MOST_FACTOR:
        return ""
    law = f"take {times:.2g} times what it says of them; the machine is busy now, or another one"
    return f"the programs of the log {law}, so time them again later: {ansor('remeasure', 'LOG')}"
