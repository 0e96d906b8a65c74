"""What the rules beyond Ansor's win: the best of random programs of their sketches against that of ordinary ones.

    python -m benchmarks.extra_rules [--target cuda|c] [--operators C2D GMM.1 relu ...] [--trials 64] [--json FILE]

An operator is a name of `OPERATORS` in benchmarks/workloads (all four shapes), a name and the number of a shape
(`GMM.1`), or one of the layers in `LAYERS` (`matmul`, `matrix_vector`, ...).  Every rule that has sketches gets as many
trials as the ordinary sketches, drawn by the same sampler; a ratio above 1 is a win of the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ansor
import te_lite as te
from ansor.core.tasks.measure_values import MeasureInput, MeasureResult
from ansor.policy.search_loop import search_loop
from ansor.sketch import generate_sketches
from ansor.sketch.generate import OWNERS, extra_sketches
from benchmarks import report
from benchmarks.workloads import OPERATORS, SHAPES, WORKLOADS, Tensors
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program

LAYERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "conv2d_layer": ("conv2d_layer", (1, 7, 7, 512, 512, 3, 3, 1, 1)),
    "matmul": ("matmul", (128, 128, 2048)),
    "medium_matmul": ("matmul", (1000, 1000, 1000)),
    "large_matmul": ("matmul", (2048, 2048, 2048)),
    "linear": ("dense", (197, 3072, 768)),
    "dense": ("dense", (1, 512, 1000)),
    "matrix_vector": ("dense", (1, 4096, 4096)),
    "skinny_dense": ("dense", (16, 4096, 4096)),
    "relu": ("relu", (131072, 196)),
    "max_pool2d": ("max_pool2d", (16, 112, 112, 64, 3, 2, 1)),
    "global_avg_pool": ("global_avg_pool", (16, 7, 7, 2048)),
    "softmax": ("softmax", (4096, 1024)),
    "layer_norm": ("layer_norm", (2048, 768)),
    "long_softmax": ("softmax", (16, 1000000)),
}
"""The workload of each layer, and its shape."""

MISSES_IN_A_ROW = 200


@dataclass
class SketchSampler:
    """A policy that draws distinct programs from given sketches, taken in turn, and remembers the fastest."""

    task: ansor.SearchTask
    sketches: Sequence[State]
    rng: np.random.Generator
    best_us: float = float("inf")
    valid: int = 0
    trials: int = 0
    seen: set[State] = field(default_factory=set)

    def ask(self, n: int) -> list[State]:
        """Up to `n` programs that were not asked for yet."""
        found: list[State] = []
        misses = drawn = 0
        while len(found) < n and misses < MISSES_IN_A_ROW:
            sketch = self.sketches[(self.trials + drawn) % len(self.sketches)]
            state = drawn_program(sketch, self.task.target, self.task.hardware_params, self.rng)
            drawn += 1
            misses += 1
            if state is not None and state not in self.seen:
                self.seen.add(state)
                found.append(state)
                misses = 0
        return found

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Count the results."""
        self.trials += len(results)
        self.valid += sum(r.ok for r in results)
        self.best_us = min([self.best_us, *[r.cost * 1e6 for r in results if r.ok]])

    def search(self, trials: int, early_stopping: int | None, per_round: int, measurer: Any) -> State | None:
        """Measure `trials` programs, and give the best."""
        return search_loop(self, self.task, trials, early_stopping, per_round, measurer)


def cases(names: Sequence[str]) -> dict[str, Tensors]:
    """The computations that `names` ask for.  Raises TaskError for an unknown name."""
    shapes = [f"{operator}.{k}" for operator in OPERATORS for k in range(len(SHAPES[operator]))]
    report.require_names("operator", names, [*OPERATORS, *LAYERS, *shapes])
    out: dict[str, Tensors] = {}
    for name in names:
        operator, _, number = name.partition(".")
        if operator in LAYERS:
            workload, shape = LAYERS[operator]
            out[operator] = WORKLOADS[workload](*shape)
            continue
        for k, shape in enumerate(SHAPES[operator]):
            if not number or int(number) == k:
                out[f"{operator}.{k}"] = OPERATORS[operator](*shape)
    return out


def best_of(task: ansor.SearchTask, sketches: Sequence[State], trials: int, seed: int) -> SketchSampler:
    """The sampler after `trials` measured programs (fewer when the sketches have no more)."""
    sampler = SketchSampler(task, sketches, np.random.default_rng(seed))
    task.tune(ansor.TuningOptions(num_measure_trials=trials, verbose=0), search_policy=sampler)
    return sampler


def compare(name: str, tensors: Tensors, target: str, trials: int, seed: int) -> list[dict[str, Any]]:
    """One line for each rule that has sketches: the best times of both, in microseconds, and their ratio."""
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(tensors), target=target, desc=name)
    dag, hardware = task.compute_dag, task.hardware_params
    found = {rule: extra_sketches(dag, task.target, hardware, rules=[rule]) for rule in OWNERS}
    found = {rule: sketches for rule, sketches in found.items() if sketches}
    if not found:
        return []
    ordinary = best_of(task, generate_sketches(dag, task.target, hardware), trials, seed)
    lines = []
    for rule, sketches in found.items():
        other = best_of(task, sketches, trials, seed)
        lines.append(
            {
                "operator": name, "rule": rule, "sketches": len(sketches), "trials": other.trials, "valid": other.valid,
                "ordinary_us": ordinary.best_us, "extra_us": other.best_us,
                "ratio": ordinary.best_us / other.best_us,
            }
        )  # fmt: skip
    return lines


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--target", choices=["cuda", "c"], default="cuda")
    p.add_argument("--operators", nargs="+", default=[*OPERATORS, *LAYERS])
    p.add_argument("--trials", type=int, default=64)
    p.add_argument("--seed", type=int, default=0)
    options = p.parse_args()
    device = report.gpu("--target c") if options.target == "cuda" else None
    lines: list[dict[str, Any]] = []
    for name, tensors in cases(options.operators).items():
        for line in compare(name, tensors, options.target, options.trials, options.seed):
            print(line, flush=True)
            lines.append(line)
    header = ["operator", "rule", "sketches", "trials", "valid", "ordinary us", "extra us", "ratio"]
    report.table([list(line.values()) for line in lines], header)
    report.write_json(options.json, {"trials": options.trials, "seed": options.seed, "operators": lines}, device)


if __name__ == "__main__":
    report.run(main)
