"""How good the best program is after how many trials and seconds, for searches that know more and more.

    python -m benchmarks.search_quality --logs DIR [--target c|cuda] [--workloads NAME ...] [--methods NAME ...]
        [--trials 256] [--long-trials 1024] [--seeds 3] [--first-seed 0] [--figures DIR] [--json FILE]
        [--runner analytical] [--in-turns]

random      programs drawn at random
blind       evolution that scores at random: the measured programs are parents, nothing tells children apart
analytical  evolution under the analytical model; nothing is learnt
model       evolution under the learning model, whose scores are random until 100 programs are known (TVM's search)
draft       the analytical model until the learning one is ready: what the policy does on its own

Every run has a log of its own in DIR, and beside it the seconds of each trial.  Runs that are there are read, runs that
were stopped go on.  With `--long-trials` those of `draft` go on to as many.  With `--in-turns` each run ends as a
search does, with its finalists timed again in turns, and what they give is timed once more, all that of a task in turns
(`search_turns.py`); these times count.  On the CPU and with PyTorch at hand, the best programs of the last method after
`--compare-at` trials are timed anew, in turns with PyTorch's operator, for the tasks of `LIMITS`.  `--runner
analytical` tries the benchmark out without compiling anything: the estimates of the analytical model take the place of
times.

Criteria on two CPU cores: `blind` and `model` are never worse than `random` at the trials of `GAINS`, and `draft` is
better by those gains, in the geometric mean of the six tasks (medians over the seeds); after 64 trials a run of `draft`
is within `NEAR` of the best that it finds in the end (the median of the seeds, each task); after 128 trials the times
of `LIMITS` relative to PyTorch's, in a quarter of TVM's wall clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.compare import timed_in_turns
from ansor.core.device.nd import aligned_copy
from ansor.core.tasks.catalog import CATALOG
from ansor.cost_model.prior import AnalyticalModel
from ansor.offline.analytical import AnalyticalRunner
from ansor.records.journal import append_lines, scan_lines
from benchmarks import plots, pytorch, report
from benchmarks.search_turns import best_states, timed_again
from te_lite.meaning.reference import random_inputs
from te_lite.schedule.state import State

WORKLOADS = {
    "conv2d_layer": ("conv2d", (1, 7, 7, 512, 512, 3, 1, 1)),
    "matmul_1024": ("matmul", (1024, 1024, 1024)),
    "conv2d_56": ("conv2d", (1, 56, 56, 64, 64, 3, 1, 1)),
    "conv2d_1x1": ("conv2d", (1, 14, 14, 256, 1024, 1, 1, 0)),
    "depthwise_56": ("depthwise_conv2d", (1, 56, 56, 144, 3, 1, 1)),
    "dense_768": ("dense", (128, 3072, 768)),
}
GAINS = {16: 1.25, 64: 1.2, 256: 1.1}
NEAR = 1.05
LIMITS = {"conv2d_layer": 2.75, "matmul_1024": 1.29, "conv2d_56": 2.43}
TVM_SECONDS = {"conv2d_layer": 292.0, "matmul_1024": 540.0, "conv2d_56": 331.0}
TVM_TRIALS = 128
SLICE = 0.3
SHOWN = (16, 32, 64, 128, 256, 512, 1024)


class BlindModel(ansor.PythonBasedModel):
    """Scores at random.  Unlike with a `RandomModel`, which turns evolution off, the policy breeds under it."""

    reads_features = True

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def update(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]) -> None:
        """Nothing is learnt."""

    def predict(self, task: ansor.SearchTask, states: Sequence[State]) -> np.ndarray:
        return self._rng.random(len(states))

    def predict_features(self, task: ansor.SearchTask, features: np.ndarray) -> np.ndarray:
        return self._rng.random(len(features))


class UndraftedModel(ansor.XGBModel):
    """An `XGBModel` that nobody stands in for while its scores are random."""

    ready = True


METHODS: dict[str, Callable[[int], Any]] = {
    "random": lambda seed: ansor.RandomModel(seed),
    "blind": lambda seed: BlindModel(seed),
    "analytical": lambda seed: AnalyticalModel(),
    "model": lambda seed: UndraftedModel(seed=seed),
    "draft": lambda seed: ansor.XGBModel(seed=seed),
}


# ------------------------------------------------------------------------------------------------ one run


@dataclass(frozen=True)
class Run:
    """The trials of a search in order: `costs` (inf after a failure) and `elapsed` since its start, seconds [n].

    `again` are seconds of the best programs after so many trials, timed anew.
    """

    costs: np.ndarray
    elapsed: np.ndarray
    again: Mapping[int, float] = field(default_factory=dict)

    def best(self, trials: int) -> float:
        """The least cost of the first `trials` trials."""
        return self.again[trials] if trials in self.again else float(self.costs[:trials].min(initial=np.inf))

    def best_by(self, seconds: np.ndarray) -> np.ndarray:
        """The least cost within so many seconds."""
        best = np.concatenate([[np.inf], np.minimum.accumulate(self.costs)])
        return best[np.searchsorted(self.elapsed, seconds, side="right")]


class Clock:
    """A measure callback that writes down the seconds of a search, those of the runs before it included."""

    def __init__(self, file: Path, before: float) -> None:
        self.file, self.before, self.start = file, before, time.perf_counter()

    def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        elapsed = round(self.before + time.perf_counter() - self.start, 3)
        append_lines(self.file, [json.dumps({"seconds": elapsed})] * len(results))


def read(log: Path) -> Run:
    """What a log holds; empty when there is none.  A trial that was stopped before its seconds were written has those
    of the one before."""
    if not log.exists():
        return Run(np.empty(0), np.empty(0))
    _, results = ansor.RecordReader(log).read_lines()
    clock = clock_of(log)
    lines = [line for _, line in scan_lines(clock)] if clock.exists() else []
    seconds = [json.loads(line)["seconds"] for line in lines if line][: len(results)]
    seconds += [seconds[-1] if seconds else 0.0] * (len(results) - len(seconds))
    return Run(np.array([r.cost if r.ok else np.inf for r in results]), np.array(seconds, np.float64))


def clock_of(log: Path) -> Path:
    """Where the seconds of the trials of a log are."""
    return log.with_suffix(".seconds")


def trials_of(method: str, options: argparse.Namespace) -> int:
    """How many trials a run has."""
    return max(options.trials, options.long_trials) if method == "draft" else int(options.trials)


def complete(task: ansor.SearchTask, method: str, seed: int, log: Path, options: argparse.Namespace) -> Run:
    """Search until the log has all trials, and read it."""
    run, trials = read(log), trials_of(method, options)
    missing = trials - len(run.costs)
    if missing > 0:
        append_missing(clock_of(log), run)
        clock = Clock(clock_of(log), run.elapsed[-1] if len(run.elapsed) else 0.0)
        model = METHODS[method](seed)
        callbacks = []
        if len(run.costs):
            callbacks.append(ansor.PreloadMeasuredStates(log))
            model.update(*ansor.RecordReader(log).read_lines())
        policy = ansor.SketchPolicy(task, model, seed=seed, verbose=0, init_search_callbacks=callbacks)
        task.tune(tuning(missing, [ansor.RecordToFile(log), clock], options), policy)
        run = read(log)
    return Run(run.costs[:trials], run.elapsed[:trials])


def append_missing(file: Path, run: Run) -> None:
    """Give every trial of a stopped run its line of seconds."""
    written = sum(1 for _ in scan_lines(file)) if file.exists() else 0
    if written < len(run.elapsed):
        append_lines(file, [json.dumps({"seconds": s}) for s in run.elapsed[written:].tolist()])


def tuning(trials: int, callbacks: Sequence[Any], options: argparse.Namespace) -> ansor.TuningOptions:
    if options.runner == "analytical":
        builder, runner = AnalyticalRunner.builder(), AnalyticalRunner(noise=0.1)
        return ansor.TuningOptions(
            trials, verbose=options.verbose, builder=builder, runner=runner, measure_callbacks=callbacks
        )
    return ansor.TuningOptions(trials, verbose=options.verbose, measure_callbacks=callbacks)


# ------------------------------------------------------------------------------------------------ all runs


def quartiles(values: Iterable[np.ndarray | float]) -> np.ndarray:
    """Lower quartile, median and upper quartile over runs, [3, ...]; inf where a run that matters has nothing yet."""
    with np.errstate(invalid="ignore"):
        found = np.percentile(np.stack([np.asarray(v) for v in values]), [25, 50, 75], axis=0)
    return np.where(np.isnan(found), np.inf, found)


def curves(runs: dict[str, list[Run]]) -> dict[str, dict[str, plots.Band]]:
    """Best-so-far in us against trials and against seconds, a curve for each method."""
    out: dict[str, dict[str, plots.Band]] = {"trials": {}, "seconds": {}}
    for method, found in runs.items():
        n = min(len(run.costs) for run in found)
        best = quartiles(np.minimum.accumulate(run.costs[:n]) * 1e6 for run in found)
        out["trials"][method] = plots.Band(np.arange(1, n + 1), best)
        last = max(run.elapsed[-1] for run in found)
        grid = np.geomspace(max(min(run.elapsed[0] for run in found), 1e-2), last, 300)
        out["seconds"][method] = plots.Band(grid, quartiles(run.best_by(grid) * 1e6 for run in found))
    return out


def figures_of(runs: dict[str, list[Run]], trials: int) -> dict[str, Any]:
    """What the JSON file says of a workload, by method."""
    counts = sorted({n for n in SHOWN if n < trials} | {trials})
    return {
        method: {
            "seconds": [float(run.elapsed[:trials][-1]) for run in found],
            "failed": [int(np.isinf(run.costs[:trials]).sum()) for run in found],
            "best_us": {n: [float(q) for q in quartiles(run.best(n) * 1e6 for run in found)] for n in counts},
            "at 64 / at last": [run.best(64) / run.best(len(run.costs)) for run in found],
            "last": len(found[0].costs),
        }
        for method, found in runs.items()
    }


def gain_of(by: dict[str, Any], method: str, n: int) -> float:
    """How many times faster than with `random` the best program of a task is, by the medians of the methods."""
    return float(by["random"]["best_us"][n][1] / by[method]["best_us"][n][1])


def gains_of(figures: dict[str, Any], trials: int) -> dict[str, dict[int, float]]:
    """How many times faster than with `random` the best program is, geometric mean over the tasks of medians."""
    counts = [n for n in GAINS if n <= trials]
    methods = [m for m in METHODS if all({m, "random"} <= set(found) for found in figures.values())]

    def gain(method: str, n: int) -> float:
        return statistics.geometric_mean([gain_of(by, method, n) for by in figures.values()])

    return {method: {n: gain(method, n) for n in counts} for method in methods if method != "random"}


def print_criteria(figures: dict[str, Any], gains: dict[str, dict[int, float]]) -> None:
    """The gains of the methods, by task and in the geometric mean, and how near to its last best `draft` soon is."""
    rows = []
    for method, found in gains.items():
        least = [GAINS[n] if method == "draft" else 1.0 for n in found]
        for name, by in figures.items():
            rows.append([method, name, *[gain_of(by, method, n) for n in found]])
        rows.append([method, "geometric mean", *found.values()])
        rows.append(["", "at least", *least])
    report.table(rows, ["random / it", "task", *[f"at {n}" for n in next(iter(gains.values()), ())]])
    if all("draft" in by for by in figures.values()):
        near = {name: by["draft"] for name, by in figures.items()}
        rows = [[name, statistics.median(d["at 64 / at last"]), NEAR, d["last"]] for name, d in near.items()]
        report.table(rows, ["draft", "after 64 / in the end", "at most", "trials in the end"])


def print_methods(name: str, figures: dict[str, Any], trials: int) -> None:
    """Medians over the seeds, and how many times faster than the first method's the best program is."""
    first = next(iter(figures.values()))["best_us"]
    counts = list(first)
    rows = []
    for method, found in figures.items():
        low, middle, high = found["best_us"][trials]
        medians = [found["best_us"][n][1] for n in counts]
        seconds = float(np.median(found["seconds"]))
        rows.append([method, *medians, f"{low:.1f} - {high:.1f}", f"{first[trials][1] / middle:.2f}x", seconds])
    header = [f"{name}, us", *[f"at {n}" for n in counts], "quartiles", f"{next(iter(figures))} / it", "seconds"]
    report.table(rows, header)
    print()


