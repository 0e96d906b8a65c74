"""How good a program is at once: after 0, 16 and 64 trials beside the best of 512, on tasks that no model learnt.

    python -m benchmarks.at_once --log FOLDER [--target cuda|c] [--network NAME] [--part 0/2] [--trials 64]
        [--reference 512] [--seeds 2] [--knows NAME ...] [--store LOG ...] [--models FOLDER] [--time-limit S] [--json F]

The tasks are `HELD_OUT`, or those of a network (`--network`).  `--learnt` names the file with the tasks that the model
of the package was trained on; where one of them is among the tasks, the run is refused, but for a network's.  Each task
is searched with every seed, in rounds of 16 as `--effort quick` does, by a search that `--knows`

all         what the package knows: its trees, and programs of similar tasks from a store
model       the trees alone
similar     similar tasks alone
nothing     neither

The store holds what `--store` names (logs), without the task's own programs.  The reference is one search of another
seed that knows all, over `--reference` trials (0: the best program of all searches).  Without any trial there are the
`default` schedule, which a network is compiled with, and the `choice` of a search.

Every search has a log in the folder and goes on from it.  In the end the best programs of a task are built anew and
timed in turns; those figures are what is compared, in geometric means over tasks and seeds.

Limits on a GPU: 1.6 without trials, 1.2 after 16, 1.06 after 64; on a CPU 1.5 and 1.15.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

import ansor
from ansor.core.errors import TaskError
from ansor.policy.default_schedule import default_states
from ansor.records.lines import validated_records
from ansor.records.store import OFF, place_of
from ansor.records.store_files import take_in
from ansor_ext.shipped_model import trees as shipped_trees
from benchmarks import operator_rows, report
from benchmarks.search_turns import RACE, in_turns
from relay_lite.tuning.network import load_network
from te_lite import ComputeDAG
from te_lite.errors import require
from te_lite.schedule.state import State

HELD_OUT: Mapping[str, Sequence[str]] = {
    "mobilenet": (
        "1x112x112x32 3x3x32x1", "1x56x56x64 1x1x64x128", "1x14x14x512 1x1x512x512", "1x7x7x1024 3x3x1024x1",
    ),
    "squeezenet_v1.1": (
        "1x224x224x3 3x3x3x64", "1x13x13x64 4x4x256x64", "1x13x13x64 6x6x256x64", "1x13x13x512 1x1x512x1000",
    ),
    "inception_v3": (
        "1x35x35x48 5x5x48x64", "1x35x35x288 3x3x288x384", "1x17x17x128 7x1x128x192", "1x8x8x2048 1x1x2048x320",
    ),
    "operators": ("softmax 2048x768", "dense 16x4096x4096", "matmul 127x509x1021"),
}  # fmt: skip
"""By network: the data and the weight of convolutions; of the last, rows of `benchmarks.operators`."""
LEARNT = {"cuda": "shipped_model_h200.json", "c": "shipped_model_c.json"}
ROUND, SHOWN, FASTEST = 16, (16, 64), 3
LIMITS = {"cuda": {0: 1.6, 16: 1.2, 64: 1.06}, "c": {0: 1.5, 16: 1.15}}


@dataclass(frozen=True)
class Knows:
    """What a search begins with."""

    shipped: bool
    similar: bool


KNOWS = {
    "all": Knows(True, True), "model": Knows(True, False), "similar": Knows(False, True), "nothing": Knows(False, False)
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- the tasks


def held_out(target: str) -> Iterator[ansor.SearchTask]:
    """The tasks of `HELD_OUT`, those that the target has."""
    for name, wanted in HELD_OUT.items():
        if name == "operators":
            for text in wanted:
                tensors = operator_rows.Row(text, name, {}).tensors()
                yield ansor.SearchTask(compute_dag=ComputeDAG(tensors), target=target, desc=text)
            continue
        for task in network_tasks(name, target):
            if sizes_of(task) in wanted:
                yield task


def network_tasks(name: str, target: str) -> list[ansor.SearchTask]:
    """The tasks of a network, channels last."""
    network = load_network(name, 1, "NHWC")
    return list(ansor.extract_tasks(network.graph, network.params, target)[0])


def sizes_of(task: ansor.SearchTask) -> str:
    """The shapes of the first two tensors of a task."""
    return " ".join("x".join(map(str, t.shape)) for t in task.compute_dag.tensors[:2])


def require_unseen(tasks: Sequence[ansor.SearchTask], learnt: Path) -> None:
    """Raise TaskError where one of the tasks is among those that a file of `benchmarks.shipped_model` lists."""
    seen = {one["task"] for one in json.loads(learnt.read_text())["figures"]["by task"]}
    known = [task.desc for task in tasks if task.compute_dag.workload_key() in seen or task.workload_key in seen]
    require(not known, TaskError, str(learnt), "the model was trained on tasks that are to be held out", tasks=known)


# ------------------------------------------------------------------------------------------------ the searches


@dataclass(frozen=True)
class Bench:
    """What all searches share; `stored` is a folder of records, `models` one of trees, `until` by `time.monotonic`."""

    options: argparse.Namespace
    builder: ansor.LocalBuilder
    runner: ansor.LocalRunner
    stored: Path
    models: Path
    until: float

    def log_of(self, name: str, knows: str, seed: int) -> Path:
        return Path(self.options.log) / f"{name}_{self.options.target}_{knows}_{seed}.json"

    @contextmanager
    def knowing(self, knows: Knows, task: ansor.SearchTask) -> Iterator[None]:
        """Within, a search of a task begins with so much."""
        with tempfile.TemporaryDirectory() as folder:
            store, nothing = Path(folder) / "store", Path(folder)
            if knows.similar:
                shutil.copytree(self.stored, store)
                own = place_of(task.compute_dag, task.target, task.layout_rewrite_option).folder
                shutil.rmtree(store / own, ignore_errors=True)
            cache = {"ANSOR_CACHE": str(store) if knows.similar else OFF, "XDG_DATA_DIRS": os.fspath(nothing)}
            trees = self.models if knows.shipped else nothing
            with mock.patch.dict(os.environ, cache), mock.patch.object(shipped_trees, "FOLDER", trees):
                yield

    def policy(self, task: ansor.SearchTask, knows: Knows, seed: int) -> ansor.SketchPolicy:
        model = ansor.XGBModel(seed=seed, shipped=knows.shipped)
        return ansor.SketchPolicy(task, model, seed=seed, verbose=0)

    def searched(self, task: ansor.SearchTask, name: str, knows: str, seed: int, trials: int) -> Path:
        """The log of a search, with so many trials."""
        log = self.log_of(name, knows, seed)
        missing = trials - (sum(1 for _ in validated_records(log)) if log.exists() else 0)
        if missing > 0:
            begun = time.monotonic()
            with self.knowing(KNOWS[knows], task):
                options = ansor.TuningOptions(
                    missing, num_measures_per_round=ROUND, verbose=0, builder=self.builder, runner=self.runner,
                    measure_callbacks=[ansor.RecordToFile(log)],
                )  # fmt: skip
                task.tune(options, self.policy(task, KNOWS[knows], seed))
            print(f"  {log.stem}: {missing} trials in {time.monotonic() - begun:.1f} s", flush=True)
        return log

    def unmeasured(self, task: ansor.SearchTask, knows: str) -> dict[str, State]:
        """The programs that are taken without a trial."""
        with self.knowing(KNOWS[knows], task):
            choice = self.policy(task, KNOWS[knows], 0).choice()
            return {"default": next(default_states(task)), **({} if choice is None else {"choice": choice})}


def best_after(task: ansor.SearchTask, log: Path, trials: int) -> list[State]:
    """The best few programs of the first trials of a log, best first."""
    first = sorted(
        [pair for pair in islice(validated_records(log), trials) if pair[1].ok], key=lambda pair: pair[1].cost
    )
    return [ansor.MeasureInput(task, steps=inp.steps).state for inp, _ in first[:FASTEST]]


def compared(bench: Bench, task: ansor.SearchTask, name: str) -> dict[str, Any]:
    """What each search of a task found, beside the reference: times as long, by `KNOWS`, trials and seed.

    The default schedule counts as one of the programs of a search, as it does for users.
    """
    options, states = bench.options, dict[str, list[State]]()
    if options.reference:
        log = bench.searched(task, name, "all", options.seeds, options.reference)
        states["reference"] = best_after(task, log, options.reference)
    for knows in options.knows:
        unmeasured = bench.unmeasured(task, knows)
        states |= {f"{knows} {which} 0": [state] for which, state in unmeasured.items()}
        for seed in range(options.seeds):
            log = bench.searched(task, name, knows, seed, options.trials)
            for trials in [n for n in SHOWN if n <= options.trials]:
                states[f"{knows} {trials} {seed}"] = [unmeasured["default"], *best_after(task, log, trials)]
    programs = [state for found in states.values() for state in found]
    figures = in_turns(task, programs, bench.builder, bench.runner, RACE)
    medians = {steps: median(found) if found else math.inf for steps, found in figures.items()}
    seconds = {which: min([medians[state.steps] for state in found]) for which, found in states.items()}
    least = seconds.get("reference", min(seconds.values()))
    return {
        "task": task.compute_dag.workload_key(), "sizes": sizes_of(task), "reference_us": 1e6 * least,
        "times_as_long": {which: took / least for which, took in seconds.items()},
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- the program


def means(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric means over tasks and seeds, by what is known and the trials; a failure counts as 1,000."""
    logs: dict[str, dict[str, list[float]]] = {}
    for one in found:
        for which, ratio in one["times_as_long"].items():
            knows, *column = which.split(" ")
            if column:
                logs.setdefault(knows, {}).setdefault(column[0], []).append(np.log(min(ratio, 1000.0)))
    return {knows: {c: float(np.exp(np.mean(v))) for c, v in row.items()} for knows, row in logs.items()}


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("--log", required=True, help="the folder of the searches")
    p.add_argument("--target", default="cuda", choices=sorted(LIMITS))
    p.add_argument("--network", help="its tasks in place of those held out")
    p.add_argument("--part", default="0/1", metavar="K/N", help="every N-th task, from the K-th on")
    p.add_argument("--trials", type=int, default=max(SHOWN))
    p.add_argument("--reference", type=int, default=512)
    p.add_argument("--seeds", type=int, default=2)
    p.add_argument("--knows", nargs="+", choices=list(KNOWS), default=list(KNOWS))
    p.add_argument("--store", nargs="*", default=[], type=report.path_to_read, metavar="LOG")
    p.add_argument(
        "--models", type=Path, default=shipped_trees.FOLDER, help="a folder of trees (default: the package's)"
    )
    p.add_argument("--learnt", type=Path, help="the JSON file of the training (default: that of the package's trees)")
    p.add_argument("--time-limit", type=float, metavar="S", default=float("inf"), help="begin no task after so long")
    return p.parse_args()


