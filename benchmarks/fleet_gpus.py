"""Trials per second with 1, 2, 4 ... GPUs of one host, and a model of where more of them stop to help.

    python -m benchmarks.fleet_gpus [--trials 512] [--devices 1 2] [--settings quick long] [--json FILE]

The tutorial's convolution layer is tuned from the same seed with every number of devices, one after the other, with an
empty kernel cache.  All builders of the host serve every run, except in the rows "share of cores", where one GPU has
only its part of the cores.

quick   repeat=1, min_repeat_ms=300, as in the tutorial: a figure ends when it has settled, after some 10 ms
ten     repeat=10: a spread for every program
long    repeat=40: some 300 ms of runs for each program, the time that the tutorial's setting takes in TVM

Criterion where measuring is what takes longest: 1.8 times the trials per second with 2 devices, 3.2 times with 4.

A trial takes `search` seconds of the one process that proposes, learns and writes records, `compile` seconds of a core
and `measure` seconds of a device.  All three go on side by side, so G devices on C cores make at most
min(1 / search, C / compile, G / measure) trials per second.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ansor
import te_lite as te
from ansor.core.target.hardware import host_cores
from ansor.cost_model import CostModel
from ansor.measure import MeasureInput, MeasureResult
from ansor.measure.devices import list_devices
from benchmarks import report
from te_lite.schedule.state import State
from tests.conv_layer import conv2d_layer

SETTINGS = {"quick": 1, "ten": 10, "long": 40}
MIN_REPEAT_MS = 300
CRITERIA = {2: 1.8, 4: 3.2}
HOSTS = (1, 2, 4, 8, 16, 100, 1000)


class Runner(ansor.LocalRunner):
    """Leaves out the comparison of the best few at the end, which is no trial."""

    compare: Any = None


class TimedPolicy(ansor.SketchPolicy):
    """Keeps the seconds that proposing and learning take, and the number of rounds."""

    def __init__(self, task: ansor.SearchTask, model: CostModel, seed: int) -> None:
        super().__init__(task, model, seed=seed, verbose=0)
        self.seconds, self.rounds = 0.0, 0

    def ask(self, n: int) -> list[State]:
        start = time.perf_counter()
        states = super().ask(n)
        self.seconds += time.perf_counter() - start
        self.rounds += 1
        return states

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        start = time.perf_counter()
        super().tell(inputs, results)
        self.seconds += time.perf_counter() - start


class TimedRecorder(ansor.RecordToFile):
    """Keeps the seconds that writing takes, the results, and when the first and the last one came."""

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self.seconds = 0.0
        self.results: list[MeasureResult] = []
        self.arrivals: list[float] = []

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        start = time.perf_counter()
        super().callback(policy, inputs, results)
        self.arrivals.append(time.perf_counter())
        self.results += results
        self.seconds += self.arrivals[-1] - start


@dataclass(frozen=True)
class Run:
    """One tuning run; the last five are seconds per trial and seconds: of the driver, of a core, of a device, ..."""

    setting: str
    repeat: int
    devices: int
    builders: int
    trials: int
    valid: int
    best_us: float
    seconds_to_first: float
    seconds_to_last: float
    trials_per_s: float
    busy: list[float]
    search: float
    compile: float
    measure: float
    search_per_round: float

    def most(self, devices: int, cores: float) -> dict[str, float]:
        """The trials per second that each part allows."""
        return {"search": 1 / self.search, "compile": cores / self.compile, "measure": devices / self.measure}


def tune(setting: str, devices: int, builders: int, trials: int, seed: int) -> Run:
    """Tune the layer once."""
    folder = Path(tempfile.mkdtemp(prefix="fleet_"))
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)), target="cuda")
    policy = TimedPolicy(task, ansor.XGBModel(seed=seed), seed)
    recorder = TimedRecorder(str(folder / "log.json"))
    builder = ansor.LocalBuilder(n_parallel=builders)
    runner = Runner(repeat=SETTINGS[setting], min_repeat_ms=MIN_REPEAT_MS, devices=list(range(devices)))
    options = ansor.TuningOptions(trials, verbose=0, builder=builder, runner=runner, measure_callbacks=[recorder])
    os.environ["CODEGEN_CUDA_CACHE"] = str(folder / "cache")
    start = time.perf_counter()
    task.tune(options, policy)
    uses = runner.usage()
    builder.close()
    runner.close()
    n, last = len(recorder.results), recorder.arrivals[-1] - start
    busy = sum(use.busy for use in uses)
    costs = [r.cost * 1e6 for r in recorder.results if r.ok]
    return Run(
        setting, SETTINGS[setting], devices, builders, n, len(costs), min(costs, default=float("inf")),
        recorder.arrivals[0] - start, last, n / last, [use.busy / last for use in uses],
        (policy.seconds + recorder.seconds) / n, (sum(r.all_cost for r in recorder.results) - busy) / n, busy / n,
        policy.seconds / policy.rounds,
    )  # fmt: skip


def model_of(run: Run, cores_per_device: float) -> list[dict[str, Any]]:
    """For hosts and fleets of growing size: what stops them, and what it takes to keep every device busy.

    A round costs the search the same whatever its size, so `round_size` programs a round would hide it.
    """
    rows = []
    for devices in HOSTS:
        most = run.most(devices, devices * cores_per_device)
        rows.append(
            {
                "devices": devices,
                "trials_per_s": min(most.values()),
                "stopped_by": min(most, key=lambda part: most[part]),
                "cores_to_keep_busy": devices * run.compile / run.measure,
                "search_to_keep_busy_ms": run.measure / devices * 1e3,
                "round_size": devices * run.search_per_round / run.measure,
            }
        )
    return rows


def plan(devices: Sequence[int], settings: Sequence[str], trials: int) -> list[tuple[str, int, int, int]]:
    """`(setting, devices, builders, trials)` of each run: long settings have half of the trials."""
    cores, there = host_cores(), max(devices)
    runs = []
    for setting in settings:
        count = trials // 2 if setting == "long" else trials
        runs += [(setting, n, cores, count) for n in devices]
        if setting == "quick" and there > 1:
            runs.append((setting, 1, max(1, cores // there), count))
    return runs


def ratio(run: Run, runs: Sequence[Run], builders: int) -> float:
    """The trials per second of a run over those of one device with so many builders; 0 without such a run."""
    for one in runs:
        if (one.setting, one.devices, one.builders) == (run.setting, 1, builders):
            return run.trials_per_s / one.trials_per_s
    return 0.0


def row_of(run: Run, runs: Sequence[Run]) -> list[Any]:
    """A line of the table."""
    most = run.most(run.devices, run.builders)
    name = run.setting if run.builders == host_cores() else f"{run.setting}, share of cores"
    return [
        name, run.devices, run.builders, run.trials, run.seconds_to_last, run.trials_per_s,
        ratio(run, runs, host_cores()), CRITERIA.get(run.devices, 1.0), min(run.busy), run.search * 1e3,
        run.compile * 1e3, run.measure * 1e3, min(most, key=lambda part: most[part]), run.best_us,
    ]  # fmt: skip


def figures_of(runs: Sequence[Run], seed: int, cores_per_device: float) -> dict[str, Any]:
    """What the JSON file holds."""
    share = round(cores_per_device)
    return {
        "command": " ".join(["python -m benchmarks.fleet_gpus", *sys.argv[1:]]), "cores": host_cores(),
        "layer": "conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)", "seed": seed, "min_repeat_ms": MIN_REPEAT_MS,
        "criteria": CRITERIA, "runs": [asdict(r) for r in runs],
        "ratios": {f"{r.setting}, {r.devices} devices": ratio(r, runs, host_cores()) for r in runs if r.devices > 1},
        "ratios_to_one_with_its_share_of_cores": {
            f"{r.setting}, {r.devices} devices": ratio(r, runs, share)
            for r in runs if r.devices > 1 and r.setting == "quick"
        },
        "model": {f"{r.setting}, {r.devices} devices": model_of(r, cores_per_device) for r in runs},
    }  # fmt: skip


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--trials", type=int, default=512)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--devices", type=int, nargs="*", help="numbers of devices (default: 1, 2, 4 ... as there are)")
    p.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    options = p.parse_args()
    report.gpu()
    found, cores = list_devices("cuda"), host_cores()
    numbers = options.devices or [n for n in (1, 2, 4, 8) if n <= len(found)]
    machine = f"{len(found)} x {found[0].model}, {cores} cores"
    print(machine)
    tune("quick", max(numbers), cores, 32, options.seed + 1)
    runs: list[Run] = []
    for setting, devices, builders, trials in plan(numbers, options.settings, options.trials):
        runs.append(tune(setting, devices, builders, trials, options.seed))
        print(row_of(runs[-1], runs), flush=True)
        report.write_json(options.json, figures_of(runs, options.seed, cores / len(found)), machine)
    header = ["setting", "GPUs", "builders", "trials", "s", "trials/s", "ratio", "criterion", "least busy"]
    header += ["search ms", "compile ms", "measure ms", "stopped by", "best us"]
    report.table([row_of(run, runs) for run in runs], header)
    for run in {r.setting: r for r in runs if r.builders == cores}.values():
        fleet = [list(row.values()) for row in model_of(run, cores / len(found))]
        print(f"\nmodel from the run {run.setting} on {run.devices} devices, {cores / len(found):g} cores a device:")
        report.table(fleet, ["GPUs", "trials/s", "stopped by", "cores needed", "search ms needed", "round size"])


if __name__ == "__main__":
    report.run(main)
