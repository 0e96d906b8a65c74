"""The promises that need a GPU: `python -m benchmarks.promises R3 R11` there takes some two minutes.

They end when their time is up, and say how far they came: `SECONDS=1000` for the numbers that are promised.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.core.errors import MeasureError, TaskError
from ansor.core.tasks.measure_values import MeasureErrorNo
from ansor.sketch import generate_sketches
from benchmarks import report
from codegen_cuda.driver.toolkit import sanitizer_path
from te_lite.errors import require
from tests.codegen_cuda.test_emulator_faults import BOUNDS, RACES
from tests.drawn_programs import drawn_program
from tests.workloads import matmul

PAIRS, KERNELS, BATCH = 200, 200, 10
SIZE = 512
EMULATOR_TESTS = str(Path(__file__).parent.parent / "tests" / "codegen_cuda" / "test_emulator_faults.py")


def seconds_allowed() -> float:
    return float(os.environ.get("SECONDS", "40"))


def check_needs(promises: Sequence[str]) -> None:
    """Raises DeviceError where there is no GPU for those that need one, TaskError where R11 has no sanitizer."""
    if "R11" in promises:
        law = "compute-sanitizer is needed and neither on PATH nor in CUDA_HOME; it comes with NVIDIA's CUDA toolkit"
        require(sanitizer_path() is not None, TaskError, "promise R11", law)
    if {"R3", "R11"} & {*promises}:
        report.gpu()


def r3(folder: Path) -> dict[str, Any]:
    """One bad kernel costs one candidate."""
    pairs = 5 + PAIRS + BATCH
    (folder / "script").write_text("\n".join(["good"] * 5 + ["illegal_address", "good"] * pairs))
    os.environ["FAULTS"] = str(folder)
    before = ansor.register_backend("cuda", "tests.gpu.faulty_cuda")
    ansor.register_workload("faulty_matmul", lambda n: matmul(n, n, n), override=True)
    task = ansor.SearchTask("faulty_matmul", (SIZE,), target="cuda")
    sketch = generate_sketches(task.compute_dag, task.target, task.hardware_params)[0]
    state = drawn_program(sketch, task.target, task.hardware_params, np.random.default_rng(3))
    builder, runner = ansor.LocalBuilder(n_parallel=1), ansor.LocalRunner(timeout=6, min_repeat_ms=50)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    inp, end = ansor.MeasureInput(task, state), time.monotonic() + seconds_allowed()
    results = measurer.measure(task, None, [inp] * 5)
    try:
        while len(results) < 5 + 2 * PAIRS and time.monotonic() < end:
            results += measurer.measure(task, None, [inp] * (2 * BATCH))
    finally:
        measurer.close()
        if before is not None:
            ansor.register_backend("cuda", before)
    good, bad = results[:5] + results[6::2], results[5::2]
    undisturbed = statistics.median(r.cost for r in good[:5])
    after = [r.cost / undisturbed for r in good[5:] if r.ok]
    return {
        "pairs": len(bad), "good_lost": sum(not r.ok for r in good),
        "bad_misjudged": sum(r.error_no != MeasureErrorNo.RUNTIME_DEVICE for r in bad),
        "median_of_undisturbed": round(statistics.median(after), 4), "worst_of_undisturbed": round(max(after), 3),
    }  # fmt: skip


def r11(folder: Path) -> dict[str, Any]:
    """Emitted CUDA is memory-safe."""
    sanitizer = sanitizer_path()
    assert sanitizer is not None
    out: dict[str, Any] = {}
    for tool in ("memcheck", "racecheck"):
        command = [sanitizer, "--tool", tool, "--target-processes", "all", sys.executable, "-m", "benchmarks.sanitized",
                   str(KERNELS), str(seconds_allowed() / 2)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        kernels = re.search(r"(\d+) kernels ran", done.stdout)
        summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", done.stdout)
        if kernels is None or summary is None:
            print((done.stdout + done.stderr)[-2000:], file=sys.stderr)
            raise MeasureError(f"R11: {tool} did not end with a summary, what it said is above")
        out[tool] = {"kernels": int(kernels[1]), "reports": int(summary[1])}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", EMULATOR_TESTS, "-k",
               "races or bounds"]  # fmt: skip
    emulator = subprocess.run(command, capture_output=True, text=True, check=False)
    planted = {"planted_races": len(RACES), "planted_out_of_bounds": len(BOUNDS)}
    return {**out, **planted, "all_reported_by_the_emulator": emulator.returncode == 0}
