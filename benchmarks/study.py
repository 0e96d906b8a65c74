"""The experiments of Ansor's paper, one command each: curves with confidence bands, a table, a figure.

    python -m benchmarks.study ablation|operators|subgraphs|networks|cost-model [--device offline|c|cuda] [--seeds 10]
        [--trials N] [--out DIR] [--variant FILE.py:NAME ...] [--usual NAME ...] [--cases PATTERN ...]
        [--networks NAME ...] [--data FILE ...] [--time-limit S] [--table] [--json FILE]

On `offline`, the default, searches choose among programs that were measured before (`data/`; docs/offline.md): nothing
is compiled.  There are `ablation` (Figure 7) and `cost-model` (Figure 11; the metrics are TenSet's).  On `c` and `cuda`
all but `cost-model` are run on this machine, which takes hours: `operators` (Figure 6), `subgraphs` (Figure 8),
`networks` with and without the task scheduler (Figures 9 and 10).  Where PyTorch is installed, single tasks are timed
in turns with its operators.  Every run is kept in DIR, and a study that was stopped, by hand or after `--time-limit`
seconds, goes on; `--table` shows what is kept, with its variants and trials, and measures nothing.  A variant of your
own is a class or function in a file (`study_variants.py` has ours); `--usual` chooses among ours, `--cases 'C2D*'`
among the cases.  The JSON file says on what machines, when, and of what commits the runs that it is about were made.

A curve is the speed of the best program so far relative to the best of all runs of its task (offline: of all programs),
averaged over the tasks; bands are 95 % intervals of the mean over seeds, from a bootstrap; of one seed there are none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.contests import contests
from ansor.cli.searchers import matrices_in
from ansor.core.errors import TaskError
from ansor.core.target.hardware import host_cores
from ansor.core.target.target import Target
from ansor.cost_model.metrics import pairwise_accuracy, top_k_peak
from ansor.offline.contest import Run
from ansor.offline.matrix import Matrix, load_matrix
from ansor.records.journal import append_lines
from ansor.report.scale import Scale
from ansor.report.svg import Band, Chart, Line
from benchmarks import pytorch, report
from benchmarks.cost_model import model_of
from benchmarks.study_beside import TORCH, bars, beside, by_operator, relative_speeds
from benchmarks.study_live import STRATEGIES, cases, latencies, scheduled, searched
from benchmarks.study_live import Run as LiveRun
from benchmarks.study_variants import LIVE, MODELS, OFFLINE
from relay_lite.tuning.tune_network import network_runner
from te_lite.errors import require

Array = np.ndarray[Any, np.dtype[Any]]
STUDIES = ("ablation", "operators", "subgraphs", "networks", "cost-model")
OFFLINE_STUDIES = ("ablation", "cost-model")
TRIALS = {"offline": 192, "c": 256, "cuda": 1000}
BATCH = 16
RESAMPLES = 1000
TOLD = (64, 256, 750)
"""Programs that a model of costs is trained on."""
BARS = ("operators", "subgraphs")
BESIDE = ("ablation", *BARS)
"""Studies of single tasks that are timed beside PyTorch's operators."""
MACHINE, UNKNOWN = ("machine",), "unknown"
Runs = dict[str, dict[str, list[Run]]]
"""By variant and task, a run for each seed."""


# ------------------------------------------------------------------------------------------------- runs kept