# ------------------------------------------------------------------------------------------------ PyTorch


def compare(
    name: str, task: ansor.SearchTask, logs: Sequence[Path], runs: Sequence[Run], options: argparse.Namespace
) -> dict[str, Any]:
    """Time the best programs of some logs in turns with PyTorch's operator."""
    inputs = random_inputs(task.compute_dag.tensors, np.random.default_rng(0))
    arrays = [aligned_copy(inputs[t]) for t in task.compute_dag.inputs]
    theirs = pytorch.matmul(arrays) if "matmul" in name else pytorch.conv2d_bias_relu(arrays, WORKLOADS[name][1][-1])
    ours = {}
    n = options.compare_at
    for k, log in enumerate(logs):
        module = ansor.build(best_states(task, log, [n])[n][0], task.compute_dag.tensors, task.target)
        out = aligned_copy(np.full(task.compute_dag.tensors[-1].shape, np.nan, np.float32))
        module(*arrays, out)
        pytorch.check(out, next(iter(theirs.values())))
        ours[f"ours, run {k}"] = lambda module=module, out=out: module(*arrays, out)
    figures = timed_in_turns({**ours, **theirs}, options.rounds, SLICE)
    times = {name: statistics.median(seconds) for name, seconds in figures.items()}
    mine = [times[key] for key in ours]
    library = min(times[key] for key in theirs)
    return {
        "ours_ms": [1e3 * t for t in mine], "pytorch_ms": {key: 1e3 * times[key] for key in theirs},
        "ratio": float(np.median(mine)) / library, "best_ratio": min(mine) / library,
        "seconds": float(np.median([run.elapsed[: options.compare_at][-1] for run in runs])),
    }  # fmt: skip


