"""What `mini_ansor` finds beside what the engine finds by the paper's rules alone, each in as many trials, on the CPU.

    python -m benchmarks.mini_beside_engine [--trials 64] [--seeds 1] [--json FILE]

The engine searches without extra rules.  The best programs of both, each compiled by its own package, are timed in
turns; the criterion is that mini's takes at most 1.5 times as long as the engine's, in the geometric mean, and that
mini's search takes at most two minutes.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import ansor
from ansor.core.device.nd import aligned_copy
from ansor.core.tasks.catalog import CATALOG
from benchmarks import report
from mini_ansor.__main__ import WORKLOADS, Search, tune
from mini_ansor.c import Measurer
from mini_ansor.program import Machine
from te_lite.meaning.reference import random_inputs

TURNS = 5
Row = dict[str, float | int | str]


def compared(name: str, trials: int, seed: int) -> Row:
    """Both searches of a workload at its usual shape, and their best programs in turns."""
    workload = WORKLOADS[name]
    args, rng = workload.make(*workload.default), np.random.default_rng(seed)
    search, measurer = Search(args, Machine(num_cores=os.cpu_count() or 1), rng), Measurer(args, rng)
    start = time.perf_counter()
    tune(search, trials, measurer, lambda state, result: None)
    mini_search = time.perf_counter() - start
    best = search.ranked()[0]
    entry = CATALOG[name]
    task = ansor.SearchTask(workload_key=entry.key(entry.default), target="c")
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.json")
        start = time.perf_counter()
        policy = ansor.SketchPolicy(task, params={"extra_sketch_rules": ""}, seed=seed, verbose=0)
        options = ansor.TuningOptions(trials, measure_callbacks=[ansor.RecordToFile(log)], verbose=0)
        task.tune(options, policy)
        engine_search = time.perf_counter() - start
        program = task.build_best(log)
    tensors = task.compute_dag.tensors
    inputs = random_inputs(tensors, np.random.default_rng(seed))
    arrays = [aligned_copy(inputs.get(t, np.empty(t.shape, t.dtype))) for t in tensors]
    turns = [(measurer.measure(best[0]).cost, program.time(*arrays, repeat=3).median) for _ in range(TURNS)]
    mini, engine = (statistics.median(side) for side in zip(*turns, strict=True))
    found: Row = {"workload": name, "seed": seed, "trials": trials, "mini_s": mini, "engine_s": engine}
    return {**found, "ratio": mini / engine, "mini_search_s": mini_search, "engine_search_s": engine_search}


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--trials", type=int, default=64)
    p.add_argument("--seeds", type=int, default=1)
    options = p.parse_args()
    rows = [compared(name, options.trials, seed) for name in WORKLOADS for seed in range(options.seeds)]
    names = list(rows[0])
    report.table([[row[name] for name in names] for row in rows], names)
    ratio = math.exp(statistics.mean(math.log(float(row["ratio"])) for row in rows))
    print(f"mini's best program beside the engine's, geometric mean: {ratio:.2f} (at most 1.5)")
    report.write_json(options.json, {"rows": rows, "ratio": ratio})


if __name__ == "__main__":
    report.run(main)