class Kept:
    """A file of runs, a JSON line each, with the circumstances in which it was `made`; what is in it is not run again.

    `machine` is what runs are made on from here on.
    """

    def __init__(self, file: Path, machine: str | None = None) -> None:
        self.file, self.machine = file, machine
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        self.runs = {tuple(run["key"]): run["values"] for run in lines}
        self._made = {tuple(run["key"]): run["made"] for run in lines if "made" in run}

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The values of a run, made and written down where they are not known."""
        if key not in self.runs:
            self.put(key, make())
        return self.runs[key]

    def put(self, key: tuple[Any, ...], values: Any) -> None:
        self.runs[key], self._made[key] = values, report.circumstances(self.machine)
        append_lines(self.file, [json.dumps({"key": key, "values": values, "made": self._made[key]})])

    def made(self, keys: Iterable[tuple[Any, ...]]) -> dict[str, str]:
        """The circumstances of some runs; those of an earlier format say no more than their machine."""
        unknown = {"machine": str(self.runs.get(MACHINE, UNKNOWN)), "date": UNKNOWN, "commit": UNKNOWN}
        return report.joined([self._made.get(key, unknown) for key in keys])


def offline_runs(kept: Kept, variants: Sequence[str], files: Sequence[Path], options: argparse.Namespace) -> Runs:
    """Contests on measured programs."""
    words = {v: f"benchmarks.study_variants:{v}" if v in OFFLINE else v for v in variants}
    tasks = [file.stem for file in files]
    out: Runs = {}
    for variant, word in words.items():
        keys = {
            (k, s): (variant, task, s, options.trials) for k, task in enumerate(tasks) for s in range(options.seeds)
        }
        missing = list(dict.fromkeys(k for (k, _), key in keys.items() if key not in kept.runs))
        if missing:
            found = contests([word], [files[k] for k in missing], options.seeds, options.trials, BATCH)[word]
            for k, runs in zip(missing, found, strict=True):
                for s, run in enumerate(runs):
                    kept.put(keys[k, s], [run.best, run.seconds.tolist()])
            print(f"{variant}: done", flush=True)
        values = {place: kept.runs[key] for place, key in keys.items()}
        out[variant] = {
            task: [Run(np.array(values[k, s][1]), values[k, s][0]) for s in range(options.seeds)]
            for k, task in enumerate(tasks)
        }
    return out


def run_live(kept: Kept, variants: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Searches on this machine, all cases of a seed before the next seed, until the time is up."""
    end = time.monotonic() + options.time_limit
    logs = Path(options.out) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    found = cases(options.study, options.device, options.networks, options.cases)
    name = f"{options.study}_{options.device}"
    with closing(ansor.LocalBuilder()) as builder, closing(runner_of(options)) as runner:
        for seed, case, variant in product(range(options.seeds), found, variants):
            key, left = (variant, case.name, seed, options.trials), end - time.monotonic()
            if key not in kept.runs and left > 0:
                log = logs / f"{name}_{case.name}_{Path(variant).name}_{seed}.json"
                run = LiveRun(case, seed, options.trials, log, left if left < np.inf else None, builder, runner)
                ended = False
                if len(latencies(log, case)) < options.trials:
                    ended = scheduled(run, variant) if variant in STRATEGIES else searched(run, variants[variant])
                keep(kept, key, latencies(log, case)[: options.trials], ended)
    for case in found if options.study in BESIDE and pytorch.available() else []:
        log = logs / f"{name}_{case.name}_{next(iter(variants))}_0.json"
        if log.exists():
            kept.get((TORCH, case.name), lambda: beside(case, log))  # noqa: B023


def keep(kept: Kept, key: tuple[Any, ...], seconds: Array, ended: bool) -> None:
    """Say how a run went, and write it down where it is through; a space may have `ended` before."""
    variant, case, seed, trials = key
    if len(seconds) == trials or (ended and len(seconds)):
        kept.put(key, seconds.tolist())
    said = f"{len(seconds)} of {trials} trials, {1e6 * seconds.min(initial=np.inf):.1f} us"
    print(f"{case} {variant} seed {seed}: {said}", flush=True)


def runner_of(options: argparse.Namespace) -> Any:
    """What measures: programs of networks as they run there, others with their data in the caches."""
    return network_runner(Target(options.device)) if options.study == "networks" else ansor.LocalRunner()


