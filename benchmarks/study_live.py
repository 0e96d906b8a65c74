"""Runs of `benchmarks.study` on a device: tasks of the paper's figures, searched anew; every run has a log and goes on.

Figure 6: ten operators, four shapes each, at batch 1 and 16.  Figure 7: a convolution of ResNet-50 at batch 16.
Figure 8: two subgraphs.  Figures 9 and 10: networks, whose tasks share the trials by the task scheduler or in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.records.lines import believed_records, workload_of
from relay_lite.tuning.network import load_network
from te_lite.topi.benchmarks import OPERATORS, SHAPES, conv2d_bn_relu, transpose_batch_matmul
from te_lite.topi.benchmarks import conv2d as channels_last

Array = np.ndarray[Any, np.dtype[Any]]
BATCHES = (1, 16)
STRATEGIES = {"TaskScheduler": "gradient", "InTurns": "round-robin"}
LAYER = (7, 7, 512, 512, 3, 1, 1)
SUBGRAPHS: dict[str, Callable[[int], Any]] = {
    "ConvLayer": lambda batch: conv2d_bn_relu(batch, 56, 56, 64, 64, 3, 1, 1),
    "TBG": lambda batch: transpose_batch_matmul(batch, 128, 12, 64),
}


@dataclass(frozen=True)
class Case:
    """Tasks that are searched together, and how often each occurs; one, but for networks."""

    name: str
    tasks: tuple[ansor.SearchTask, ...]
    weights: tuple[float, ...] = (1.0,)


def cases(study: str, target: str, networks: Sequence[str]) -> Iterator[Case]:
    """The cases of a study; they are made when they are asked for."""
    match study:
        case "ablation":
            yield _one("conv2d_b16", channels_last(16, *LAYER), target)
        case "operators":
            for name, shapes in SHAPES.items():
                for k, (_, *shape) in enumerate(shapes):
                    for batch in BATCHES:
                        yield _one(f"{name}{k}_b{batch}", OPERATORS[name](batch, *shape), target)
        case "subgraphs":
            for name, make in SUBGRAPHS.items():
                for batch in BATCHES:
                    yield _one(f"{name}_b{batch}", make(batch), target)
        case _:
            for name in networks:
                found = load_network(name)
                tasks, weights = ansor.extract_tasks(found.graph, found.params, target)
                yield Case(name, tuple(tasks), tuple(map(float, weights)))


def _one(name: str, tensors: Any, target: str) -> Case:
    return Case(name, (ansor.SearchTask(compute_dag=ansor.ComputeDAG([*tensors]), target=target, desc=name),))


def searched(case: Case, make: Callable[[Any, int], Any], seed: int, trials: int, log: Path) -> Array:
    """Seconds of each trial of one search, inf after a failure; a log that is there is continued."""
    missing = trials - len(latencies(log, case))
    if missing > 0:
        options = ansor.TuningOptions(missing, verbose=0, measure_callbacks=[ansor.RecordToFile(log)])
        case.tasks[0].tune(options, make(case.tasks[0], seed))
    return latencies(log, case)[:trials]


def scheduled(case: Case, variant: str, seed: int, trials: int, log: Path) -> Array:
    """The same for the tasks of a network, which share the trials."""
    missing = trials - len(latencies(log, case))
    if missing > 0:
        tuner = ansor.TaskScheduler(case.tasks, case.weights, strategy=STRATEGIES[variant], seed=seed)
        tuner.tune(ansor.TuningOptions(missing, verbose=0, measure_callbacks=[ansor.RecordToFile(log)]))
    return latencies(log, case)[:trials]


def latencies(log: Path, case: Case) -> Array:
    """The weighted sum of the best programs of all tasks after each trial; inf until each has one that ran.

    Of a single task, the seconds of each trial.
    """
    if not log.exists():
        return np.zeros(0)
    best = {workload_of(ansor.MeasureInput(task, task.compute_dag.init_state)): np.inf for task in case.tasks}
    weights = dict(zip(best, case.weights, strict=True))
    out = []
    for inp, res in believed_records(log):
        cost = res.cost if res.ok else np.inf
        best[workload_of(inp)] = min(best[workload_of(inp)], cost)
        out.append(cost if len(best) == 1 else sum(weights[key] * best[key] for key in best))
    return np.array(out)
