"""Runs of `benchmarks.study` on a device: tasks of the paper's figures, searched anew; every run has a log and goes on.

Figure 6: ten operators, four shapes each, at batch 1 and 16.  Figure 7: a convolution of ResNet-50 at batch 16.
Figure 8: two subgraphs.  Figures 9 and 10: networks, whose tasks share the trials by the task scheduler or in turns.
On a GPU a program may use what the device has, as in the commands that tune.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.core.device.backend import on_device
from ansor.core.errors import TaskError
from ansor.core.target.target import Target
from ansor.records.lines import validated_records, workload_of
from benchmarks.workloads import OPERATORS, SHAPES
from relay_lite.tuning.network import load_network
from relay_lite.tuning.tune_network import per_round
from te_lite.errors import require

Array = np.ndarray[Any, np.dtype[Any]]
BATCHES = (1, 16)
STRATEGIES = {"TaskScheduler": "gradient", "InTurns": "round-robin"}
TEN = ("C1D", "C2D", "C3D", "GMM", "GRP", "DIL", "DEP", "T2D", "CAP", "NRM")
LAYER = (7, 7, 512, 512, 3, 1, 1)
SUBGRAPHS = {"ConvLayer": ("CBR", (56, 56, 64, 64, 3, 1, 1)), "TBG": ("TBG", (128, 12, 64))}


@dataclass(frozen=True)
class Case:
    """Tasks that are searched together, and how often each occurs; but for networks one, an operator by its name in
    `benchmarks.workloads` and its arguments."""

    name: str
    tasks: tuple[ansor.SearchTask, ...]
    weights: tuple[float, ...] = (1.0,)
    operator: str = ""
    args: tuple[int, ...] = ()


def operators_of(study: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The operators of a study, and their arguments: `C2D0_b16` is the first shape of C2D at batch 16."""
    match study:
        case "ablation":
            return {"C2D3_b16": ("C2D", (16, *LAYER))}
        case "operators":
            shapes = [(name, k, shape) for name in TEN for k, (_, *shape) in enumerate(SHAPES[name])]
            return {f"{name}{k}_b{batch}": (name, (batch, *shape)) for name, k, shape in shapes for batch in BATCHES}
        case _:
            of = SUBGRAPHS.items()
            return {f"{name}_b{batch}": (op, (batch, *shape)) for name, (op, shape) in of for batch in BATCHES}


def cases(study: str, target: str, networks: Sequence[str], patterns: Sequence[str]) -> list[Case]:
    """The cases of a study whose names fit one of some patterns.  Raises TaskError where a pattern fits none."""
    if study == "networks":
        return [_network(name, target) for name in networks]
    known = operators_of(study)
    for pattern in patterns:
        law = f"fits no case of {study}, which are {', '.join(known)}"
        require(fnmatch.filter(known, pattern), TaskError, f"--cases {pattern!r}", law)
    chosen = dict.fromkeys(name for pattern in patterns for name in fnmatch.filter(known, pattern))
    return [_single(name, *known[name], target) for name in chosen]


def _single(name: str, operator: str, args: tuple[int, ...], target: str) -> Case:
    hardware = ansor.HardwareParams.from_device(target) if target == "cuda" else None
    dag = ansor.ComputeDAG(OPERATORS[operator](*args))
    task = ansor.SearchTask(compute_dag=dag, target=on_device(Target(target)), hardware_params=hardware, desc=name)
    return Case(name, (task,), operator=operator, args=args)


def _network(name: str, target: str) -> Case:
    found = load_network(name)
    tasks, weights = ansor.extract_tasks(found.graph, found.params, target)
    return Case(name, tuple(tasks), tuple(map(float, weights)))


@dataclass(frozen=True)
class Run:
    """A search of a case: `trials` in all, those in its log counted; a run ends early after so many seconds."""

    case: Case
    seed: int
    trials: int
    log: Path
    seconds: float | None
    builder: Any
    runner: Any

    def options(self, per_round: int) -> ansor.TuningOptions:
        """Of what the log lacks."""
        return ansor.TuningOptions(
            self.trials - len(latencies(self.log, self.case)), num_measures_per_round=per_round, verbose=0,
            builder=self.builder, runner=self.runner, measure_callbacks=[ansor.RecordToFile(self.log)],
            time_limit=self.seconds,
        )  # fmt: skip


def searched(run: Run, make: Callable[[Any, int], Any]) -> bool:
    """Go on with the search of a single task; whether it ended since its policy knows no more programs."""
    (task,) = run.case.tasks
    policy = make(task, run.seed)
    task.tune(run.options(64), policy)
    return not policy.ask(1)


def scheduled(run: Run, strategy: str) -> bool:
    """Go on with the search of a network, whose tasks share the trials; no such search ends of itself."""
    case = run.case
    tuner = ansor.TaskScheduler(case.tasks, case.weights, strategy=STRATEGIES[strategy], seed=run.seed, callbacks=[])
    tuner.tune(run.options(per_round(run.trials, len(case.tasks))))
    return False


def latencies(log: Path, case: Case) -> Array:
    """The weighted sum of the best programs of all tasks after each trial; inf until each has one that ran.

    Of a single task, the seconds of each trial.
    """
    if not log.exists():
        return np.zeros(0)
    best = {workload_of(ansor.MeasureInput(task, task.compute_dag.init_state)): np.inf for task in case.tasks}
    weights = dict(zip(best, case.weights, strict=True))
    out = []
    for inp, res in validated_records(log):
        cost = res.cost if res.ok else np.inf
        best[workload_of(inp)] = min(best[workload_of(inp)], cost)
        out.append(cost if len(best) == 1 else sum(weights[key] * best[key] for key in best))
    return np.array(out)
