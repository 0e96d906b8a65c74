"""The model that comes with the package: trees trained on logs of many tasks, judged on tasks that they never saw.

    python -m benchmarks.shipped_model LOG ... --output ansor_ext/shipped_model/cuda.ubj [--json FILE]

All tasks of the logs with programs enough are learnt together.  First, in turns, the trees learn four fifths of the
computations and are judged on the rest: whole computations are held out, at all their extents and precisions.  Figures
are means over the tasks held out, of the trees, of the analytical model and of both multiplied: the share of pairs in
order, the share of the fastest tenth that is found in the first tenth, and how many times as long as the best program
of the log the first choice takes, and the best of the first 16 (geometric means).

With `--replay` searches are replayed on the tasks of 100 programs or more, rounds of 16, half of the first at random:
how many times as long as the best program of the log the best of 16, 32 and 64 takes, with these trees and without.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ansor.core.errors import TaskError
from ansor.cost_model import AnalyticalModel, Dataset, Trees
from ansor.cost_model.dataset import Samples, stacked
from ansor.cost_model.features import FEATURES
from ansor.cost_model.metrics import pairwise_accuracy, top_k_recall
from ansor.cost_model.trees import train
from ansor.policy.scoring import LEAST_SCORE, WEIGHT_OF_ESTIMATE
from ansor.policy.sketch_policy import PRIOR_TRIALS
from benchmarks import report
from benchmarks.cost_model import Programs, read
from te_lite.errors import require

FOLDS, SEED, FIRST = 5, 43, 16
ROUND, ROUNDS, ENOUGH = 16, 4, 100
COLUMNS = ("pairs in order", "tenth found", "first choice", "best of 16")


@dataclass(frozen=True)
class Task:
    """A task with the features, costs (seconds, inf for a failure) and estimates of its programs."""

    found: Programs
    estimates: np.ndarray

    @property
    def computation(self) -> str:
        """What tells computations apart, whatever their extents."""
        return str(json.loads(self.found.task.compute_dag.workload_key())[0])


def tasks_of(logs: Sequence[str]) -> list[Task]:
    """The tasks of all logs; those of several logs, and of one family of targets, are put together."""
    merged: dict[tuple[str, str], Programs] = {}
    for one in [found for log in logs for found in read(log)]:
        key = (one.task.target.results, one.task.workload_key)
        other = merged.get(key)
        merged[key] = one if other is None else _together(other, one)
    families = {one.task.target.family for one in merged.values()}
    law = "the logs must be of one family of targets"
    require(len(families) == 1, TaskError, "shipped_model", law, got=sorted(families))
    model = AnalyticalModel()
    usable = [one for one in merged.values() if len(set(one.costs)) > 1]
    return [Task(one, model.predict(one.task, [inp.state for inp, _ in one.pairs])) for one in usable]


def _together(a: Programs, b: Programs) -> Programs:
    return Programs(a.task, [*a.rows, *b.rows], np.concatenate([a.costs, b.costs]), [*a.pairs, *b.pairs])


def dataset_of(tasks: Sequence[Task]) -> Dataset:
    """All programs of some tasks."""
    samples = Samples()
    for one in tasks:
        for rows, cost in zip(one.found.rows, one.found.costs, strict=True):
            samples.add(one.found.task, rows, float(cost))
    return samples.dataset()


def trained(tasks: Sequence[Task]) -> Trees:
    """Trees that learnt some tasks."""
    trees = train(dataset_of(tasks), SEED, FEATURES.schema, many=True)
    require(trees is not None, TaskError, "shipped_model", "nothing can be learnt from these logs", tasks=len(tasks))
    assert trees is not None
    return trees


def judged(tasks: Sequence[Task]) -> Iterator[tuple[Task, Trees, np.ndarray]]:
    """Each task with trees that never saw its computation, and the figures: float64 [models, COLUMNS]."""
    computations = sorted({one.computation for one in tasks})
    order = np.random.default_rng(0).permutation(len(computations))
    fold = {c: int(k) % FOLDS for c, k in zip(computations, order, strict=True)}
    for k in range(FOLDS):
        trees = trained([one for one in tasks if fold[one.computation] != k])
        for one in tasks:
            if fold[one.computation] == k:
                scores = _logarithm(trees, stacked(one.found.rows))
                both = scores + WEIGHT_OF_ESTIMATE * one.estimates
                yield one, trees, np.array([_figures(s, one.found.costs) for s in (one.estimates, scores, both)])


def _figures(scores: np.ndarray, costs: np.ndarray) -> list[float]:
    best, order = costs.min(), np.argsort(-scores, kind="stable")
    tenth = max(1, len(costs) // 10)
    return [
        pairwise_accuracy(scores, costs), top_k_recall(scores, costs, tenth), costs[order[0]] / best,
        costs[order[:FIRST]].min() / best,
    ]  # fmt: skip


def means(figures: np.ndarray) -> np.ndarray:
    """float64 [models, COLUMNS] of float64 [tasks, models, COLUMNS]: plain means of shares, geometric ones of ratios.

    A first choice that failed counts as one that takes a thousand times as long.
    """
    shares, ratios = figures[:, :, :2].mean(axis=0), np.minimum(figures[:, :, 2:], 1000.0)
    return np.concatenate([shares, np.exp(np.log(ratios).mean(axis=0))], axis=1)


def replayed(one: Task, known: Trees | None, seed: int) -> list[float]:
    """How many times as long as the best of a log the best of 16, 32 and 64 programs takes, chosen as a search chooses.

    Half of the first round are those that are liked best by the estimates and the trees `known`, if there are any; then
    trees that learn what was measured, going on from these, are asked together with the estimates.
    """
    costs, features, rng = one.found.costs, stacked(one.found.rows), np.random.default_rng(seed)
    seen, best = np.zeros(len(costs), bool), list[float]()
    scores, chance = one.estimates + (0 if known is None else _logarithm(known, features)), ROUND // 2
    for _ in range(ROUNDS):
        order = np.argsort(-np.where(seen, -np.inf, scores), kind="stable")
        seen[order[: ROUND - chance]] = True
        seen[rng.choice(np.flatnonzero(~seen), chance, replace=False)] = True
        best.append(costs[seen].min() / costs.min())
        trees, chance = train(_told(one, seen), SEED, FEATURES.schema, base=known), 1
        weight = PRIOR_TRIALS / (PRIOR_TRIALS + seen.sum())
        scores = weight * one.estimates + (0 if trees is None else _logarithm(trees, features))
    return [best[0], best[1], best[-1]]


def replays(tasks: Sequence[tuple[Task, Trees]]) -> dict[str, list[float]]:
    """The figures of `replayed`, geometric means over tasks and two seeds, printed."""
    found = {}
    for name, with_trees in (("without the trees", False), ("with them", True)):
        ratios = [replayed(one, trees if with_trees else None, seed) for one, trees in tasks for seed in range(2)]
        found[name] = np.exp(np.log(np.array(ratios)).mean(axis=0)).tolist()
    report.table([[name, *row] for name, row in found.items()], [f"{len(tasks)} tasks replayed", "16", "32", "64"])
    return found


def _told(one: Task, seen: np.ndarray) -> Dataset:
    samples = Samples()
    for k in np.flatnonzero(seen):
        samples.add(one.found.task, one.found.rows[k], float(one.found.costs[k]))
    return samples.dataset()


def _logarithm(trees: Trees, features: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(trees.predict(features), LEAST_SCORE))


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("logs", nargs="+", metavar="LOG")
    p.add_argument("--output", metavar="FILE", help="where the trees go, which learnt all tasks")
    p.add_argument("--replay", action="store_true", help="replay searches, too")
    options = p.parse_args()
    tasks = tasks_of(options.logs)
    programs = sum(len(one.found.rows) for one in tasks)
    held_out = list(judged(tasks))
    found = means(np.array([figures for _, _, figures in held_out]))
    names = ("analytical model", "trees", "both")
    title = f"{len(tasks)} tasks, {programs} programs"
    report.table([[name, *row] for name, row in zip(names, found.tolist(), strict=True)], [title, *COLUMNS])
    facts = {
        "logs": [Path(log).name for log in options.logs], "tasks": len(tasks), "programs": programs,
        "computations": len({one.computation for one in tasks}), "columns": COLUMNS,
        "held out": {name: row for name, row in zip(names, found.tolist(), strict=True)},
        "by task": [
            {"task": one.found.task.workload_key, "target": one.found.task.target.results,
             "programs": len(one.found.rows), "both": figures[-1].tolist()}
            for one, _, figures in held_out
        ],
    }  # fmt: skip
    if options.replay:
        facts["replayed"] = replays([(one, trees) for one, trees, _ in held_out if len(one.found.rows) >= ENOUGH])
    if options.output:
        trained(tasks).save(Path(options.output))
        print(f"{options.output}: {Path(options.output).stat().st_size} bytes")
    report.write_json(options.json, facts, "NVIDIA H200" if tasks[0].found.task.target.is_gpu else None)


if __name__ == "__main__":
    report.run(main)
