"""The best matrix product of a search, timed again in fresh processes, each with inputs of its own and checked there.

    python -m benchmarks.winner --target c --trials 64 --size 512 --json FILE

The error bar is half of what the times of all processes span, relative to their median.  What a process computes is
compared with NumPy's product in float64.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from benchmarks import report

SEEDS, REPEAT = (1, 2, 3), 5
TOLERANCE = 1e-5


def task_of(target: str, size: int) -> ansor.SearchTask:
    return ansor.SearchTask("matmul", (size,) * 3, target=target)


def retimed(log: Path, target: str, size: int, seed: int) -> dict[str, float]:
    """Seconds of the best program of a log on random inputs, and its worst error relative to the sums of magnitudes."""
    program, rng = task_of(target, size).build_best(log), np.random.default_rng(seed)
    inputs = [rng.standard_normal((size, size), np.float32) for _ in range(2)]
    a, b, out = map(ansor.nd.array, [*inputs, np.full((size, size), np.nan, np.float32)])
    program(a, b, out)
    wide = [x.astype("float64") for x in inputs]
    error = np.abs(out.asnumpy() - wide[0] @ wide[1]) / (np.abs(wide[0]) @ np.abs(wide[1]))
    timing = program.time(a, b, out, repeat=REPEAT, min_repeat_ms=100)
    return {"seconds": float(np.median(timing.results)), "error": float(np.max(error))}


def winner(log: Path, target: str, size: int) -> dict[str, Any]:
    """What the log says, what fresh processes say, their error bar, and how many of them found the program wrong.

    An error that is NaN counts as wrong.
    """
    recorded = min(r.cost for _, r in ansor.RecordReader(log) if r.ok)
    words = [os.fspath(log), "--target", target, "--size", str(size)]
    found = []
    for seed in SEEDS:
        found.append(json.loads(report.words_of("benchmarks.winner", "--again", str(seed), "--log", *words)))
    times = [f["seconds"] for f in found]
    middle = statistics.median(times)
    return {
        "recorded_us": recorded * 1e6, "retimed_us": [t * 1e6 for t in times], "ratio": middle / recorded,
        "error_bar": (max(times) - min(times)) / 2 / middle, "worst_error": max(f["error"] for f in found),
        "wrong": sum(not f["error"] < TOLERANCE for f in found),
    }  # fmt: skip


def searched(log: Path, target: str, size: int, trials: int) -> None:
    """A search for a matrix product that leaves its log."""
    task_of(target, size).tune(ansor.TuningOptions(trials, measure_callbacks=[ansor.RecordToFile(log)], verbose=0))


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__ or "")
    options.add_argument("--target", choices=("c", "cuda"), default="c")
    options.add_argument("--trials", type=int, default=64)
    options.add_argument("--size", type=int, default=512)
    options.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--again", type=int, help=argparse.SUPPRESS)
    return options.parse_args()


def main() -> None:
    given = arguments()
    if given.again is not None:
        print(json.dumps(retimed(given.log, given.target, given.size, given.again)))
        return
    device = report.gpu("--target c") if given.target == "cuda" else None
    with tempfile.TemporaryDirectory(prefix="winner_") as folder:
        searched(log := Path(folder) / "log.json", given.target, given.size, given.trials)
        figures = winner(log, given.target, given.size)
    rows = [[k, *v] if isinstance(v, list) else [k, v, "", ""] for k, v in figures.items()]
    report.table(rows, ["", *map(str, SEEDS)])
    report.write_json(given.json, figures, device)


if __name__ == "__main__":
    report.run(main)
