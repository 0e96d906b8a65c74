"""The true optimum of the ten convolutions of ResNet-18 on VTA: every configuration is built, checked and simulated.

    python -m benchmarks.vta_exhaustive --journal FILE [--processes 2] [--json FILE] [--times FILE]
    python -m benchmarks.vta_exhaustive --sample 60 [--json FILE]

The journal has a line for each configuration; a run that was interrupted goes on where it ended.  `--times` writes the
modelled times of all valid configurations, so that tuners can be compared without simulating.  A trial is what a tuner
measures: instantiation, compilation, functional simulation, comparison with a reference, clock cycles.  Criteria: the
median of a valid trial 0.15 s or less, of an invalid one 5 ms or less.  `--sample` times that many random
configurations of each layer one after the other, without a journal, which is soon done on a machine that is idle.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import te_lite as te
from ansor.autotvm import RunOptions, Task, create
from ansor.autotvm.trial import trial
from ansor.core.errors import MeasureError
from ansor.records.journal import append_lines
from benchmarks import report
from te_lite.errors import require
from tests.vta_sim.conv import LAYERS, Layer
from vta_sim.backend import Trials
from vta_sim.top.templates import conv2d_template

TIMES = Path(__file__).parent / "results" / "vta_exhaustive_times.json"
BLOCK = 32
HEADER = ["layer", "size", "valid", "index", "optimum ms", "GOPS", "median ms", "valid s", "invalid ms"]
Times = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Outcome:
    """What became of a configuration: `ms` of the modelled machine, or the reason of the refusal; seconds it took."""

    layer: str
    index: int
    ms: float | None
    reason: str
    wall_s: float
    cpu_s: float


def layer_task(layer: Layer) -> Task:
    """The tuning task of a convolution."""
    data = te.placeholder((1, layer.ci, layer.size, layer.size, 1, 16), dtype="int8")
    kernel = te.placeholder((layer.co, layer.ci, layer.kernel, layer.kernel, 16, 16), dtype="int8")
    both = (layer.stride,) * 2, (layer.pad,) * 2, (1, 1)
    return create(conv2d_template, args=(data, kernel, *both, "NCHW1n16c", "int32"), target="vta")


def simulate(layers: dict[str, Layer], jobs: Sequence[tuple[str, Sequence[int]]], taken: Any, journal: Path) -> None:
    """Append the outcomes of blocks of configurations to the journal; `taken` counts the blocks that have a worker."""
    tasks, backend = {name: layer_task(layer) for name, layer in layers.items()}, Trials()
    while True:
        with taken.get_lock():
            number = taken.value
            taken.value += 1
        if number >= len(jobs):
            return
        name, indices = jobs[number]
        outcomes = [outcome(backend, name, tasks[name], index) for index in indices]
        append_lines(journal, [json.dumps(list(asdict(o).values())) for o in outcomes])
        print(f"{name}: {number + 1} of {len(jobs)} blocks", flush=True)


def outcome(backend: Trials, name: str, task: Task, index: int) -> Outcome:
    """One trial."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = trial(backend, task, task.config_space.get(index), RunOptions(), lambda: None)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Outcome(name, index, result.cost * 1e3 if result.ok else None, result.error_msg, wall, cpu)


