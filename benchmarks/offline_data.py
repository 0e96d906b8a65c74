"""Measure many programs of a few tasks, slow ones and fast ones, for searches without a device (`data/`).

    python -m benchmarks.offline_data --target c|cuda --log DIR [--tasks NAME ...] [--programs 1500] [--time-limit S]

Every task has a log in DIR, `TARGET_TASK.json`.  Of a large task `--programs` distinct programs are measured, in
rounds: half of each is drawn at random from all sketches, the other half comes from evolution under a model that learns
from the rounds before (with the neighbours of the best, when a round brought nothing better), so that the fast end is
dense and the slow end is there.  Of a small task every program of Ansor's rules is measured, in a random order.  Rounds
of the tasks take turns, so that all logs are equally long whenever a run ends; started again, it goes on.

Each program is checked, and timed once, for `--milliseconds`: figures of two runs differ by a few per cent.

With `--networks` the tasks are those of networks, channels last, `--most` of each, spread evenly over what is not too
large: logs for `benchmarks.shipped_model`.  `--part K/N` takes every N-th task, from the K-th on.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.core.tasks.catalog import CATALOG
from ansor.evolve.neighbours import neighbours
from ansor.evolve.selection import Row
from ansor.measure.batch import Batch
from ansor.measure.pipeline import alone
from ansor.policy.proposals import Proposals
from ansor.policy.search_loop import begin_round, end_round
from ansor.space.duplicates import program_text
from ansor.space.spaces import mutate_place
from benchmarks import report
from benchmarks.workloads.layers import layer_norm
from relay_lite.tuning.network import load_network
from te_lite.schedule.state import State

RANDOM_SHARE = 0.5
ROUND = 100
MOST_FLOPS, MOST_ELEMENTS = 1.2e9, 16e6
PLACES = 8
"""Draws of other places for the stages of each program that is found: its structure is one of a few."""


Make = Callable[[str, str], ansor.SearchTask]
"""From a target and a name to a task."""


@dataclass(frozen=True)
class Kind:
    """How a task is made; of a `small` one all programs of Ansor's rules are measured."""

    make: Make
    small: bool = False


def known(name: str, *shape: int) -> Make:
    """A workload of the catalogue."""
    return lambda target, desc: ansor.SearchTask(workload_key=CATALOG[name].key(shape), target=target, desc=desc)


def layer_norm_task(target: str, desc: str) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=ansor.ComputeDAG(layer_norm(128, 768)), target=target, desc=desc)


TASKS = {
    "conv2d_3x3": Kind(known("conv2d", 1, 14, 14, 256, 256, 3, 1, 1)),
    "conv2d_1x1": Kind(known("conv2d", 1, 28, 28, 512, 128, 1, 1, 0)),
    "depthwise": Kind(known("depthwise_conv2d", 1, 56, 56, 144, 3, 1, 1)),
    "matmul": Kind(known("matmul", 512, 512, 512)),
    "batch_matmul": Kind(known("batch_matmul", 12, 128, 128, 64)),
    "dense": Kind(known("dense", 16, 1000, 2048)),
    "softmax": Kind(known("softmax", 1536, 128)),
    "layer_norm": Kind(layer_norm_task),
    "small_norm": Kind(known("norm", 1, 64, 64), small=True),
    "small_softmax": Kind(known("softmax", 64, 64), small=True),
}


