"""The best programs of searches, timed anew in turns: of searches side by side each saw another machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import ansor
from ansor.core.tasks.protocols import Builder
from ansor.core.values.steady import by_turns
from ansor.measure.answers import built_by, submitted
from ansor.measure.finals import FINALISTS, Leaders
from ansor.measure.local import LocalRunner
from ansor.measure.turns import race
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

Figures = Mapping[tuple[Step, ...], Sequence[float]]
"""By the steps of a program."""
RACE = 20
"""Figures of the best of as many programs as a search times once more at most."""


def best_states(task: ansor.SearchTask, log: Path, counts: Iterable[int]) -> dict[int, tuple[State, ...]]:
    """The programs that a search would time once more after so many trials, the best by its record first, by their
    number; as far as there are so many trials."""
    inputs, results = ansor.RecordReader(log).read_lines()
    found = {}
    for n in [n for n in counts if n <= len(results)]:
        leaders = Leaders()
        for k, result in enumerate(results[:n]):
            if result.ok:
                leaders.add((result.cost, k, inputs[k]))
        chosen = leaders.best[: FINALISTS.size(leaders)]
        found[n] = tuple(ansor.MeasureInput(task, steps=inp.steps).state for _, _, inp in chosen)
    return found


def in_turns(
    task: ansor.SearchTask, states: Sequence[State], builder: Builder, runner: LocalRunner, rounds: int
) -> Figures:
    """So many seconds of each program, in turns; none of one that does not run."""
    inputs = {state.steps: ansor.MeasureInput(task, state) for state in states}
    builds = [submitted(builder, inp) for inp in inputs.values()]
    found = runner.compare(list(inputs.values()), [built_by(builder, build) for build in builds], rounds)
    return dict(zip(inputs, found, strict=True))


def winner(states: Sequence[State], figures: Figures) -> State | None:
    """The program that wins a race in which each takes its `figures`, one after the other; None where none runs."""
    coming = [iter(figures[state.steps]) for state in states]
    times = race(len(states), lambda k: next(coming[k], None))
    ran = [k for k, t in enumerate(times) if t]
    return states[min(ran, key=lambda k: by_turns(times[k]))] if ran else None


def timed_again(
    task: ansor.SearchTask, files: Mapping[str, Sequence[Path]], counts: Sequence[int]
) -> dict[str, list[dict[int, float]]]:
    """Of the logs of each method, the seconds of the programs that a search gives after so many trials.

    A search times its finalists again in turns and gives the best of them.  So it is done here, with figures that are
    taken for all logs at once; then what they give is timed once more, all in turns, for the times that choose flatter
    what is chosen.
    """
    last = {
        (method, k, n): found
        for method, logs in files.items()
        for k, log in enumerate(logs)
        for n, found in best_states(task, log, counts).items()
    }
    builder, runner = ansor.LocalBuilder(), ansor.LocalRunner()
    try:
        figures = in_turns(task, [state for found in last.values() for state in found], builder, runner, RACE)
        won = {key: winner(found, figures) for key, found in last.items()}
        given = {key: state for key, state in won.items() if state is not None}
        seconds = in_turns(task, list(given.values()), builder, runner, RACE)
    finally:
        builder.close()
        runner.close()
    again = {key: median(seconds[state.steps]) for key, state in given.items() if seconds[state.steps]}
    return {
        method: [{n: again[method, k, n] for n in counts if (method, k, n) in again} for k in range(len(logs))]
        for method, logs in files.items()
    }
