"""Networks in halves, exported from PyTorch, tuned and compiled by us, beside `torch.compile` in the same process.

    python -m benchmarks.four_networks [--networks resnet50 ...] [--trials 24] [--seconds 60] [--logs FOLDER] [--most]
                                       [--target cuda] [--json F]

The models are those of `plain_networks.py`, at the batches given there.  `--trials` are programs a task, on average, in
at most so many `--seconds` a network; tuning goes on where a log in the folder ends.  PyTorch runs in float16, images
in channels last, compiled by default settings and, with `--most`, by `max-autotune`, each in a CUDA graph; ours takes
turns with it.  All results are compared with PyTorch's own in float32; ours may be off by `OWN_ERRORS` times what
PyTorch's eager float16 is off (a random ResNet-50 is off by 2.5e-2 of the largest result when its weights and pictures
are rounded to float16 and nothing else is).  With `--target c` all of this is done on the processor, to try the script.
"""

from __future__ import annotations

import copy
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import ansor
from ansor.cli.devices import hardware_of
from ansor.core.device.backend import on_device
from ansor.core.target.target import Target
from ansor.scheduler.restore import restore
from benchmarks import report
from benchmarks.beside_torch import IMAGE_RANK, exported
from benchmarks.plain_networks import NETWORKS, plain_network
from benchmarks.pytorch import captured, exact_torch
from benchmarks.torch_network import seconds_per_call
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.tuning.network import Network, in_precision
from relay_lite.tuning.network_times import NetworkTimes, network_times, total_text
from relay_lite.tuning.tune_network import ROUND, compile_best, largest_difference, tune

PRECISION, PROFILED, TURNS = "fp16", 10, 6
OWN_ERRORS, LEAST_LIMIT, MOST_LIMIT = 2.0, 2e-3, 1e-1
"""Our error may be so many times that of PyTorch's float16, or the least limit, and never more than the last."""
MODES = {"compiled": None, "max-autotune": "max-autotune-no-cudagraphs"}


def ours(torch: Any, name: str, target: str) -> tuple[Any, tuple[Any, ...], Network, Any]:
    """A model, its inputs, and its network in halves for a target."""
    model, inputs = plain_network(torch, name)
    return (
        model,
        inputs,
        *in_precision(exported(torch, model, inputs, name, "NHWC"), on_device(Target(target)), PRECISION),
    )


def tuned(
    options: Any, name: str, network: Network, target: Any, x: Any
) -> tuple[GraphModule, dict[str, Any], NetworkTimes]:
    """The network with the best programs of its log, after tuning; figures, and what its kernels take."""
    tasks, weights = ansor.extract_tasks(network.graph, network.params, target, hardware_of(target))
    log, start = Path(options.logs) / f"{name}.json", time.perf_counter()
    log.parent.mkdir(parents=True, exist_ok=True)
    tune(tasks, weights, log, options.trials * len(tasks), seed=0, time_limit=options.seconds, verbose=0)
    tuning = time.perf_counter() - start
    records = list(ansor.load_records(log))
    module = compile_best(network, target, records)
    module.run(**{_input(module): x.numpy()})
    found, timing = restore(records, tasks, ROUND), module.benchmark(repeat=3, min_repeat_ms=100)
    times = network_times(module, tasks, weights, found, timing.median, PROFILED)
    figures = {"tasks": len(tasks), "trials": len(records), "seconds": tuning, "us": 1e6 * timing.median}
    print(f"{name}: {figures}, {total_text(times)}", flush=True)
    return module, figures, times


def printed(times: NetworkTimes, most: int) -> list[list[Any]]:
    """The kernels that take longest, as rows: calls, us of all calls in the network, us of one as tuned."""
    rows: list[list[Any]] = [
        [t.task.desc[:60], t.weight, 1e6 * t.weight * t.measured, 1e6 * (t.estimated or 0)] for t in times.tasks
    ]
    rows += [[name[:60], "-", 1e6 * s, 0.0] for name, s in times.others.items()]
    rows.sort(key=lambda row: -row[2])
    report.table(rows[:most], ["kernel", "calls", "us", "tuned us"])
    return rows


def limit_of(own: float) -> float:
    """How far our results may be off where PyTorch's own in float16 are off by `own`."""
    return min(max(OWN_ERRORS * own, LEAST_LIMIT), MOST_LIMIT)


def beside(torch: Any, options: Any, model: Any, inputs: tuple[Any, ...], module: GraphModule) -> dict[str, Any]:
    """Microseconds of both in turns, and the errors of their results."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (x,), theirs = inputs, copy.deepcopy(model).to(device)
    with torch.no_grad():
        want = theirs(x.to(device)).cpu().numpy()
    last = x.ndim == IMAGE_RANK
    layout = torch.channels_last if last else torch.contiguous_format
    theirs = theirs.to(torch.float16, memory_format=layout)
    given = x.to(device, torch.float16).contiguous(memory_format=layout) if last else x.to(device)
    with torch.no_grad():
        own = largest_difference(theirs(given).float().cpu().numpy(), want)
    module.run()  # kernels that were timed one by one have written over what they read
    error = largest_difference(module.get_output(0).numpy(), want)
    assert error <= limit_of(own), f"our result is off by {error:.1e}, PyTorch's in float16 by {own:.1e}"
    figures: dict[str, Any] = {"error": error, "own_error": own, "ours_us": []}
    for mode in [*MODES][: 1 + options.most]:
        torch.compiler.reset()
        run = torch.compile(theirs, mode=MODES[mode])
        start = time.perf_counter()
        with torch.no_grad():
            replay, result = captured(torch, partial(run, given))
        off, seconds = largest_difference(result.float().cpu().numpy(), want), time.perf_counter() - start
        for _ in range(TURNS):
            figures["ours_us"].append(1e6 * float(module.benchmark(repeat=1, min_repeat_ms=200).median))
            figures.setdefault(f"{mode}_us", []).append(1e6 * seconds_per_call(torch, replay))
        print(f"{mode}: {figures[f'{mode}_us']} us, ours {figures['ours_us']}, {seconds:.0f} s")
        print(f"errors: compiled {off:.1e}, eager in float16 {own:.1e}, ours {error:.1e}")
        best = min(statistics.median(figures[f"{m}_us"]) for m in MODES if f"{m}_us" in figures)
        figures["ratio"] = statistics.median(figures["ours_us"]) / best
    return figures


def _input(module: GraphModule) -> str:
    """The name of the one input of a network."""
    graph = module.module.library.graph
    assert graph is not None
    (only,) = graph.params
    return only.name


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS), metavar="NAME")
    p.add_argument("--trials", type=int, default=24)
    p.add_argument("--seconds", type=float)
    p.add_argument("--logs", default="networks")
    p.add_argument("--rows", type=int, default=12)
    p.add_argument("--most", action="store_true")
    p.add_argument("--target", default="cuda")
    options = p.parse_args()
    device = report.gpu("--target c") if ansor.Target(options.target).is_gpu else None
    torch, figures = exact_torch(), dict[str, Any]()
    for name in options.networks:
        model, inputs, network, target = ours(torch, name, options.target)
        module, figures[name], times = tuned(options, name, network, target, inputs[0])
        figures[name]["kernels"] = printed(times, options.rows)
        report.write_json(options.json, figures, device)
        figures[name]["beside"] = beside(torch, options, model, inputs, module)
        print(f"{name}: ours / PyTorch's fastest: {figures[name]['beside']['ratio']:.3f}", flush=True)
        report.write_json(options.json, figures, device)


if __name__ == "__main__":
    report.run(main)
