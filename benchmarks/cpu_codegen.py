"""How fast programs are lowered and emitted, and how fast the emitted C runs.

    python -m benchmarks.cpu_codegen [--trials 64] [--json FILE]

Criteria: lowering plus emission of the convolution layer's programs 50 ms or less in the median, on one core;
matmul 1024 hand-scheduled through the API at most 1.67 times NumPy's (OpenBLAS) time on the same cores; the best of
64 random programs of the convolution layer at least 5 times faster than its untuned loop nest.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ansor
import codegen_c
import te_lite as te
from ansor.cli.compare import timed_in_turns
from ansor.core.device.nd import aligned_copy
from ansor.sketch import generate_sketches
from benchmarks import report
from te_lite import Tensor
from te_lite.meaning.reference import random_inputs
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.workloads import matmul

PROGRAMS = 40


def packed_matmul(n: int, rows: int = 8, columns: int = 32, depth: int = 256) -> tuple[te.Schedule, list[Tensor]]:
    """The schedule of BLAS libraries: a packed panel of B, a tile of C in registers."""
    a, b, c = matmul(n, n, n)
    s = te.create_schedule(c.op)
    panel = s.cache_read(b, "local", [c])
    i, j = c.op.axis
    (k,) = c.op.reduce_axis
    io, ii = s[c].split(i, factor=rows)
    jo, ji = s[c].split(j, factor=columns)
    ko, ki = s[c].split(k, factor=depth)
    s[c].reorder(jo, ko, io, ki, ii, ji)
    s[c].parallel(jo)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    s[panel].compute_at(s[c], ko)
    s[panel].vectorize(panel.op.axis[1])
    return s, [a, b, c]


def emission_times(target: str, seed: int = 0) -> list[list[Any]]:
    """Milliseconds to lower (and for C also to emit) random programs of the convolution layer: one row a part."""
    dag = te.ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1))
    hardware = ansor.HardwareParams.for_target(target)
    sketches = generate_sketches(dag, ansor.Target(target), hardware)
    rng = np.random.default_rng(seed)
    lowering: list[float] = []
    emission: list[float] = []
    while len(lowering) < PROGRAMS:
        state = drawn_program(sketches[int(rng.integers(len(sketches)))], ansor.Target(target), hardware, rng)
        if state is None:
            continue
        start = time.process_time()
        func = te.lower(state)
        middle = time.process_time()
        lowering.append((middle - start) * 1e3)
        if target == "c":
            codegen_c.emit(func)
            emission.append((time.process_time() - middle) * 1e3)
    total = [a + b for a, b in zip(lowering, emission, strict=True)] if emission else lowering
    parts = [("lower", lowering)] + ([("emit C", emission), ("in all", total)] if emission else [])
    return [[f"{target}: {name}", statistics.median(x), max(x)] for name, x in parts]


def interleaved(runs: dict[str, Callable[[], object]], rounds: int = 25) -> dict[str, float]:
    """The least milliseconds of each run, taken in turns."""
    return {name: min(times) * 1e3 for name, times in timed_in_turns(runs, rounds).items()}


def matmul_against_numpy() -> dict[str, float]:
    """Milliseconds of matmul 1024 by our schedule and by NumPy; the results must agree."""
    rng = np.random.default_rng(0)
    a, b = (aligned_copy(rng.standard_normal((1024, 1024), dtype=np.float32)) for _ in range(2))
    c = aligned_copy(np.full((1024, 1024), np.nan, np.float32))
    schedule, args = packed_matmul(1024)
    module = codegen_c.build(te.lower(schedule, args, name="matmul"))
    module(a, b, c)
    want = a.astype(np.float64) @ b
    assert np.abs(c - want).max() <= 1e-5 * np.abs(want).max()
    return interleaved({"ours": lambda: module(a, b, c), "numpy": lambda: a @ b})


def conv_against_untuned(trials: int) -> dict[str, float]:
    """Milliseconds of the convolution layer: the best of `trials` random programs, and the untuned nest."""
    tensors = conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(tensors), target="c", desc="conv2d layer")
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "conv2d.json")
        options = ansor.TuningOptions(num_measure_trials=trials, verbose=0, measure_callbacks=[ansor.RecordToFile(log)])
        task.tune(options, search_policy=ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0))
        schedule, args = task.apply_best(log)
    inputs = random_inputs(tensors, np.random.default_rng(0))
    arrays = [aligned_copy(inputs.get(t, np.full(t.shape, np.nan, t.dtype))) for t in tensors]
    tuned = codegen_c.build(te.lower(schedule, args, name="tuned"))
    untuned = codegen_c.build(te.lower(task.compute_dag.init_state, name="untuned"))
    return interleaved({"best": lambda: tuned(*arrays), "untuned": lambda: untuned(*arrays)}, rounds=7)


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--trials", type=int, default=64)
    options = p.parse_args()
    report.let_blas_choose()
    rows = emission_times("c") + emission_times("cuda")
    report.table(rows, ["conv2d layer", "median ms", "max ms"])
    mm = matmul_against_numpy()
    conv = conv_against_untuned(options.trials)
    worst = max(row[1] for row in rows)
    ratios = [
        ["lowering + emission / 50 ms", worst, worst / 50, 1.0],
        ["matmul 1024: ours / NumPy", mm["ours"], mm["ours"] / mm["numpy"], 1.67],
        [f"conv2d best of {options.trials} / untuned", conv["best"], conv["best"] / conv["untuned"], 0.2],
    ]
    print()
    report.table(ratios, ["criterion", "ms", "ratio", "at most"])
    report.write_json(
        options.json, {"emission_ms": {r[0]: r[1] for r in rows}, "matmul_1024_ms": mm, "conv2d_layer_ms": conv}
    )


if __name__ == "__main__":
    report.run(main)
