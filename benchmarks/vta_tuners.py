"""Tuners on the ten convolutions of ResNet-18 on VTA, where the optimum is known: how fast do they come near it?

    python -m benchmarks.vta_tuners [--seeds 5] [--first-seed 100] [--trials 200] [--figures DIR] [--json FILE]
    python -m benchmarks.vta_tuners --budget --journal FILE [--real C10 C11] [--json FILE]

Trials are answered from the table of `benchmarks.vta_exhaustive`.  The regret of a search is how much slower its best
configuration is than the optimum.  Criteria, at 200 trials, medians of the seeds: the XGB tuner within 5% of the best
possible on every task; XGB and GA nearer to it than random search in the geometric mean over the tasks.  The
tuners' constants were chosen with seeds below 100 and from 200 to 299.

`--budget` asks for min(1000, size of the space) trials of the XGB tuner on each task (criterion: 20 minutes on 2 cores
in all): the tuner's own seconds, and the seconds of the trials that it chose as the journal has them.  `--real` names
tasks that are tuned with real simulations besides, by the clock; the load averages (Unix) say what else was running.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ansor.autotvm import LocalBuilder, Refusal, RunOptions, Task, measure_option
from ansor.autotvm.callback import Monitor
from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.measure import MeasureInput, MeasureResult
from ansor.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from ansor.core.errors import BackendError
from ansor.core.tasks.measure_values import MeasureErrorNo
from benchmarks import plots, report
from benchmarks.vta_exhaustive import Times, layer_task, read_journal, read_times
from te_lite.errors import require
from tests.vta_sim.conv import LAYERS

Array = np.ndarray[Any, np.dtype[Any]]
Make = Callable[[Task, np.random.Generator], Tuner]
TUNERS: dict[str, Make] = {
    "random": lambda task, rng: RandomTuner(task, rng=rng),
    "grid": lambda task, rng: GridSearchTuner(task, rng=rng),
    "ga": lambda task, rng: GATuner(task, rng=rng),
    "xgb": lambda task, rng: XGBTuner(task, loss_type="rank", rng=rng),
}
MARKS = (50, 100, 200)
MOST_TRIALS = 1000


@dataclass(frozen=True)
class Table:
    """A `TemplateBackend` that looks milliseconds up; configurations that are not in the table are refused."""

    times: dict[int, float]

    def build(self, task: Task, config: ConfigEntity) -> float | Refusal:
        """The milliseconds take the place of a program."""
        assert config.index is not None
        unknown = Refusal(MeasureErrorNo.INSTANTIATION_ERROR, "no program")
        return self.times.get(config.index, unknown)

    def run(self, task: Task, program: Any, options: RunOptions) -> Sequence[float]:
        """Seconds."""
        return (float(program) / 1e3,)


def slowdowns(task: Task, make: Make, seed: int, trials: int, times: dict[int, float]) -> Array:
    """The best so far over the optimum after each of `trials` trials, float64; inf until something was valid."""
    monitor = Monitor()
    tuner = make(task, np.random.default_rng(seed))
    tuner.tune(trials, measure_option(LocalBuilder(backend=Table(times))), callbacks=[monitor])
    rates = np.array(monitor.scores) / task.flop * min(times.values()) * 1e-3
    best = np.maximum.accumulate(np.pad(rates, (0, trials - len(rates))))
    out: Array = np.divide(1.0, best, out=np.full(trials, np.inf), where=best > 0)
    return out


def compare(
    tasks: dict[str, Task], times: Times, names: Sequence[str], seeds: Sequence[int], trials: int
) -> dict[str, Array]:
    """`slowdowns` of each tuner, float64 [tasks, seeds, trials]."""
    found: dict[str, Array] = {}
    for name in names:
        runs = [
            [slowdowns(task, TUNERS[name], seed, trials, times[layer]) for seed in seeds]
            for layer, task in tasks.items()
        ]
        found[name] = np.array(runs)
        print(f"{name}: {len(tasks) * len(seeds)} searches", flush=True)
    return found


def geometric_mean(curves: Array) -> Array:
    """Over the tasks, float64 [seeds, trials]; inf while a task has no valid configuration."""
    out: Array = np.exp(np.mean(np.log(curves), axis=0))
    return out


def print_regrets(found: dict[str, Array], layers: Sequence[str], marks: Sequence[int]) -> None:
    """Percent above the optimum, medians of the seeds: a row for each task, and their geometric mean."""
    header = ["percent above optimum", *(f"{name} {mark}" for name in found for mark in marks)]
    at = [mark - 1 for mark in marks]
    rows: list[list[Any]] = []
    for k, layer in enumerate(layers):
        medians = [np.median(curves[k], axis=0)[at] for curves in found.values()]
        rows.append([layer, *((np.concatenate(medians) - 1) * 100).tolist()])
    means = [np.median(geometric_mean(curves), axis=0)[at] for curves in found.values()]
    rows.append(["geometric mean", *((np.concatenate(means) - 1) * 100).tolist()])
    report.table(rows, header)


def figures_of(curves: Array, layers: Sequence[str], marks: Sequence[int]) -> dict[str, Any]:
    """What goes to the JSON file; None where no valid configuration was found."""
    mean = geometric_mean(curves)
    out: dict[str, Any] = {}
    for mark in marks:
        by_task = {layer: _regret(np.median(curves[k, :, mark - 1])) for k, layer in enumerate(layers)}
        worst_seed = {layer: _regret(curves[k, :, mark - 1].max()) for k, layer in enumerate(layers)}
        whole = _regret(np.median(mean[:, mark - 1]))
        out[str(mark)] = {"geometric_mean": whole, "median": by_task, "worst_seed": worst_seed}
    return out


def _regret(slowdown: Any) -> float | None:
    return float(slowdown) - 1 if np.isfinite(slowdown) else None


def verdicts(found: dict[str, Array]) -> dict[str, bool]:
    """Whether the criteria hold at the last trial."""
    last = {name: float(np.median(geometric_mean(curves)[:, -1])) for name, curves in found.items()}
    out = {}
    if "xgb" in found:
        out["xgb_within_5_percent"] = bool((np.median(found["xgb"][:, :, -1], axis=1) <= 1.05).all())
    for name in {"xgb", "ga"} & set(last) if "random" in last else ():
        out[f"{name}_beats_random"] = last[name] < last["random"]
    return out


def draw(path: Path, found: dict[str, Array], trials: int) -> None:
    """The geometric means as curves."""
    bands = {
        name: plots.Band(np.arange(1, trials + 1), _quartiles(geometric_mean(curves))) for name, curves in found.items()
    }
    title = "Tuning ten convolutions of ResNet-18 on VTA"
    plots.save(path, title, {"trials of each task": bands}, "best so far / optimum, geometric mean")


def _quartiles(curves: Array) -> Array:
    """Of the seeds, float64 [3, trials]: always one of the curves, since some are infinite."""
    return np.quantile(curves, (0.25, 0.5, 0.75), axis=0, method="nearest")


# ------------------------------------------------------------------------------------------- the budget of 20 minutes


def budget(task: Task, layer: str, times: dict[int, float], seconds: dict[int, float]) -> dict[str, Any]:
    """Seconds of a core for min(1000, size) trials: the tuner's own, measured, and the trials', from the journal."""
    chosen: list[int] = []

    def note(tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        chosen.extend(inp.config.index for inp in inputs if inp.config.index is not None)

    trials = min(MOST_TRIALS, len(task.config_space))
    tuner = TUNERS["xgb"](task, np.random.default_rng(0))
    start = time.process_time()
    tuner.tune(trials, measure_option(LocalBuilder(backend=Table(times))), callbacks=[note])
    own = time.process_time() - start
    valid = sum(index in times for index in chosen)
    slow = task.flop / tuner.best_flops / (min(times.values()) * 1e-3) - 1
    spent = sum(seconds[index] for index in chosen)
    return {"layer": layer, "trials": trials, "valid": valid, "regret": slow, "tuner_s": own, "trials_s": spent}


def tune_for_real(task: Task, layer: str) -> dict[str, Any]:
    """Seconds on the clock and of a core for min(1000, size) trials with simulations."""
    trials = min(MOST_TRIALS, len(task.config_space))
    wall, cpu = time.perf_counter(), time.process_time()
    TUNERS["xgb"](task, np.random.default_rng(0)).tune(trials, measure_option())
    return {
        "layer": layer,
        "trials": trials,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


def print_budget(rows: Sequence[dict[str, Any]], real: Sequence[dict[str, Any]]) -> float:
    """The tables; gives the seconds of a core for all tasks."""
    report.table([[*row.values(), row["tuner_s"] + row["trials_s"]] for row in rows], [*rows[0], "total s"])
    if real:
        report.table([list(row.values()) for row in real], ["with simulations", *list(real[0])[1:]])
        print(f"with simulations: {sum(row['wall_s'] for row in real) / 60:.1f} minutes by the clock")
    total: float = sum(row["tuner_s"] + row["trials_s"] for row in rows)
    print(f"all: {total / 60:.1f} minutes of one core (criterion 20 minutes on 2 cores)")
    return total


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("--layers", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    p.add_argument("--tuners", nargs="+", choices=list(TUNERS), default=list(TUNERS))
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--first-seed", type=int, default=100)
    p.add_argument("--trials", type=int, default=200)
    p.add_argument("--table", type=report.path_to_read, metavar="FILE", help="times, as vta_exhaustive wrote them")
    p.add_argument("--figures", type=Path, metavar="DIR")
    p.add_argument("--budget", action="store_true")
    p.add_argument("--journal", type=report.path_to_read, metavar="FILE", help="the journal of vta_exhaustive")
    p.add_argument("--real", nargs="+", choices=list(LAYERS), default=[])
    return p.parse_args()


def main() -> None:
    options = arguments()
    report.let_blas_choose()
    times = read_times(options.table) if options.table else read_times()
    tasks = {name: layer_task(LAYERS[name]) for name in options.layers}
    if options.budget:
        require(options.journal is not None, BackendError, "--budget", "the --journal of trials is needed, too")
        seconds: dict[str, dict[int, float]] = {}
        for o in read_journal(options.journal):
            seconds.setdefault(o.layer, {})[o.index] = o.cpu_s
        law = "it must have the trials of all layers, as vta_exhaustive writes it"
        require(seconds.keys() >= tasks.keys(), BackendError, "--journal", law, lacks=sorted(tasks.keys() - seconds))
        rows = [budget(task, name, times[name], seconds[name]) for name, task in tasks.items()]
        load = os.getloadavg()
        real = [tune_for_real(tasks[name], name) for name in options.real]
        facts = {"core_s": print_budget(rows, real), "wall_s": sum(row["wall_s"] for row in real)}
        loads = {"load_average_before": load, "load_average_after": os.getloadavg()}
        report.write_json(options.json, {**facts, **loads, "tasks": rows, "with_simulations": real})
        return
    marks = [mark for mark in MARKS if mark <= options.trials]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = compare(tasks, times, options.tuners, seeds, options.trials)
    print_regrets(found, list(tasks), marks)
    held = verdicts(found)
    print(", ".join(f"{name}: {'yes' if ok else 'NO'}" for name, ok in held.items()))
    if options.figures and plots.available():
        draw(options.figures / "vta_tuners.png", found, options.trials)
    tuners = {name: figures_of(curves, list(tasks), marks) for name, curves in found.items()}
    facts = {"trials": options.trials, "seeds": list(seeds)}
    report.write_json(options.json, {**facts, "criteria": held, "tuners": tuners})


if __name__ == "__main__":
    report.run(main)