def through(kept: Kept, variants: Sequence[str], options: argparse.Namespace) -> tuple[list[str], list[int]]:
    """The cases that all variants are through with for the first seed, and the seeds that are through for all of these.

    Runs that are left out are counted aloud.
    """
    runs = [key for key in kept.runs if len(key) == 4]
    own = [key for key in runs if key[0] in variants and key[2] < options.seeds and key[3] == options.trials]
    whole = {key[1:3] for key in own if all((v, *key[1:]) in kept.runs for v in variants)}
    tasks = [name for name in dict.fromkeys(key[1] for key in own) if (name, 0) in whole]
    law = f"no case is through with {options.trials} trials by all of {', '.join(variants)}"
    have = ", ".join(f"{n} of {v} with {trials}" for (v, trials), n in Counter((k[0], k[3]) for k in runs).items())
    require(tasks, TaskError, f"study {options.study}", law, out=options.out, runs=have or "none")
    seeds = [s for s in range(options.seeds) if all((name, s) in whole for name in tasks)]
    if left := [key for key in own if key[1] not in tasks or key[2] not in seeds]:
        print(f"{len(left)} of {len(own)} runs are left out: their case or seed is not through for all variants")
    return tasks, seeds


def live_runs(
    kept: Kept, variants: Sequence[str], tasks: Sequence[str], seeds: Sequence[int], trials: int
) -> Runs:  # fmt: skip
    """Searches on a device; the best of a task is that of all runs."""
    found = {v: {t: [np.array(kept.runs[v, t, s, trials]) for s in seeds] for t in tasks} for v in variants}
    best = {t: min(float(run.min()) for by_task in found.values() for run in by_task[t]) for t in tasks}
    return {v: {t: [Run(run, best[t]) for run in runs] for t, runs in by_task.items()} for v, by_task in found.items()}


# ----------------------------------------------------------------------------------------------- statistics


def band(values: Array, rng: np.random.Generator) -> Array:
    """Mean over the first axis, and the ends of its 95 % interval: [3, ...]."""
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    means = values[drawn].mean(axis=1)
    return np.stack([values.mean(axis=0), *np.quantile(means, (0.025, 0.975), axis=0)])


def qualities(runs: Mapping[str, Sequence[Run]], trials: int) -> Array:
    """The mean curve over the tasks, [seeds, trials]; a task with fewer programs than trials stays at its end."""
    curves = [[np.pad(r.quality, (0, trials - len(r.seconds)), "edge") for r in found] for found in runs.values()]
    mean: Array = np.array(curves).mean(axis=0)
    return mean


def one_seed(runs: Runs) -> bool:
    """Whether there is nothing that a mean over seeds could differ from."""
    return all(len(found) == 1 for by_task in runs.values() for found in by_task.values())


def interval(figures: Sequence[float]) -> str:
    """A mean, and the ends of its interval where they are known."""
    mean, *ends = [f"{value:.3f}" for value in figures]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def save(figure: str, options: argparse.Namespace) -> None:
    """Write a figure into the folder of the study."""
    file = Path(options.out) / f"{options.study}_{options.device}.svg"
    file.write_text(figure)
    print(f"figure: {file}")


def show(runs: Runs, options: argparse.Namespace) -> dict[str, Any]:
    """Print the table of the curves, write their figure, and give the figures."""
    rng = np.random.default_rng(0)
    trials = max(len(run.seconds) for by_task in runs.values() for found in by_task.values() for run in found)
    bands = {variant: band(qualities(found, trials), rng) for variant, found in runs.items()}
    points = sorted({n for n in (16, 32, 64, 128, 192, 256, 512, 1000) if n < trials} | {trials})
    shown = 1 if one_seed(runs) else 3
    means = {v: {n: [float(x[n - 1]) for x in curves[:shown]] for n in points} for v, curves in bands.items()}
    rows = [[variant, *[interval(found[n]) for n in points]] for variant, found in means.items()]
    report.table(rows, [f"{options.study} on {options.device}", *[f"after {n}" for n in points]])
    chart = Chart(Scale(1, trials), Scale(0.0, 1.0), "trials", "best so far, speed of the best", low_legend=True)
    for k, (variant, curves) in enumerate(bands.items()):
        at = range(1, trials + 1)
        chart.bands.append(Band(list(zip(at, curves[1], curves[2], strict=True))))
        chart.lines.append(Line(Path(variant).name, list(zip(at, curves[0], strict=True)), k))
    save(chart.picture(f"{options.study} on {options.device}"), options)
    by_task = {
        variant: {task: float(np.mean([run.quality[-1] for run in found])) for task, found in tasks.items()}
        for variant, tasks in runs.items()
    }
    return {"after trials": means, "at the end, by task": by_task}


