"""Replay and bound inference of the tutorial's CUDA sketch for many tile-size assignments at once.

    python -m benchmarks.lanes [--lanes 2048] [--json FILE]

The criterion is 10 ms or less for 2,048 assignments on one core, equal to as many single replays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

import te_lite as te
from benchmarks import report
from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.schedule.replay import replay
from tests.conv_layer import as_lanes, as_single, cuda_steps, random_factors, tutorial_layer


def best_ms(run: Callable[[], object], repeat: int) -> tuple[float, float]:
    """The best and the median time of `run()` in ms."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times), float(np.median(times))


def count_differences(lanes: Bounds, dag: te.ComputeDAG, factors: list[np.ndarray], n: int) -> int:
    """How many of the n assignments give other extents when they are replayed alone."""
    wrong = 0
    for lane in range(n):
        single = infer_bounds(replay(dag, cuda_steps(as_single(factors, lane)))).state
        for many, one in zip(lanes.state.stages, single.stages, strict=True):
            picked = [v.extent if isinstance(v.extent, int | None) else int(v.extent[lane]) for v in many.vars]
            wrong += picked != [v.extent for v in one.vars]
    return wrong


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--lanes", type=int, default=2048)
    p.add_argument("--repeat", type=int, default=50)
    options = p.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    dag = tutorial_layer()
    factors = random_factors(np.random.default_rng(0), options.lanes)
    steps = cuda_steps(as_lanes(factors))
    state = replay(dag, steps)
    replay_ms = best_ms(lambda: replay(dag, steps), options.repeat)
    bounds_ms = best_ms(lambda: infer_bounds(state), options.repeat)
    total = best_ms(lambda: infer_bounds(replay(dag, steps)), options.repeat)
    start = time.perf_counter()
    wrong = count_differences(infer_bounds(state), dag, factors, options.lanes)
    single_ms = (time.perf_counter() - start) * 1e3
    rows = [
        ["replay", *replay_ms],
        ["bound inference", *bounds_ms],
        ["in all", *total],
        [f"{options.lanes} single replays", single_ms, single_ms],
    ]
    report.table(rows, [f"{options.lanes} lanes", "best ms", "median ms"])
    print(f"assignments that differ from their single replay: {wrong}")
    print(f"median in all / 10 ms: {total[1] / 10:.2f}   lanes against single replays: {single_ms / total[1]:.0f}x")
    figures = {"lanes": options.lanes, "replay_ms": replay_ms[1], "bounds_ms": bounds_ms[1], "total_ms": total[1]}
    report.write_json(options.json, {**figures, "single_ms": single_ms, "differences": wrong})


if __name__ == "__main__":
    report.run(main)
