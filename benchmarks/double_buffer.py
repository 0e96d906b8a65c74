"""Programs with and without double-buffered shared tiles, at the same tile sizes, on a GPU.

    python -m benchmarks.double_buffer [--programs 30] [--seed 0] [--rows] [--json FILE]

Random programs of a product of 1024 x 1024 matrices and of the tutorial's convolution layer are drawn with all their
shared copies fetched a turn ahead, and each is timed beside the same program without.  Both are checked against
float64.  A ratio below 1 says that fetching ahead is faster.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

import ansor
import te_lite as te
from ansor.sketch import generate_sketches
from ansor_ext.pipeline.async_copy import WAIT
from ansor_ext.pipeline.double_buffer import double_buffered
from ansor_ext.pipeline.steps import DoubleBuffer
from benchmarks import report
from benchmarks.codegen_vs_tvm import Case
from codegen_cuda.driver.module import CudaModule, open_device
from codegen_cuda.emission.emit import emit
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.workloads import matmul

TOLERANCE = 1e-4


def without(state: State) -> State:
    """The same program, every tile fetched when it is used."""
    return replay(state.dag, [step for step in state.steps if not isinstance(step, DoubleBuffer)])


def drawn(task: ansor.SearchTask, count: int, seed: int) -> list[State]:
    """Random programs of the task's sketches that fetch at least one tile ahead."""
    rng = np.random.default_rng(seed)
    sketches = [double_buffered(s) for s in generate_sketches(task.compute_dag, task.target, task.hardware_params)]
    usable = [s for s in sketches if s is not None]
    out: list[State] = []
    while len(out) < count:
        sketch = usable[int(rng.integers(len(usable)))]
        state = drawn_program(sketch, task.target, task.hardware_params, rng)
        if state is not None and WAIT in emit(te.lower(state)).source.rpartition("#endif")[2]:
            out.append(state)
    return out


def measured(case: Case, state: State) -> tuple[float, float]:
    """Microseconds of a program, and its relative error."""
    module = CudaModule(te.lower(state, case.tensors), open_device().arch)
    module(*case.handles)
    error = case.error()
    return module.time(*case.handles, repeat=3, min_repeat_ms=50).median * 1e6, error


def compared(name: str, tensors: list[te.Tensor], count: int, seed: int) -> list[list[Any]]:
    """One row a program: its name, microseconds without and with tiles fetched ahead, their ratio, the larger error."""
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(tensors), target="cuda", desc=name)
    case = Case(list(task.compute_dag.tensors))
    rows = []
    for number, state in enumerate(drawn(task, count, seed)):
        (plain, first), (ahead, second) = measured(case, without(state)), measured(case, state)
        rows.append([f"{name} {number}", plain, ahead, ahead / plain, max(first, second)])
    return rows


def summary(name: str, rows: list[list[Any]]) -> list[Any]:
    ratios = [r[3] for r in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    faster = sum(x < 1 for x in ratios) / len(ratios)
    best = [min(r[column] for r in rows) for column in (1, 2)]
    return [name, mean, statistics.median(ratios), min(ratios), max(ratios), faster, *best, max(r[4] for r in rows)]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--programs", type=int, default=30)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--rows", action="store_true", help="print every program")
    options = p.parse_args()
    device = report.gpu()
    workloads = {"matmul_1024": matmul(1024, 1024, 1024), "conv2d_layer": conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1)}
    found = {name: compared(name, t, options.programs, options.seed) for name, t in workloads.items()}
    if options.rows:
        report.table(
            [r for rows in found.values() for r in rows], ["program", "plain us", "ahead us", "ratio", "error"]
        )
        print()
    totals = [summary(name, rows) for name, rows in found.items()]
    header = ["ahead / plain", "mean", "median", "least", "most", "faster", "best plain us", "best ahead us", "error"]
    report.table(totals, header)
    wrong = [r[0] for rows in found.values() for r in rows if r[4] > TOLERANCE]
    print(f"wrong: {', '.join(wrong) or 'none'}")
    report.write_json(options.json, {"rows": found, "header": header, "summary": totals, "wrong": wrong}, device)


if __name__ == "__main__":
    report.run(main)