def chosen_tasks(options: argparse.Namespace) -> list[ansor.SearchTask]:
    """The tasks of this run."""
    if options.network is None:
        tasks = list(held_out(options.target))
        learnt = options.learnt or Path(__file__).parent / "results" / LEARNT[options.target]
        if options.learnt or learnt.exists():
            require_unseen(tasks, learnt)
    else:
        tasks = network_tasks(options.network, options.target)
    k, n = map(int, options.part.split("/"))
    return tasks[k::n]


def main() -> None:
    start, options = time.monotonic(), arguments()
    device = report.gpu("--target c") if options.target == "cuda" else None
    tasks = chosen_tasks(options)
    Path(options.log).mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.dict(os.environ, {"ANSOR_CACHE": folder}):
            stored = sum(sum(take_in(log).values()) for log in options.store)
        print(f"{len(tasks)} tasks; {stored} programs of other tasks in the store", flush=True)
        builder, runner = ansor.LocalBuilder(), ansor.LocalRunner()
        bench = Bench(options, builder, runner, Path(folder), options.models, start + options.time_limit)
        try:
            for task in tasks:
                if time.monotonic() > bench.until:
                    print(f"{len(tasks) - len(found)} tasks were not begun, the time is up")
                    break
                found.append(compared(bench, task, sizes_of(task).replace(" ", "_")))
                print(json.dumps(found[-1]), flush=True)
                report.write_json(options.json, figures_of(options, found, stored), device)
        finally:
            builder.close()
            runner.close()
    columns = ["default", "choice", *[str(n) for n in SHOWN if n <= options.trials]]
    rows = [[knows, *[row.get(c, "") for c in columns]] for knows, row in means(found).items()]
    limits = LIMITS[options.target]
    report.table(rows, [f"{len(found)} tasks", *columns])
    print(f"limits: {limits}")


def figures_of(options: argparse.Namespace, found: Sequence[Mapping[str, Any]], stored: int) -> dict[str, Any]:
    """What the JSON file says."""
    return {
        "target": options.target, "trials": options.trials, "reference": options.reference, "seeds": options.seeds,
        "store": [Path(log).name for log in options.store], "stored": stored, "means": means(found), "tasks": found,
    }  # fmt: skip


if __name__ == "__main__":
    report.run(main)
