"""Tuning the kernels of a packed network by sketches, each with all that is fused to it.

tasks = kernel_tasks(network.plan.kernels, env.target)
tune_sketches(tasks, "vta.json", trials=64)
with Drafts(), ApplyHistoryBest("vta.json"):
    kernels = DeviceKernels(Device(config))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import ansor
from ansor.core.target.target import Target
from ansor.core.tasks.measure_values import BuildResult, MeasureInput
from ansor.core.tasks.task import SearchTask
from ansor.policy.sketch_policy import SketchPolicy
from ansor.records.lines import load_records
from ansor.records.recorder import RecordToFile
from ansor.scheduler import TaskScheduler
from ansor.sketch import generate_sketches
from te_lite import ComputeDAG

from ..graph.machine_kernel import MachineKernel
from ..graph.tensors import kernel_tensors
from ..measure.played import PlayedRunner
from ..sketch.draft import draft

POPULATION = 512
"""Programs of a generation: the sketches of a kernel have some ten thousand, far fewer than those of a processor."""


def kernel_tasks(kernels: Iterable[MachineKernel], target: Target) -> dict[MachineKernel, SearchTask]:
    """A task for each different kernel that the machine has sketches of."""
    out: dict[MachineKernel, SearchTask] = {}
    for kernel in dict.fromkeys(kernels):
        dag = ComputeDAG(kernel_tensors(kernel))
        if generate_sketches(dag, target):
            out[kernel] = SearchTask(compute_dag=dag, target=target, desc=str(kernel))
    return out


def sketch_policy(task: SearchTask, seed: int, verbose: int = 0) -> SketchPolicy:
    """The search of one task."""
    return SketchPolicy(task, params={"evolutionary_search_population": POPULATION}, seed=seed, verbose=verbose)


def tune_sketches(
    tasks: dict[MachineKernel, SearchTask], weights: dict[MachineKernel, int], log: str | Path, trials: int,
    seed: int = 0, time_limit: float | None = None,
) -> None:  # fmt: skip
    """Measure `trials` programs in all, those of the log not counted, and append them to the log.

    The first one of a task without a record is its draft, so that a record is never worse.  `weights` says how often
    the network runs each kernel.  Raises JournalError for a log that cannot be read or written.
    """
    trials -= _measure_drafts(list(tasks.values()), log, trials)
    there = str(log) if Path(log).exists() else None
    if not trials:
        return
    scheduler = TaskScheduler(list(tasks.values()), [weights[k] for k in tasks], load_log_file=there, seed=seed)
    options = ansor.TuningOptions(
        trials, num_measures_per_round=16, verbose=0, measure_callbacks=[RecordToFile(str(log))], time_limit=time_limit
    )
    scheduler.tune(options, search_policy_params={"evolutionary_search_population": POPULATION})


def _measure_drafts(tasks: Sequence[SearchTask], log: str | Path, most: int) -> int:
    """Append the drafts of tasks that have no record; gives their number."""
    known = {inp.task.workload_key for inp, _ in load_records(str(log))} if Path(log).exists() else set()
    fresh = [task for task in tasks if task.workload_key not in known][:most]
    recorder, runner = RecordToFile(str(log)), PlayedRunner()
    recorder.check(fresh)
    for task in fresh:
        inp = MeasureInput(task, draft(task.compute_dag, task.target))
        recorder.callback(None, [inp], [runner.run(inp, BuildResult("", (), 0, "", 0.0))])
    return len(fresh)
