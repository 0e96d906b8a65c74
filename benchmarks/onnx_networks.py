"""Networks exported to ONNX, ours after a search against onnxruntime on the CPU, in turns.

    python -m benchmarks.onnx_networks [--network NAME|FILE ...] [--trials 130] [--threads 2] [--log FOLDER]
        [--time-limit S] [--seed 0] [--torch] [--profile] [--busy] [--json FILE]

A network is a name of `NETWORKS`, exported by torch with random live weights (`benchmarks/zoo_models.py`), or an ONNX
file.  Its tasks are tuned with the default options until the log has that many trials, so a search that was stopped
goes on; then the network is compiled with the best programs, compared with onnxruntime's result for a random input, and
both are timed in turns with as many threads.  `--torch` times PyTorch in the same turns, eager and compiled, in each
memory format (`benchmarks/torch_side.py`), and the best of these counts.  `--profile` adds what each task and each
kernel that is none takes with us, and each node with onnxruntime.  `--busy` times both a second time, beside a busy
process on each core: what threads do while they wait for each other decides then.  Needs the extra `zoo`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import ansor
from ansor.cli.compare import timed_in_turns
from ansor.core.errors import TaskError
from ansor.core.target.hardware import host_cores
from benchmarks import report
from benchmarks.torch_side import torch_runs
from benchmarks.zoo_check import LIMIT, Feeds, export, random_inputs
from benchmarks.zoo_models import MODELS, Input, live_model
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.tuning.network import load_network
from relay_lite.tuning.network_times import network_times
from relay_lite.tuning.tune_network import compile_best, largest_difference, progress, tune
from te_lite.errors import require

EXPORTER = "new-18"
EXPORTING = ("torch", "torchvision", "timm", "onnxscript")
ROUNDS, SLICE = 15, 0.3
PROFILED_CALLS = 20


@dataclass(frozen=True)
class Zoo:
    """A model of the zoo at its usual size, for square images of `image` pixels a side if that is given."""

    name: str
    image: int | None = None

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it is exported and timed with."""
        return MODELS[self.name].full_inputs if self.image is None else (Input((1, 3, self.image, self.image)),)


NETWORKS: Mapping[str, Zoo] = {
    "squeezenet1_1-96": Zoo("squeezenet1_1", 96),
    "squeezenet1_1-224": Zoo("squeezenet1_1"),
    "deit_tiny-224": Zoo("deit_tiny"),
    "resnet18-224": Zoo("resnet18"),
    "resnet50-224": Zoo("resnet50"),
    "mobilenet_v2-224": Zoo("mobilenet_v2"),
    "shufflenet_v2_x0_5-224": Zoo("shufflenet_v2_x0_5"),
    "bert_4-128": Zoo("bert_4"),
}


@dataclass(frozen=True)
class Found:
    """Medians and least times in seconds; `difference` of the results is relative to the largest value.

    `pytorch` are the medians of PyTorch's variants, `busy` those of ours and onnxruntime's beside busy processes, if
    asked for.
    """

    network: str
    trials: int
    threads: int
    ours: float
    onnxruntime: float
    ours_least: float
    onnxruntime_least: float
    difference: float
    profile: Mapping[str, Mapping[str, float]]
    pytorch: Mapping[str, float]
    busy: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.onnxruntime

    @property
    def torch_ratio(self) -> float | None:
        """Relative to the fastest of PyTorch's variants."""
        return self.ours / min(self.pytorch.values()) if self.pytorch else None

    @property
    def growth(self) -> tuple[float, float] | None:
        """How many times as long the medians are beside busy processes, ours and onnxruntime's."""
        return self.busy and (self.busy[0] / self.ours, self.busy[1] / self.onnxruntime)


def onnx_file(name: str, folder: Path) -> Path:
    """The ONNX file of a network, exported into `folder` where it is one of `NETWORKS`.  Raises SystemExit."""
    if name not in NETWORKS:
        return Path(name)
    zoo, path = NETWORKS[name], folder / f"{name}.onnx"
    model, _ = live_model(zoo.name, full_size=True)
    reason = export(model, random_inputs(zoo.inputs, 1), path, EXPORTER)
    if reason:
        sys.exit(f"{name}: not exported: {reason}")
    return path


def session_of(path: Path, threads: int, profile: Path | None = None) -> onnxruntime.InferenceSession:
    """onnxruntime with its own optimizations, on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def profile_of_onnxruntime(path: Path, threads: int, feeds: Feeds, folder: Path) -> Mapping[str, float]:
    """Seconds of a call of each node of onnxruntime's graph, by its operator and name."""
    session = session_of(path, threads, folder / "profile")
    for _ in range(PROFILED_CALLS):
        session.run(None, dict(feeds))
    seconds: dict[str, float] = defaultdict(float)
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = f"{event['args']['op_name']} {event['name'].removesuffix('_kernel_time')}"
            seconds[name] += 1e-6 * event["dur"] / PROFILED_CALLS
    return dict(seconds)


def profile_of_ours(
    module: GraphModule, tasks: Sequence[ansor.SearchTask], weights: Sequence[int], log: Path, seconds: float
) -> Mapping[str, float]:
    """Seconds of a call of each task in the network, times its weight, and of each other kernel."""
    times = network_times(module, tasks, weights, progress(log, tasks), seconds, PROFILED_CALLS)
    names = [f"{t.weight} x {t.task.desc.split(',')[0]} {t.task.workload_key}" for t in times.tasks]
    tuned = {name: t.weight * t.measured for name, t in zip(names, times.tasks, strict=True)}
    return {**tuned, **times.others}