def print_comparison(found: dict[str, dict[str, Any]], method: str, trials: int) -> None:
    rows = []
    for name, c in found.items():
        budget = TVM_SECONDS[name] / 4 * trials / TVM_TRIALS
        library = min(c["pytorch_ms"], key=c["pytorch_ms"].get)
        figures = [float(np.median(c["ours_ms"])), c["pytorch_ms"][library]]
        rows.append([name, *figures, library, c["ratio"], c["best_ratio"], LIMITS[name], c["seconds"], budget])
    header = ["ms", "ours", "PyTorch", "its best", "ratio", "best run's", "at most", "seconds", "at most"]
    report.table(rows, [f"{method} after {trials} trials, ms", *header[1:]])


# ------------------------------------------------------------------------------------------------ the program


def task_of(name: str, target: str) -> ansor.SearchTask:
    entry, shape = WORKLOADS[name]
    return ansor.SearchTask(workload_key=CATALOG[entry].key(shape), target=target, desc=name)


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("--logs", required=True, help="where the runs are kept")
    p.add_argument("--target", default="c")
    p.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    p.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    p.add_argument("--trials", type=int, default=256)
    p.add_argument("--long-trials", type=int, default=0, help="trials of `draft`, where they are more")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first-seed", type=int, default=0)
    p.add_argument("--figures", help="where figures go (default: the directory of the logs)")
    p.add_argument("--compare-at", type=int, default=TVM_TRIALS)
    p.add_argument("--rounds", type=int, default=7, help="how often our programs and PyTorch's take turns")
    p.add_argument("--runner", choices=("local", "analytical"), default="local")
    p.add_argument("--in-turns", action="store_true", help="time the best programs of a task anew, in turns")
    p.add_argument("--verbose", type=int, choices=(0, 1, 2), default=0)
    options = p.parse_args()
    options.compare_at = min(options.compare_at, options.trials)
    return options