def show_live(kept: Kept, runs: Runs, options: argparse.Namespace) -> dict[str, Any]:
    """The same of searches on a device, with the microseconds of each task; operators are drawn as bars."""
    seeds = len(next(iter(next(iter(runs.values())).values())))
    names = [Path(variant).name for variant in runs]
    print("one seed, so nothing says how far another would be" if seeds == 1 else f"means over {seeds} seeds")
    us = {
        task: {name: 1e6 * float(np.mean([run.seconds.min() for run in runs[v][task]]))
               for name, v in zip(names, runs, strict=True)}
        for task in next(iter(runs.values()))
    }  # fmt: skip
    turns = {task: kept.runs.get((TORCH, task)) for task in us}
    in_turns = {task: {name: 1e6 * s for name, s in found.items()} for task, found in turns.items() if found}
    rows = [[task, *of.values(), *in_turns.get(task, {"ours": "", TORCH: ""}).values()] for task, of in us.items()]
    report.table(rows, ["us", *names, f"{names[0]} in turns with", TORCH])
    figures = {"best us, by task": us, "us in turns, by task": in_turns}
    if options.study not in BARS:
        return {**figures, **show(runs, options)}
    groups = by_operator(relative_speeds(us, in_turns))
    report.table([[title, *of.values()] for title, of in groups.items()], ["speed", *next(iter(groups.values()))])
    save(bars(groups, f"{options.study} on {options.device}", "speed, of the best of each task"), options)
    return {**figures, "speed, by operator": groups}


# ------------------------------------------------------------------------------------------------- accuracy


def judged(make: Callable[[], Any], matrix: Matrix, told: int, seed: int) -> list[float] | None:
    """Pairs in order, and the speed of the best of the first 1, 5 and 30 relative to the best, on programs that the
    model was not told; None where there are too few."""
    order = np.random.default_rng(seed).permutation(len(matrix))
    if told + 100 > len(matrix):
        return None
    known, asked = order[:told], order[told:]
    model = make()
    model.fit(matrix.features[known], matrix.seconds[known])
    scores, seconds = model.predict(matrix.features[asked]), matrix.seconds[asked]
    return [pairwise_accuracy(scores, seconds), *[top_k_peak(scores, seconds, k) for k in (1, 5, 30)]]


def accuracy(kept: Kept, files: Sequence[Path], options: argparse.Namespace) -> dict[str, Any]:
    """A table of models and numbers of programs told, means over tasks and splits."""
    makers = {**MODELS, **{word: model_of(word) for word in options.variant}}
    figures: dict[str, Any] = {}
    rows = []
    for name, make in makers.items():
        for told in TOLD:
            found = []
            for file in files:
                matrix = load_matrix(file)
                splits = [
                    kept.get(("model", name, file.stem, told, seed), lambda: judged(make, matrix, told, seed))  # noqa: B023
                    for seed in range(options.seeds)
                ]
                if None not in splits:
                    found.append(splits)
            if found:
                means = band(np.array(found).mean(axis=0), np.random.default_rng(0))
                figures[f"{name}, {told} told"] = {"tasks": len(found), "mean, low, high": means.T.tolist()}
                rows.append([f"{name}, {told} told", len(found), *map(interval, means.T)])
    report.table(rows, ["cost-model", "tasks", "pairs in order", "top 1", "top 5", "top 30"])
    return figures


