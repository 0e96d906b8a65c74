"""The best programs of searches, timed anew in turns: of searches side by side each saw another machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

import ansor
from ansor.core.protocols import Builder, PairedRunner
from ansor.measure.answers import built_by, compared_by, submitted
from ansor.measure.finals import FINALISTS
from te_lite.state import State
from te_lite.step import Step


def best_states(
    task: ansor.SearchTask, log: Path, counts: Iterable[int], most: int = 1
) -> dict[int, tuple[State, ...]]:
    """The `most` programs that were best by their records after so many trials, by their number; as far as there are
    so many trials."""
    inputs, results = ansor.RecordReader(log).read_lines()
    costs = np.array([r.cost if r.ok else np.inf for r in results])
    best = {n: np.argsort(costs[:n], kind="stable")[:most] for n in counts if n <= len(costs)}
    return {
        n: tuple(ansor.MeasureInput(task, steps=inputs[k].steps).state for k in found if np.isfinite(costs[k]))
        for n, found in best.items()
    }


def in_turns(
    task: ansor.SearchTask, states: Sequence[State], builder: Builder, runner: PairedRunner
) -> dict[tuple[Step, ...], float]:
    """Seconds of programs in turns, by their steps; inf for one that does not run."""
    inputs = {state.steps: ansor.MeasureInput(task, state) for state in states}
    builds = [submitted(builder, inp) for inp in inputs.values()]
    found = compared_by(runner, list(inputs.values()), [built_by(builder, build) for build in builds])
    return {steps: float(np.median(t)) if t else np.inf for steps, t in zip(inputs, found, strict=True)}


def timed_again(
    task: ansor.SearchTask, files: Mapping[str, Sequence[Path]], counts: Sequence[int]
) -> dict[str, list[dict[int, float]]]:
    """Of the logs of each method, the seconds of the programs that a search gives after so many trials.

    A search times its finalists again in turns and gives the best of them.  So it is done here, for all logs at once;
    then what they give is timed once more, all in turns, for the times that choose flatter what is chosen.
    """
    last = {
        (method, k, n): found
        for method, logs in files.items()
        for k, log in enumerate(logs)
        for n, found in best_states(task, log, counts, FINALISTS).items()
    }
    builder, runner = ansor.LocalBuilder(), ansor.LocalRunner()
    try:
        final = in_turns(task, [state for found in last.values() for state in found], builder, runner)
        given = {key: min(found, key=lambda s: final[s.steps]) for key, found in last.items() if found}
        seconds = in_turns(task, list(given.values()), builder, runner)
    finally:
        builder.close()
        runner.close()
    again = {key: seconds[state.steps] for key, state in given.items()}
    return {
        method: [{n: again[method, k, n] for n in counts if (method, k, n) in again} for k in range(len(logs))]
        for method, logs in files.items()
    }