def main() -> None:
    options = arguments()
    logs = Path(options.logs)
    figures: dict[str, Any] = {}
    compared: dict[str, dict[str, Any]] = {}
    kind = options.target.split()[0]
    local = kind == "cuda" and options.runner == "local"
    device = report.gpu("--target c or --runner analytical") if local else None
    for name in options.workloads:
        task = task_of(name, options.target)
        runs: dict[str, list[Run]] = {method: [] for method in options.methods}
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        files = {m: [logs / f"{name}_{kind}_{m}_{seed}.json" for seed in seeds] for m in runs}
        for place, seed in enumerate(seeds):
            for method in runs:
                run = complete(task, method, seed, files[method][place], options)
                runs[method].append(run)
                seconds = run.elapsed[-1]
                print(
                    f"{name} {method} seed {seed}: {run.best(options.trials) * 1e6:.1f} us in {seconds:.1f} s",
                    flush=True,
                )
        if options.in_turns:
            again = timed_again(task, files, [*SHOWN, options.trials, trials_of("draft", options)])
            runs = {m: [replace(r, again=a) for r, a in zip(runs[m], again[m], strict=True)] for m in runs}
        figures[name] = figures_of(runs, options.trials)
        print_methods(name, figures[name], options.trials)
        if plots.available():
            path = Path(options.figures or logs) / f"search_quality_{name}_{kind}.png"
            plots.save(path, f"{name} on {kind}", curves(runs), "best so far, us")
        if kind == "c" and options.runner == "local" and name in LIMITS and pytorch.available():
            last = options.methods[-1]
            compared[name] = compare(name, task, files[last], runs[last], options)
    if compared:
        print_comparison(compared, options.methods[-1], options.compare_at)
    gains = gains_of(figures, options.trials)
    if gains:
        print_criteria(figures, gains)
    facts = {"target": options.target, "trials": options.trials, "seeds": options.seeds, "runner": options.runner}
    report.write_json(options.json, {**facts, "methods": figures, "gains": gains, "pytorch": compared}, device)


if __name__ == "__main__":
    report.run(main)