def measured(name: str, options: argparse.Namespace, folder: Path) -> Found:
    """Tune, compile, check and time one network.  Raises AssertionError for a result that differs."""
    path = onnx_file(name, folder)
    network = load_network(str(path))
    feeds = network.inputs(np.random.default_rng(options.seed))
    tasks, weights = ansor.extract_tasks(network.graph, network.params, "c")
    options.log.mkdir(parents=True, exist_ok=True)
    log = options.log / f"{path.stem}_{report.circumstances()['commit'][:7]}.json"
    tuned = tune(tasks, weights, log, options.trials, seed=options.seed, time_limit=options.time_limit)
    module, session = compile_best(network, "c", log), session_of(path, options.threads)
    module.run(**feeds)
    want = session.run(None, dict(feeds))
    difference = max(largest_difference(module.get_output(k).numpy(), x) for k, x in enumerate(want))
    assert difference <= LIMIT, f"{name}: the result differs from onnxruntime's by {difference:.1e}"
    runs = {"ours": module.run, "onnxruntime": lambda: session.run(None, dict(feeds))}
    inputs = [feeds[i.name] for i in session.get_inputs()]
    others = torch_runs(NETWORKS[name].name, inputs, want, options.threads) if options.torch else {}
    times = timed_in_turns({**runs, **others}, ROUNDS, SLICE)
    medians = {side: statistics.median(t) for side, t in times.items()}
    ours, theirs = (medians.pop(side) for side in runs)
    busy = medians_when_busy(runs) if options.busy else None
    profile: dict[str, Mapping[str, float]] = {}
    if options.profile:
        profile["ours"] = profile_of_ours(module, tasks, weights, log, ours)
        profile["onnxruntime"] = profile_of_onnxruntime(path, options.threads, feeds, folder)
    least = [min(times[side]) for side in runs]
    return Found(
        name, tuned.trials, options.threads, ours, theirs, least[0], least[1], difference, profile, medians, busy
    )


def medians_when_busy(runs: Mapping[str, Callable[[], object]]) -> tuple[float, float]:
    """The medians of both, in seconds, while each core has another process to run."""
    with busy_cores():
        first, second = (statistics.median(t) for t in timed_in_turns(runs, ROUNDS, SLICE).values())
    return first, second


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process on each core that never waits."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(host_cores())]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def print_profile(found: Found) -> None:
    """The tables of `--profile`, longest first."""
    for side, seconds in found.profile.items():
        print(f"\n{found.network}, {side}: {1e3 * sum(seconds.values()):.3f} ms in all")
        rows = [[1e3 * s, name[:120]] for name, s in sorted(seconds.items(), key=lambda item: -item[1])]
        report.table(rows[:30], ["ms", "what"])


def write(file: str | None, found: Sequence[Found]) -> None:
    """The figures of the networks so far."""
    figures = [{**asdict(f), "ratio": f.ratio, "torch_ratio": f.torch_ratio, "growth": f.growth} for f in found]
    report.write_json(file, {"networks": figures})


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    p.add_argument("--network", nargs="+", default=["squeezenet1_1-96", "deit_tiny-224"], metavar="NAME|FILE")
    p.add_argument("--trials", type=int, default=130)
    p.add_argument("--threads", type=int, default=host_cores())
    p.add_argument("--log", type=Path, default=Path("onnx_network_logs"), help="the folder of the searches")
    p.add_argument("--time-limit", type=float, metavar="S", help="of the search of one network")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--torch", action="store_true", help="time PyTorch, too; for names only")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--busy", action="store_true", help="time again beside a busy process on each core")
    return p.parse_args()


def main() -> None:
    options = arguments()
    report.require_packages("onnx", "onnxruntime", *(EXPORTING if NETWORKS.keys() & {*options.network} else ()))
    for name in options.network:
        law = f"a file or one of {', '.join(NETWORKS)} is needed"
        require(name in NETWORKS or Path(name).exists(), TaskError, f"--network {name!r}", law)
        law = f"one of {', '.join(NETWORKS)} is needed, a file is no model of PyTorch"
        require(name in NETWORKS or not options.torch, TaskError, f"--torch --network {name!r}", law)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.network:
            found.append(measured(name, options, Path(folder)))
            write(options.json, found)
    for f in found:
        print_profile(f)
    print()
    rows = [[f.network, f.trials, 1e3 * f.ours, 1e3 * f.onnxruntime, f.ratio, f.difference] for f in found]
    report.table(rows, ["network", "trials", "ours ms", "onnxruntime ms", "ratio", "difference"])
    rows = [[f.network, v, 1e3 * s, f.ours / s] for f in found for v, s in f.pytorch.items()]
    if rows:
        print()
        report.table(rows, ["network", "PyTorch", "ms", "ratio"])
    rows = [[f.network, 1e3 * f.busy[0], 1e3 * f.busy[1], *f.growth] for f in found if f.busy and f.growth]
    if rows:
        print()
        report.table(rows, ["beside busy processes", "ours ms", "onnxruntime ms", "growth of ours", "of onnxruntime"])


if __name__ == "__main__":
    report.run(main)
