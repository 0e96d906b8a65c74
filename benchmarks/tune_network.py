"""The main job on a GPU: ResNet-18 tuned, compiled, checked, timed end to end, beside cuDNN and PyTorch.

    python -m benchmarks.tune_network --network resnet-18 --target cuda --trials 4992 --log F --time-limit S --json F

The tuning goes on where the log ends, so it may be spread over several runs: `--resume` names logs that are copied
into a log that is new.  `--parts` chooses among `tune`, `network` (compile, check, time, table) and `torch`.

Criteria on an H200 (ResNet-18 NHWC, batch 1, float32): 4,992 trials in 600 s or less, all tasks valid, verified result,
end to end below 600 us, estimate and measurement less than 15 % apart.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.devices import hardware_of
from ansor.core.device.backend import on_device
from ansor.core.target.target import HALVES, PRECISIONS, STRICT
from ansor.measure import MeasureErrorNo
from ansor.records.journal import scan_lines
from ansor.records.lines import Record, validated_records
from ansor.scheduler.restore import restore
from benchmarks import pytorch, report, torch_network
from benchmarks.study_live import Case, latencies
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.tuning.network import Network, in_precision, load_network
from relay_lite.tuning.network_times import NetworkTimes, network_times, total_text
from relay_lite.tuning.tune_network import ROUND, check, compile_best, tune

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
PARTS = ("tune", "network", "torch")
PAUSE = 60.0
PROFILED_CALLS = 100


def join_logs(log: Path, earlier: Sequence[str]) -> int:
    """Copy the lines of earlier logs into a new log, each once; gives how many records.  A log that exists is left."""
    if log.exists() or not earlier:
        return 0
    lines = dict.fromkeys(line.decode() for name in earlier for _, line in scan_lines(name) if line)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{line}\n" for line in lines))
    return sum(line.startswith("{") for line in lines)


def cudnn_us() -> dict[str, float]:
    """cuDNN's float32 time of the tutorial's ResNet-18 tasks by workload key, epilogue included, better layout."""
    page = (GOLDEN / "tutorial_resnet18_tasks.txt").read_text()
    keys = dict(re.findall(r"^=+ Task (\d+)  \(workload key: (.*)\) =+$", page, flags=re.MULTILINE))
    times = json.loads((GOLDEN / "torch_h200_resnet18_ops_us.json").read_text())
    both = {f"t{n}": key for n, key in keys.items()}
    return {both[n]: min(t["nchw_fp32"][1], t["nhwc_fp32"][1]) for n, t in times.items()}


def log_seconds(stamps: Sequence[int]) -> float:
    """How long it took to write records with these times of day, without the pauses between runs."""
    gaps = [b - a for a, b in pairwise(sorted(stamps))]
    return float(sum(gap for gap in gaps if gap <= PAUSE))


def curve(stamps: Sequence[float], latencies: np.ndarray) -> list[list[float]]:
    """Seconds since the start, and the us of the best programs of all tasks then, wherever they got fewer.

    Records know their second, so a time is up to a second early.
    """
    best = np.minimum.accumulate(latencies * 1e6)
    fewer = np.flatnonzero(best < np.concatenate([[np.inf], best[:-1]]))
    return [[round(stamps[k], 1), round(float(best[k]), 2)] for k in fewer.tolist()]


def tuned(
    options: argparse.Namespace, tasks: Sequence[ansor.SearchTask], weights: Sequence[int]
) -> tuple[list[Record], dict[str, Any]]:
    """Tune, unless that part is left out; gives the records of the log and what they say."""
    log = Path(options.log)
    start, begun = time.perf_counter(), time.time()
    before = len(list(ansor.load_records(log))) if log.exists() else 0
    if "tune" in options.parts:
        tune(tasks, weights, log, options.trials, seed=options.seed + before, time_limit=options.time_limit)
    seconds = time.perf_counter() - start
    records = list(ansor.load_records(log))
    found = restore(records, tasks, ROUND)
    figures = {
        "trials": sum(s.trials for s in found), "trials_of_this_run": len(records) - before,
        "seconds_of_this_run": seconds, "seconds_of_the_log": log_seconds([r.timestamp for _, r in records]),
        "tasks_without_a_program": sum(not s.valid for s in found),
        "outcomes": dict(Counter(MeasureErrorNo(r.error_no).name for _, r in records)),
    }  # fmt: skip
    print(f"tuning: {figures}", flush=True)
    case = Case("", tuple(tasks), tuple(map(float, weights)))
    stamps = [res.timestamp - begun for _, res in validated_records(log)]
    figures["curve"] = curve(stamps[before:], latencies(log, case)[before:])
    return records, figures


def measured(
    options: argparse.Namespace, network: Network, tasks: Sequence[ansor.SearchTask], weights: Sequence[int],
    records: Sequence[Record], result: Path,
) -> tuple[GraphModule, dict[str, Any]]:  # fmt: skip
    """Compile, check, time, print the tables; the compiled network, and what was found.

    Our result for the first input goes into the file `result`.
    """
    start = time.perf_counter()
    module = compile_best(network, options.target, records)
    print(f"compiled in {time.perf_counter() - start:.1f} s", flush=True)
    checked = check(module, network, np.random.default_rng(options.seed))
    print(checked, flush=True)
    module.run(**network.inputs(np.random.default_rng(options.seed)))
    np.save(result, module.get_output(0).numpy(), allow_pickle=False)
    timing = module.benchmark(repeat=options.repeat, min_repeat_ms=500)
    print(timing)
    found = restore(records, tasks, ROUND)
    times = network_times(module, tasks, weights, found, timing.median, PROFILED_CALLS)
    rows = beside_cudnn(times)
    report.table(rows, ["task", "weight", "trials", "ours us", "in network us", "cuDNN us", "ours / cuDNN"])
    print(total_text(times))
    return module, {
        "end_to_end_us": 1e6 * timing.median, "figures_us": [1e6 * s for s in timing.results],
        "estimated_us": None if times.estimated is None else 1e6 * times.estimated, "difference": times.difference,
        "error": checked.error, "limit": checked.limit, "contrast": checked.contrast, "tasks": rows,
        "other_kernels_us": {name: 1e6 * s for name, s in times.others.items()},
    }  # fmt: skip


def beside_cudnn(times: NetworkTimes) -> list[list[Any]]:
    """A row for each task, then their sum over those that both have; cuDNN's figures are of the H200, for CUDA."""
    known = cudnn_us()
    rows: list[list[Any]] = []
    sums = [0.0, 0.0]
    for k, t in enumerate(times.tasks):
        theirs = known.get(t.task.workload_key) if t.task.target.is_gpu else None
        ours = None if t.estimated is None else 1e6 * t.estimated
        ratio: float | str = "-"
        if ours is not None and theirs is not None:
            ratio = ours / theirs
            sums = [sums[0] + t.weight * ours, sums[1] + t.weight * theirs]
        name = f"{k:2d} {t.task.desc}"
        rows.append([name, t.weight, t.trials, _or_dash(ours), 1e6 * t.measured, _or_dash(theirs), ratio])
    total = [["those that both have, by weight", "", "", sums[0], "", sums[1], sums[0] / sums[1]]] if sums[1] else []
    return [*rows, *total]