# ---------------------------------------------------------------------------------------------- the program


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("study", choices=STUDIES)
    p.add_argument("--device", choices=list(TRIALS), default="offline")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--trials", type=int, help=f"of each run (default: {TRIALS})")
    p.add_argument("--out", default="study", help="the folder of runs, logs and figures")
    p.add_argument("--variant", nargs="+", default=[], metavar="FILE.py:NAME", help="variants of your own, too")
    text = "our variants that are run (default: all that there are for the study)"
    p.add_argument("--usual", nargs="+", metavar="NAME", help=text)
    p.add_argument("--cases", nargs="+", default=["*"], metavar="PATTERN", help="of single tasks: which (default: all)")
    p.add_argument("--networks", nargs="+", default=["resnet-18"], metavar="NAME")
    p.add_argument("--data", nargs="+", default=[], metavar="FILE", help="of `offline` (default: data/)")
    text = "of c and cuda: seconds after which nothing is begun, and what is under way is left for the next call"
    p.add_argument("--time-limit", type=float, default=np.inf, metavar="S", help=text)
    p.add_argument("--table", action="store_true", help="of c and cuda: show what is kept in DIR, and measure nothing")
    return p.parse_args()


def main() -> None:
    options = arguments()
    offline = options.device == "offline"
    law = "needs programs to be measured: name --device c or cuda" if offline else "is run on --device offline"
    fits = options.study in OFFLINE_STUDIES if offline else options.study != "cost-model"
    require(fits, TaskError, f"study {options.study}", law, device=options.device)
    files = matrices_in(options.data) if offline else []
    variants = chosen_variants(options)
    measured_on = None if offline or options.table else machine(options.device)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    kept = Kept(Path(options.out) / f"{options.study}_{options.device}.jsonl", measured_on)
    have = [key for key in kept.runs if len(key) == 4] if options.table else []
    options.trials = options.trials or max([key[3] for key in have], default=TRIALS[options.device])
    if have and not options.usual:
        variants = {name: make for name, make in variants.items() if any(key[0] == name for key in have)}
    facts = {"study": options.study, "device": options.device, "seeds": options.seeds, "trials": options.trials}
    if options.study == "cost-model":
        report.write_json(options.json, {**facts, **accuracy(kept, files, options)})
    elif offline:
        report.write_json(options.json, {**facts, **show(offline_runs(kept, list(variants), files, options), options)})
    else:
        if not options.table:
            run_live(kept, variants, options)
        tasks, seeds = through(kept, list(variants), options)
        figures = show_live(kept, live_runs(kept, list(variants), tasks, seeds, options.trials), options)
        searches = product(variants, tasks, seeds, [options.trials])
        turns = [(TORCH, task) for task in tasks if (TORCH, task) in kept.runs]
        report.write_json(options.json, {**facts, "seeds": seeds, **figures}, made=kept.made([*searches, *turns]))


def chosen_variants(options: argparse.Namespace) -> dict[str, Any]:
    """Ours that are asked for and the user's, by name or as FILE.py:NAME; on a device with what makes them."""
    usual: dict[str, Any] = {**LIVE}
    if options.device == "offline":
        usual = dict.fromkeys(OFFLINE)
    elif options.study == "networks":
        usual = dict.fromkeys(STRATEGIES)
    report.require_names("variant", options.usual or (), usual)
    chosen = {name: usual[name] for name in options.usual or usual}
    own = {word: None if options.device == "offline" else model_of(word) for word in options.variant}
    return chosen | own


def machine(device: str) -> str:
    """What a study runs on, with the processors that this process may use.  Raises DeviceError without a GPU."""
    processors = f"{report.processor()}, {host_cores()} cores"
    return f"{report.gpu('--device c or offline')}, {processors}" if device == "cuda" else processors


if __name__ == "__main__":
    report.run(main)
