"""How the best program of a log stands: checked against NumPy, timed beside the untuned program and other libraries."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from te_lite.errors import require
from te_lite.meaning.reference import random_inputs

from ..core.device.build import build_function
from ..core.device.nd import aligned_copy
from ..core.errors import MeasureError
from ..core.host.hints import ansor
from ..core.tasks.measure_values import Baseline, MeasureInput
from ..core.tasks.task import SearchTask
from ..core.values.steady import far_apart
from ..measure.check import accepted_values, mismatch, poison
from ..measure.progress import reach_text, seconds_text
from ..records.best import load_best_record
from ..records.noted_records import baseline_among, known_baselines
from ..sketch.plain import untuned_state
from .numpy_side import REFERENCE, numpy_run
from .torch_side import torch_run

NUMPY, TORCH = LIBRARIES = ("numpy", "torch")
ROUNDS = 9
REST = 0.1
SLICE = 0.05
CALLED = 0.9
"""A program that takes less than this of a call is named apart from it."""


def timed_in_turns(
    runs: Mapping[str, Callable[[], object]], rounds: int, slice_s: float = SLICE
) -> dict[str, list[float]]:
    """Seconds of each run, `rounds` figures, taken in turns so that all see the same machine.

    The threads of a matrix library look for work for a while after it returned; a rest lets them fall asleep.  Waking
    up takes as long as a short program, so a figure is the mean over a slice of `slice_s` seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(REST)
            run()
            start, calls, seconds = time.perf_counter(), 0, 0.0
            while seconds < slice_s:
                run()
                calls, seconds = calls + 1, time.perf_counter() - start
            times[name].append(seconds / calls)
    return times


def compare(
    task: SearchTask, log: str | Path, rng: np.random.Generator, library: str = NUMPY
) -> dict[str, float]:  # fmt: skip
    """Print the comparison; gives the seconds of `best`, `untuned`, `numpy`, and of `torch` if that is the library.

    NumPy computes it as `numpy_side` says.  Raises NoRecordError when the log
    has no valid record, MeasureError when the best program, or PyTorch, computes something else than NumPy, and
    TaskError where PyTorch cannot be compared (`check_torch`).
    """
    tensors = task.compute_dag.tensors
    inputs = random_inputs(tensors, rng)
    arrays = [aligned_copy(inputs[t] if t in inputs else poison(t.shape, t.dtype)) for t in tensors]
    schedule, args = task.apply_best(str(log))
    best = build_function(schedule, args, task.target, "best")
    best(*arrays)
    right = accepted_values(task.compute_dag, inputs, task.target.precision)
    for t, array in zip(tensors, arrays, strict=True):
        if t in right:
            wrong = mismatch(array, right[t])
            require(not wrong, MeasureError, t.name, f"the best program is wrong: {wrong}")
    name, numpy = numpy_run(task, inputs)
    found = MeasureInput(task, schedule.state)
    nothing_found = baseline_among(known_baselines(log), found) is Baseline.UNTUNED
    runs: dict[str, Callable[[], object]] = {"best": lambda: best(*arrays)}
    if not nothing_found:
        untuned = build_function(untuned_state(task), tensors, task.target, "untuned")
        runs["untuned"] = lambda: untuned(*arrays)
    runs[NUMPY] = numpy
    if library == TORCH:
        outputs = [array for t, array in zip(tensors, arrays, strict=True) if t in right]
        runs[TORCH] = torch_run(task, [inputs[t] for t in tensors if t in inputs], outputs[0])
    figures = timed_in_turns(runs, ROUNDS)
    seconds = {name: statistics.median(t) for name, t in figures.items()}
    print("the result agrees with NumPy's, in float64")
    names = {
        "best": f"the best program{', untuned' if nothing_found else ''}",
        "untuned": "the untuned loop nest",
        NUMPY: name,
        TORCH: "PyTorch",
    }
    for run, s in seconds.items():
        print(f"  {names[run]:<32}{seconds_text(s):>10}   {s / seconds['best']:6.2f}x   {reach_text(figures[run])}")
    if name.startswith(REFERENCE):
        print(f"  {REFERENCE} says what is right, array by array, and is not written for speed")
    alone = min(best.time(*arrays, repeat=3, min_repeat_ms=round(1e3 * SLICE)).results)
    now = seconds["best"]
    if alone < CALLED * now:
        print(f"  all called from Python; the best program by itself takes {seconds_text(alone)}")
        now = alone
    seconds.setdefault("untuned", seconds["best"])
    slower = seconds["best"] > seconds["untuned"]
    for line in [*_verdict(task, log, found, now, slower), *_beside_torch(seconds)]:
        print(line)
    print(f"the records are in {log}")
    return seconds


def _verdict(task: SearchTask, log: str | Path, best: MeasureInput, now: float, slower: bool) -> Iterator[str]:
    """How the best program, which takes `now` seconds, stands to what the log says of it and to the untuned one."""
    _, result = load_best_record(log, task.workload_key, task.target)
    ratio = 1.0 if result is None else now / result.cost
    apart = far_apart(ratio)
    if result is not None and apart:
        busy = "now" if ratio > 1 else "when it was measured"
        law = f"takes {ratio:.2g} times what the log says of it, {seconds_text(result.cost)}"
        hint = f"compare again when it is quiet, or use `{ansor('remeasure', str(log))}`"
        yield f"the best program {law}; is the machine another one, or was it busy {busy}? {hint}"
    which = baseline_among(known_baselines(log), best)
    if which is not None:
        yield f"slower than {which.name.lower()}: the best program of the log is {which.phrase}"
    elif slower and not apart:
        yield "slower than untuned: the best program of the log takes longer than the untuned loop nest"


def _beside_torch(seconds: Mapping[str, float]) -> Iterator[str]:
    """What is to be said where PyTorch's operator is faster than the best program."""
    if seconds.get(TORCH, math.inf) < seconds["best"]:
        text = f"PyTorch's operator takes {seconds_text(seconds[TORCH])}"
        yield f"slower than torch: {text}, the best program {seconds_text(seconds['best'])}"
