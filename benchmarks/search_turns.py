"""The best programs of searches, timed anew in turns: of searches side by side each saw another machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import ansor
from ansor.cli.compare import timed_in_turns
from ansor.core.nd import aligned_copy
from ansor.measure.check import poison
from te_lite.reference import random_inputs
from te_lite.step import Step

ROUNDS, SLICE = 7, 0.05


def best_steps(task: ansor.SearchTask, log: Path, counts: Sequence[int]) -> dict[int, tuple[Step, ...]]:
    """The program that was best by its record after so many trials, by their number."""
    inputs, results = ansor.RecordReader(log).read_lines()
    costs = np.array([r.cost if r.ok else np.inf for r in results])
    return {n: inputs[int(np.argmin(costs[:n]))].steps for n in counts if n <= len(costs)}


def in_turns(task: ansor.SearchTask, logs: Sequence[Path], counts: Sequence[int]) -> list[dict[int, float]]:
    """Of each log, the seconds of its best program after so many trials; medians of `ROUNDS` turns on this machine.

    Equal programs are timed once.  Raises MeasureError for a program that cannot be built.
    """
    chosen = [best_steps(task, log, counts) for log in logs]
    tensors = task.compute_dag.tensors
    inputs = random_inputs(tensors, np.random.default_rng(0))
    arrays = [aligned_copy(inputs[t] if t in inputs else poison(t.shape, t.dtype)) for t in tensors]
    runs = {}
    for steps in {s for by_count in chosen for s in by_count.values()}:
        module = ansor.build(ansor.MeasureInput(task, steps=steps).state, tensors, task.target)
        runs[steps] = lambda module=module: module(*arrays)
    names = {str(k): steps for k, steps in enumerate(runs)}
    times = timed_in_turns({name: runs[steps] for name, steps in names.items()}, ROUNDS, SLICE)
    seconds = {names[name]: statistics.median(found) for name, found in times.items()}
    return [{n: seconds[steps] for n, steps in by_count.items()} for by_count in chosen]