def _or_dash(value: float | None) -> float | str:
    return "-" if value is None else value


def torch_figures(options: argparse.Namespace, result: Path, figures: Path) -> Mapping[str, Any]:
    """PyTorch's figures, from a process of its own; what it had before an error counts, and the error is named."""
    size = [] if options.image_size is None else ["--image-size", str(options.image_size)]
    command = [
        sys.executable, "-m", "benchmarks.torch_network", "--seed", str(options.seed), "--layout", options.layout,
        "--batch-size", str(options.batch_size), *size, "--json", str(figures),
        *(["--ours", str(result)] if result.exists() else []),
    ]  # fmt: skip
    try:
        code = subprocess.run(command, check=False, timeout=options.torch_limit).returncode
        failure = f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        failure = f"stopped after {options.torch_limit:.0f} s"
    found: dict[str, Any] = json.loads(figures.read_text())["figures"] if figures.exists() else {}
    return {**found, "failure": failure} if failure else found


def add_tuning(p: argparse.ArgumentParser, trials: int) -> None:
    """The options of how a network is tuned and timed; `trials` by default."""
    p.add_argument("--target", default="cuda")
    p.add_argument("--precision", default=STRICT, choices=(*PRECISIONS, *HALVES))
    p.add_argument("--layout", default="NHWC")
    p.add_argument("--batch-size", type=int, default=1)
    p.add_argument("--trials", type=int, default=trials)
    p.add_argument("--log", required=True)
    p.add_argument("--resume", nargs="*", default=[], metavar="LOG")
    p.add_argument("--time-limit", type=float, metavar="S")
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--network", default="resnet-18")
    add_tuning(p, trials=4992)
    p.add_argument("--image-size", type=int)
    p.add_argument("--torch-limit", type=float, default=300, metavar="S")
    p.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    options = p.parse_args()
    device = report.gpu("--target c") if ansor.Target(options.target).is_gpu else None
    size = None if options.image_size is None else (options.image_size,)
    network = load_network(options.network, options.batch_size, options.layout, size, seed=options.seed)
    network, target = in_precision(network, on_device(ansor.Target(options.target)), options.precision)
    options.target = str(target)
    tasks, weights = ansor.extract_tasks(network.graph, network.params, target, hardware_of(target))
    print(f"{network.name}: {len(tasks)} tasks; {join_logs(Path(options.log), options.resume)} records resumed")
    beside_torch = "torch" in options.parts and options.network == torch_network.NAME and pytorch.available()
    figures: dict[str, Any] = {"network": network.name, "target": options.target, "tasks": len(tasks)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records, figures["tuning"] = tuned(options, tasks, weights)
        report.write_json(options.json, figures, device)
        if "network" in options.parts:
            _, figures["compiled"] = measured(options, network, tasks, weights, records, folder / "ours.npy")
            report.write_json(options.json, figures, device)
        if beside_torch:
            figures["torch"] = torch_figures(options, folder / "ours.npy", folder / "torch.json")
            report.write_json(options.json, figures, device)


if __name__ == "__main__":
    report.run(main)
