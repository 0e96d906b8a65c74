"""Random search of the tutorial's convolution layer on a GPU: seconds per trial, valid share, and the best.

    python -m benchmarks.random_search [--trials 512] [--log FILE] [--json FILE]

Criteria on an H200: 0.08 s a trial or less end to end, at least 99% of the sampled programs valid, the best faster
than cuDNN's 110.6 us.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

import ansor
import te_lite as te
from ansor.measure import MeasureErrorNo
from benchmarks import report
from tests.conv_layer import conv2d_layer

CUDNN_US = 110.6


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--trials", type=int, default=512)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log", default=str(Path(tempfile.mkdtemp()) / "conv2d_layer.json"))
    options = p.parse_args()
    device = report.gpu()
    dag = te.ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1))
    task = ansor.SearchTask(compute_dag=dag, target="cuda", desc="conv2d_layer")
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=options.seed, verbose=1)
    start = time.perf_counter()
    tuning = ansor.TuningOptions(
        num_measure_trials=options.trials,
        verbose=1,
        measure_callbacks=[ansor.RecordToFile(options.log)],
    )
    task.tune(tuning, search_policy=policy)
    seconds = time.perf_counter() - start
    _, results = ansor.RecordReader(options.log).read_lines()
    outcomes = Counter(MeasureErrorNo(r.error_no).name for r in results)
    best = min(r.cost for r in results if r.ok) * 1e6
    valid = outcomes["NO_ERROR"] / len(results)
    rows = [
        ["seconds per trial", seconds / len(results), 0.08],
        ["share of valid programs", valid, 0.99],
        ["best us", best, CUDNN_US],
    ]
    report.table(rows, [f"{len(results)} trials", "measured", "criterion"])
    print(f"outcomes: {dict(outcomes)}")
    figures = {"trials": len(results), "seconds": seconds, "best_us": best, "outcomes": dict(outcomes)}
    report.write_json(options.json, figures, device)


if __name__ == "__main__":
    report.run(main)
