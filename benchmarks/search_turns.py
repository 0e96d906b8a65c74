"""The best programs of searches, timed anew in turns: of searches side by side each saw another machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

import ansor
from ansor.core.protocols import Builder, PairedRunner
from ansor.measure.answers import built_by, compared_by, submitted
from te_lite.state import State
from te_lite.step import Step


def best_states(task: ansor.SearchTask, log: Path, counts: Iterable[int]) -> dict[int, State]:
    """The program that was best by its record after so many trials, by their number; as far as there are so many."""
    inputs, results = ansor.RecordReader(log).read_lines()
    costs = np.array([r.cost if r.ok else np.inf for r in results])
    best = {n: inputs[int(np.argmin(costs[:n]))] for n in counts if n <= len(costs)}
    return {n: ansor.MeasureInput(task, steps=inp.steps).state for n, inp in best.items()}


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
    """Of the logs of each method, the seconds of their best programs after so many trials, all of them in turns."""
    best = {method: [best_states(task, log, counts) for log in logs] for method, logs in files.items()}
    programs = [state for found in best.values() for by_count in found for state in by_count.values()]
    builder, runner = ansor.LocalBuilder(), ansor.LocalRunner()
    try:
        seconds = in_turns(task, programs, builder, runner)
    finally:
        builder.close()
        runner.close()
    return {
        method: [{n: seconds[state.steps] for n, state in by_count.items()} for by_count in found]
        for method, found in best.items()
    }
