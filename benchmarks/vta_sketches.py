"""The ten convolutions of ResNet-18 on VTA by sketches, beside the best configuration that the template has.

    python -m benchmarks.vta_sketches [--layers C2 C10] [--seeds 5] [--trials 200] [--json FILE]

For each layer and seed a search of `--trials` programs, each compiled, played and compared bit for bit; a program that
another seed measured before is not played again, since the simulator gives the same figure.  The optimum of the
template is that of `benchmarks.vta_exhaustive`.  Criterion: medians of the seeds at most 1% above it.  With `--json`
every search is written when it ends, and those that are there are not repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.core.tasks.measure_values import BuildResult, MeasureInput, MeasureResult
from ansor.core.tasks.task import SearchTask
from ansor.sketch import generate_sketches
from benchmarks import report
from benchmarks.vta_exhaustive import TIMES, read_times
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.step import Step
from tests.vta_sim.conv import LAYERS, Layer
from vta_sim.measure.played import PlayedRunner
from vta_sim.sketch import workloads
from vta_sim.tuning.tune_sketches import sketch_policy

CRITERION = 1.01
HEADER = ["layer", "template ms", "sketches ms", "worst seed", "ratio", "spread", "seconds", "structure", "lengths"]


class Remembering(PlayedRunner):
    """Plays every program once, whoever asks."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, tuple[Step, ...]], MeasureResult] = {}

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        key = inp.task.workload_key, inp.steps
        if key not in self._known:
            self._known[key] = super().run(inp, built)
        return self._known[key]


class Best:
    """The best program that was measured, and what was wrong."""

    def __init__(self) -> None:
        self.cost, self.failed, self.count = float("inf"), 0, 0
        self.inp: MeasureInput | None = None

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            self.count += 1
            self.failed += not res.ok
            if res.ok and res.cost < self.cost:
                self.cost, self.inp = res.cost, inp


def task_of(layer: Layer) -> SearchTask:
    """The search task of a layer."""
    args = (1, layer.size, layer.size, layer.ci, layer.co, layer.kernel, layer.kernel, layer.stride, layer.pad)
    return SearchTask(workloads.conv2d, args=args, target="vta")


def search(layer: Layer, seed: int, trials: int, runner: Remembering) -> dict[str, Any]:
    """One search: its best milliseconds, and the program."""
    task, best, began = task_of(layer), Best(), time.perf_counter()
    options = ansor.TuningOptions(
        trials, verbose=0, runner=runner, builder=PlayedRunner.builder(), measure_callbacks=[best]
    )
    task.tune(options, sketch_policy(task, seed))
    assert best.inp is not None
    return {
        "seed": seed, "trials": best.count, "failed": best.failed, "ms": best.cost * 1e3,
        "seconds": round(time.perf_counter() - began, 1), **described(task, best.inp),
    }  # fmt: skip


def described(task: SearchTask, inp: MeasureInput) -> dict[str, Any]:
    """The sketch of a program by its number, and its lengths, one list a split."""
    lengths = [list(s.lengths) for s in inp.steps if isinstance(s, Split)]
    sketches = generate_sketches(task.compute_dag, task.target)
    pattern = [s for s in inp.steps if not isinstance(s, Split)]
    found = [k for k, s in enumerate(sketches) if [x for x in s.steps if not isinstance(x, Split)] == pattern]
    return {"sketch": found[0], "lengths": lengths}


def rows_of(figures: dict[str, Any], optima: dict[str, float]) -> list[list[Any]]:
    """The table: medians of the seeds."""
    rows: list[list[Any]] = []
    for name, runs in figures.items():
        ms = np.array([run["ms"] for run in runs])
        best = min(runs, key=lambda run: run["ms"])
        median, seconds = float(np.median(ms)), float(np.median([run["seconds"] for run in runs]))
        ratio = median / optima[name]
        rows.append(
            [name, optima[name], median, float(ms.max()), ratio, float(ms.max() / ms.min()), seconds, best["sketch"],
             " ".join(",".join(map(str, x)) for x in best["lengths"])]
        )  # fmt: skip
    return rows


def main() -> None:
    p = report.parser(__doc__)
    p.add_argument("--layers", nargs="+", default=list(LAYERS), choices=list(LAYERS))
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--trials", type=int, default=200)
    args = p.parse_args()
    optima = {name: min(times.values()) for name, times in read_times(TIMES).items()}
    path = Path(args.json) if args.json else None
    figures: dict[str, Any] = json.loads(path.read_text())["figures"]["layers"] if path and path.exists() else {}
    for name in args.layers:
        runner = Remembering()
        for seed in range(args.seeds):
            runs = figures.setdefault(name, [])
            if all(run["seed"] != seed or run["trials"] < args.trials for run in runs):
                runs.append(search(LAYERS[name], seed, args.trials, runner))
                print(f"{name}, seed {seed}: {runs[-1]['ms']:.4f} ms, {runs[-1]['seconds']} s", flush=True)
                report.write_json(args.json, {"layers": figures, "template_ms": optima})
    rows = rows_of(figures, optima)
    report.table(rows, HEADER)
    held = all(row[4] <= CRITERION for row in rows) and not any(r["failed"] for runs in figures.values() for r in runs)
    print(f"medians at most 1% above the template's optimum, and every program right: {'yes' if held else 'NO'}")


if __name__ == "__main__":
    report.run(main)