def read_journal(path: Path) -> list[Outcome]:
    """The outcomes that are known already; none when there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Outcome(*json.loads(line)) for line in lines]


def complete(layers: dict[str, Layer], journal: Path, processes: int) -> list[Outcome]:
    """The outcomes of all configurations; those that the journal lacks are simulated and appended to it."""
    known = {(o.layer, o.index) for o in read_journal(journal)}
    jobs = []
    for name, layer in layers.items():
        left = [k for k in range(len(layer_task(layer).config_space)) if (name, k) not in known]
        jobs += [(name, left[k : k + BLOCK]) for k in range(0, len(left), BLOCK)]
    fork = multiprocessing.get_context("fork")
    taken = fork.Value("q", 0)
    workers = [fork.Process(target=simulate, args=(layers, jobs, taken, journal)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    require(not any(w.exitcode for w in workers), MeasureError, "exhaustive", "a process failed; run it again")
    found = [o for o in read_journal(journal) if o.layer in layers]
    return sorted(found, key=lambda o: (list(layers).index(o.layer), o.index))


def times_of(outcomes: Sequence[Outcome]) -> Times:
    """Milliseconds of the valid configurations, by layer and index."""
    times: Times = {}
    for o in outcomes:
        times.setdefault(o.layer, {})
        if o.ms is not None:
            times[o.layer][o.index] = o.ms
    return times


def write_times(path: Path, times: Times) -> None:
    """A layer a line: the indices and the milliseconds of its valid configurations."""
    rows = [f'"{name}": {json.dumps([list(ms), [round(x, 6) for x in ms.values()]])}' for name, ms in times.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def read_times(path: Path = TIMES) -> Times:
    """What `write_times` wrote."""
    return {name: dict(zip(*columns, strict=True)) for name, columns in json.loads(path.read_text()).items()}


def summary(name: str, layer: Layer, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of a layer."""
    task = layer_task(layer)
    valid = [o for o in outcomes if o.ms is not None]
    invalid = [o for o in outcomes if o.ms is None]
    best = min(valid, key=lambda o: (o.ms, o.index))
    assert best.ms is not None
    return {
        "layer": name,
        "size": len(outcomes),
        "valid": len(valid),
        "index": best.index,
        "optimum_ms": best.ms,
        "gops": task.flop / best.ms / 1e6,
        "median_ms": float(np.median([o.ms for o in valid])),
        "valid_s": float(np.median([o.cpu_s for o in valid])),
        "invalid_ms": float(np.median([o.cpu_s for o in invalid])) * 1e3,
        "config": task.config_space.get(best.index).values(),
        "reasons": dict(Counter(o.reason.partition(", got")[0] for o in invalid).most_common()),
    }


def seconds_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Median, 90th percentile and sum of the seconds of trials, on the clock and of a core."""
    figures: dict[str, float] = {}
    for kind, clock in (("cpu", "cpu_s"), ("wall", "wall_s")):
        seconds = np.array([getattr(o, clock) for o in outcomes])
        figures |= {f"{kind}_median": float(np.median(seconds)), f"{kind}_p90": float(np.quantile(seconds, 0.9))}
        figures[f"{kind}_sum"] = float(seconds.sum())
    return figures


def sampled(layers: dict[str, Layer], number: int) -> list[Outcome]:
    """The outcomes of that many random configurations of each layer, the same in every run."""
    rng, backend = np.random.default_rng(0), Trials()
    found = []
    for name, layer in layers.items():
        task = layer_task(layer)
        chosen = rng.choice(len(task.config_space), number, replace=False).tolist()
        found += [outcome(backend, name, task, index) for index in chosen]
    return found


def print_trials(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What a trial takes; gives the figures."""
    valid = seconds_of([o for o in outcomes if o.ms is not None])
    invalid = seconds_of([o for o in outcomes if o.ms is None])
    print(f"{len(outcomes)} configurations, {sum(o.ms is not None for o in outcomes)} valid")
    print(f"a valid trial: {valid['cpu_median']:.3f} s of a core, {valid['wall_median']:.3f} s (criterion 0.15 s)")
    milliseconds = invalid["cpu_median"] * 1e3, invalid["wall_median"] * 1e3
    print(f"an invalid one: {milliseconds[0]:.2f} ms of a core, {milliseconds[1]:.2f} ms (criterion 5 ms)")
    return {"configurations": len(outcomes), "valid_trial": valid, "invalid_trial": invalid}


def arguments() -> argparse.Namespace:
    p = report.parser(__doc__ or "")
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--journal", type=Path)
    what.add_argument("--sample", type=int, metavar="N", help="time N configurations of each layer")
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--layers", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    p.add_argument("--times", type=Path, metavar="FILE", help="write the times of all valid configurations")
    return p.parse_args()


def main() -> None:
    options = arguments()
    report.let_blas_choose()
    layers = {name: LAYERS[name] for name in options.layers}
    if options.sample:
        report.write_json(options.json, print_trials(sampled(layers, options.sample)))
        return
    outcomes = complete(layers, options.journal, options.processes)
    rows = [summary(name, layer, [o for o in outcomes if o.layer == name]) for name, layer in layers.items()]
    report.table([[row[key] for key in list(row)[: len(HEADER)]] for row in rows], HEADER)
    trials = print_trials(outcomes)
    if options.times:
        write_times(options.times, times_of(outcomes))
    report.write_json(options.json, {**trials, "layers": rows})


if __name__ == "__main__":
    report.run(main)
