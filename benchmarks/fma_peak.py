"""How much of a processor's multiply-adds a product uses: the best of a search beside chains of them in registers.

    python -m benchmarks.fma_peak [--n 2048 ...] [--threads N] [--trials 96] [--log DIR] [--json FILE]

The peak is measured, by as many threads, in turns with the product: they add products of registers to twelve sums that
do not wait for each other, in parts that whoever is free takes, as the turns of our loops are.  (With equal shares it
is what the slowest thread gives: of 16 threads that was less than a product reached.)  NumPy's product is timed along.
The log goes on where a search was stopped.
Criterion: at least 75 % of the peak at 2048, for 2 threads and for 16.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.compare import timed_in_turns
from ansor.core.device.nd import aligned_copy
from ansor.core.target.hardware import host_cores
from benchmarks import report
from benchmarks.operators import searched, with_threads
from codegen_c.compile import load
from codegen_c.processor import host_options
from te_lite import ComputeDAG
from tests.workloads import matmul

SUMS, STEPS, PARTS = 12, 4_000, 50
ROUNDS, SLICE = 9, 0.2
LEAST = 0.75


def chains(lanes: int) -> str:
    """The C text of `chains(parts, steps)`: in each part, multiply-adds of `lanes` floats to sums in registers."""
    sums = [f"s{k}" for k in range(SUMS)]
    held = ", ".join(f'"+x"({x})' for x in [*sums, "a", "b"])
    return f"""#include <stdint.h>
typedef float vector __attribute__((vector_size({4 * lanes})));
void chains(int64_t parts, int64_t steps) {{
  #pragma omp parallel for schedule(dynamic)
  for (int64_t part = 0; part < parts; ++part) {{
    vector a = {{1}}, b = {{2}}, {", ".join(f"{x} = {{0}}" for x in sums)};
    for (int64_t step = 0; step < steps; ++step) {{
      {" ".join(f"{x} += a * b;" for x in sums)}
      __asm__ volatile("" : {held});
    }}
  }}
}}
"""


def peak() -> tuple[Callable[[], Any], float]:
    """A call of multiply-adds alone, and its operations."""
    lanes = host_options().vector_bytes // 4
    run = load(chains(lanes)).chains
    run.restype, run.argtypes = None, [ctypes.c_int64, ctypes.c_int64]
    parts = PARTS * host_cores()
    return lambda: run(parts, STEPS), 2.0 * lanes * SUMS * STEPS * parts


def figures(n: int, trials: int, log: Path) -> dict[str, float]:
    """Operations per second of the three, in 10^9, and our share of the peak."""
    tensors = matmul(n, n, n)
    task = ansor.SearchTask(compute_dag=ComputeDAG(tensors), target="c", desc=f"matmul {n}")
    searched(task, log / f"fma_peak_{n}_{host_cores()}.json", trials, None)
    module = ansor.build(task.best_state(log / f"fma_peak_{n}_{host_cores()}.json"), tensors, task.target)
    a, b = (aligned_copy(np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)) for _ in range(2))
    c, other = (aligned_copy(np.full((n, n), np.nan, np.float32)) for _ in range(2))
    alone, operations = peak()
    runs = {"ours": lambda: module(a, b, c), "numpy": lambda: np.matmul(a, b, out=other), "peak": alone}
    seconds = timed_in_turns(runs, ROUNDS, SLICE)
    assert np.abs(c - other).max() <= 1e-4 * np.abs(other).max(), "our product differs from NumPy's"
    done = {"ours": 2.0 * n**3, "numpy": 2.0 * n**3, "peak": operations}
    rates = {name: done[name] / statistics.median(times) * 1e-9 for name, times in seconds.items()}
    return {**rates, "share": rates["ours"] / rates["peak"]}


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--n", type=int, nargs="+", default=[2048])
    p.add_argument("--threads", type=int, help="threads of all three (default: the processors at hand)")
    p.add_argument("--trials", type=int, default=96)
    p.add_argument("--log", type=Path, default=Path("operator_logs"), help="the folder of the searches")
    options = p.parse_args()
    report.let_blas_choose()
    with_threads(options.threads)
    options.log.mkdir(parents=True, exist_ok=True)
    found = {n: figures(n, options.trials, options.log) for n in options.n}
    rows = [[n, host_cores(), *[f[key] for key in ("ours", "numpy", "peak", "share")], LEAST] for n, f in found.items()]
    report.table(rows, ["n", "threads", "ours, Gflop/s", "NumPy", "peak", "share of the peak", "at least"])
    report.write_json(options.json, {"threads": host_cores(), **{str(n): f for n, f in found.items()}})


if __name__ == "__main__":
    report.run(main)