def of_networks(names: Sequence[str], target: str, most: int) -> dict[str, Kind]:
    """Tasks of networks, `most` of each, each once, without those that take long to measure."""
    found: dict[str, tuple[str, ansor.SearchTask]] = {}
    for name in names:
        network = load_network(name, 1, "NHWC")
        tasks, _ = ansor.extract_tasks(network.graph, network.params, target)
        usable = [task for task in tasks if not _is_large(task)]
        for k, task in enumerate(usable[:: -(-len(usable) // most)]):
            found.setdefault(task.workload_key, (f"{name}_{k}", task))
    return {name: Kind(_given(task)) for name, task in found.values()}


def _given(task: ansor.SearchTask) -> Make:
    return lambda target, desc: task


def _is_large(task: ansor.SearchTask) -> bool:
    dag = task.compute_dag
    return dag.flop_ct > MOST_FLOPS or sum(prod(t.shape) for t in dag.tensors) > MOST_ELEMENTS


# ------------------------------------------------------------------------------------------- small tasks


def every_program(proposals: Proposals) -> Iterator[State]:
    """The programs of all sketches: random ones while new ones come, then whatever is one decision from one of them."""
    waiting: deque[Row] = deque()
    while found := proposals.random(ROUND):
        waiting += [row for _, row in found]
        yield from [state for state, _ in found]
    while waiting:
        variant, row = waiting.popleft()
        others = {place for _ in range(PLACES) if (place := mutate_place(variant, proposals.rng)) is not None}
        near = [*[(variant, other) for other in neighbours(variant.space, row)], *[(place, row) for place in others]]
        found = proposals.take(near, len(near))
        waiting += [row for _, row in found]
        yield from [state for state, _ in found]


class Everything:
    """A policy that asks for every program of Ansor's rules that is not `known`, in a random order."""

    def __init__(self, policy: ansor.SketchPolicy, known: Sequence[State]) -> None:
        texts = {program_text(state) for state in known}
        found = [state for state in every_program(policy.proposals) if program_text(state) not in texts]
        self.states = deque([found[k] for k in policy.rng.permutation(len(found))])

    def ask(self, n: int) -> list[State]:
        return [self.states.popleft() for _ in range(min(n, len(self.states)))]

    def tell(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]) -> None:
        """Nothing is learnt."""


# ---------------------------------------------------------------------------------------------- one task


class Collection:
    """A task, its log, and the policy that says what is measured next."""

    def __init__(self, name: str, kind: Kind, options: argparse.Namespace) -> None:
        target = options.target
        self.name, self.round = name, options.round
        self.task = kind.make(target, name)
        self.log = Path(options.log) / f"{target.split()[0]}_{name}.json"
        records = list(ansor.load_records(self.log)) if self.log.exists() else []
        self.count, self.most = len(records), options.programs
        params = {"extra_sketch_rules": ""} if kind.small else {"eps_greedy": RANDOM_SHARE}
        model = ansor.RandomModel(options.seed) if kind.small else ansor.XGBModel(seed=options.seed)
        policy = ansor.SketchPolicy(self.task, model, params, seed=options.seed, verbose=0)
        self.policy: Any = policy
        if kind.small:
            self.policy = Everything(policy, [inp.state for inp, _ in records])
            self.most = self.count + len(self.policy.states)
        else:
            policy.continue_from(self.log, records)

    def begin(self, measurer: ansor.ProgramMeasurer) -> Batch:
        """A round of at most `ROUND` programs."""
        batch = begin_round(self.policy, self.task, min(self.round, self.most - self.count), measurer)
        self.count = self.count + len(batch.inputs) if batch.inputs else self.most
        return batch

    def said(self) -> list[Any]:
        """What the log holds: name, programs, failures, and the best, the median and the slowest in us."""
        results = [result for _, result in ansor.load_records(self.log)]
        costs = 1e6 * np.array([result.cost for result in results if result.ok])
        figures = [float(q) for q in np.quantile(costs, (0, 0.5, 1))] if len(costs) else [np.nan] * 3
        return [self.name, len(results), sum(not result.ok for result in results), *figures]


class Log:
    """A measure callback that puts each record into the log of its task."""

    def __init__(self, tasks: Sequence[Collection]) -> None:
        self.files = {one.task.workload_key: ansor.RecordToFile(one.log) for one in tasks}

    def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            self.files[inp.task.workload_key].callback(policy, [inp], [result])


def collect(tasks: Sequence[Collection], measurer: ansor.ProgramMeasurer, until: float) -> None:
    """Rounds of the tasks in turns, the next one chosen and built while one runs where that disturbs nobody."""
    pending: deque[tuple[Collection, Batch]] = deque()
    ahead = 0 if alone(tasks[0].task, measurer.runner) else 1
    while time.monotonic() < until and (open_tasks := [one for one in tasks if one.count < one.most]):
        for one in open_tasks:
            if time.monotonic() < until:
                pending.append((one, one.begin(measurer)))
            while len(pending) > ahead:
                finish(*pending.popleft(), measurer)
    for one, batch in pending:
        finish(one, batch, measurer)


def finish(one: Collection, batch: Batch, measurer: ansor.ProgramMeasurer) -> None:
    end_round(one.policy, batch, measurer)
    if batch.inputs:
        print(f"{one.name}: {one.count} of {one.most} programs", flush=True)


# ------------------------------------------------------------------------------------------- the program


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("--target", default="c")
    p.add_argument("--log", required=True, help="the folder of the logs")
    p.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    p.add_argument("--networks", nargs="+", default=[], metavar="NAME", help="their tasks in place of --tasks")
    p.add_argument("--most", type=int, default=8, help="tasks of a network")
    p.add_argument("--part", default="0/1", metavar="K/N", help="every N-th task, from the K-th on")
    p.add_argument("--round", type=int, default=ROUND, help="programs of a round")
    p.add_argument("--programs", type=int, default=1500, help="of each large task, those in its log counted")
    p.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which nothing is begun")
    p.add_argument("--milliseconds", type=int, default=5, help="how long a program is timed")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main() -> None:
    options = arguments()
    start = time.monotonic()
    device = report.gpu("--target c") if options.target.split()[0] == "cuda" else None
    Path(options.log).mkdir(parents=True, exist_ok=True)
    networks = of_networks(options.networks, options.target, options.most)
    kinds = networks or {name: TASKS[name] for name in options.tasks}
    k, n = map(int, options.part.split("/"))
    tasks = [Collection(name, kind, options) for name, kind in list(kinds.items())[k::n]]
    builder = ansor.LocalBuilder()
    runner = ansor.LocalRunner(timeout=5, number=1, min_repeat_ms=options.milliseconds)
    measurer = ansor.ProgramMeasurer(builder, runner, [Log(tasks)], verbose=0)
    measurer.limited(options.time_limit if options.time_limit < float("inf") else None)
    try:
        collect(tasks, measurer, start + options.time_limit)
    finally:
        builder.close()
        runner.close()
    rows = [one.said() for one in tasks if one.log.exists()]
    report.table(rows, ["task", "programs", "failed", "best us", "median us", "slowest us"])
    report.write_json(options.json, {"tasks": rows, "seconds": time.monotonic() - start}, device)


if __name__ == "__main__":
    report.run(main)
