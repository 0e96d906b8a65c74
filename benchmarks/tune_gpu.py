"""Evolutionary search on a GPU: the tutorial's convolution layer and a square matmul, against a clock.

    python -m benchmarks.tune_gpu [--trials 512] [--workload conv2d_layer matmul_1024] [--logs DIR] [--json FILE]

Criteria on an H200 after 512 trials: the layer at 45 us or less in 60 s or less (cuDNN 110.6), matmul 1024 at 56 us or
less (cuBLAS 56.2).
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import ansor
import te_lite as te
from ansor.core.tasks.catalog import matmul
from ansor.measure import MeasureErrorNo
from benchmarks import report
from tests.conv_layer import conv2d_layer

WORKLOADS: dict[str, tuple[Callable[[], list[te.Tensor]], float, float]] = {
    "conv2d_layer": (lambda: conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1), 45.0, 110.6),
    "matmul_1024": (lambda: matmul(1024, 1024, 1024), 56.0, 56.2),
}


def best_after(results: list[ansor.MeasureResult], n: int) -> float:
    """The least cost of the first `n` results, us; inf when none of them ran."""
    return min([r.cost * 1e6 for r in results[:n] if r.ok], default=float("inf"))


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--trials", type=int, default=512)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--workload", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    p.add_argument("--extra", help="extra sketch rules (default: those of the policy)")
    p.add_argument("--logs", default=tempfile.mkdtemp())
    options = p.parse_args()
    device = report.gpu()
    rows, figures = [], {}
    for name in options.workload:
        make, wanted, library = WORKLOADS[name]
        log = Path(options.logs) / f"{name}_{options.seed}.json"
        task = ansor.SearchTask(compute_dag=te.ComputeDAG(make()), target="cuda", desc=name)
        params = {} if options.extra is None else {"extra_sketch_rules": options.extra}
        model = ansor.XGBModel(seed=options.seed)
        policy = ansor.SketchPolicy(task, model, params, seed=options.seed, verbose=0)
        start = time.perf_counter()
        task.tune(ansor.TuningOptions(options.trials, measure_callbacks=[ansor.RecordToFile(log)], verbose=0), policy)
        seconds = time.perf_counter() - start
        _, results = ansor.RecordReader(log).read_lines()
        outcomes = Counter(MeasureErrorNo(r.error_no).name for r in results)
        curve = {n: best_after(results, n) for n in (16, 32, 64, 128, 256, 512, 1024) if n <= len(results)}
        best = best_after(results, len(results))
        rows.append([name, seconds, *[curve.get(n, float("nan")) for n in (64, 128, 256)], best, wanted, library])
        figures[name] = {
            "trials": len(results), "seconds": seconds, "best_us": best, "curve_us": curve, "outcomes": dict(outcomes),
        }  # fmt: skip
        print(f"{name}: {dict(outcomes)}")
    report.table(rows, ["workload", "seconds", "us at 64", "at 128", "at 256", "best us", "criterion", "library"])
    report.write_json(options.json, figures, device)


if __name__ == "__main__":
    report.run(main)
