"""The simulator of VTA: ten convolutions of ResNet-18 at their best published tiles.

    python -m benchmarks.vta_sim [--repeat 5] [--json FILE]

`queue` is the runtime that makes the instructions, `run` the functional simulation (decoding, checks, data), `clock`
the cycle model; `cycles` and `ms` are what it says of the accelerator.  All results are compared with a convolution in
NumPy.  The criterion is 2 s or less for the functional simulation of the ten on one core.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks import report
from tests.vta_sim.conv import BEST, LAYERS
from tests.vta_sim.packed import ConvProgram
from vta_sim import Device
from vta_sim.sim import Launch

HEADER = ["layer", "instr.", "GEMM it.", "queue ms", "run ms", "clock ms", "cycles", "ms"]


def once(name: str, check: bool) -> tuple[Launch, list[float]]:
    """The launch of a layer, and milliseconds of queue, run and clock."""
    program = ConvProgram(Device(), LAYERS[name], BEST[name])
    expected = program.fill(np.random.default_rng(0))
    times = [time.perf_counter()]
    program.program.emit(program.queue, program.buffers)
    times.append(time.perf_counter())
    launch = program.queue.synchronize()
    times.append(time.perf_counter())
    launch.timing()
    times.append(time.perf_counter())
    if check:
        assert np.array_equal(program.result(), expected), name
    return launch, [(b - a) * 1e3 for a, b in pairwise(times)]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--repeat", type=int, default=5)
    options = p.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report.let_blas_choose()
    rows: list[list[Any]] = []
    for name in LAYERS:
        runs = [once(name, check=k == 0) for k in range(options.repeat)]
        launch, best = runs[0][0], np.min([times for _, times in runs], axis=0).tolist()
        timing = launch.timing()
        rows.append([name, len(launch.order), launch.counters.gemm_counter, *best, round(timing.cycles), timing.ms])
    total: list[Any] = ["all", *(sum(row[k] for row in rows) for k in range(1, len(HEADER)))]
    report.table([*rows, total], HEADER)
    seconds = total[4] / 1e3
    rates = {"instructions_per_s": total[1] / seconds, "gemm_iterations_per_s": total[2] / seconds}
    print(f"functional simulation: {seconds:.3f} s (criterion 2 s)")
    print(f"{rates['instructions_per_s']:,.0f} instructions/s, {rates['gemm_iterations_per_s']:,.0f} GEMM iterations/s")
    layers = [dict(zip(HEADER, row, strict=True)) for row in rows]
    report.write_json(options.json, {"run_s": seconds, **rates, "layers": layers})


if __name__ == "__main__":
    report.run(main)
