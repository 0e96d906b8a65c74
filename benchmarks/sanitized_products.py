"""Programs on tensor cores, each run once under NVIDIA's compute-sanitizer: by memcheck, racecheck and synccheck.

    python -m benchmarks.sanitized_products [--jobs 14] [--seconds 450] [--seed 0] [--json FILE] [NAME ...]

One program of each computation: products of every precision, linear layers, batches, convolutions, split sums, groups
of warps, rings, windows, attention; tiles, warps and tiles in the pipeline are drawn.  Every program has processes of
its own, several at a time, and its result is checked.  FILE has what is known after each; what the seconds do not
suffice for is said.  A NAME is that of a computation, or a pattern of several: `'ring*'`.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import te_lite as te
from ansor.core.errors import TaskError
from ansor.core.target.target import FP32X3, TF32, Target
from ansor.sketch.generate import extra_sketches
from ansor_ext.pipeline.steps import by_copy_engine
from benchmarks import report
from codegen_cuda.driver.module import CudaModule, open_device
from codegen_cuda.driver.toolkit import sanitizer_path
from te_lite.errors import require
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State
from tests.ansor_ext.attention.test_attention import EVERY as ATTENTION
from tests.ansor_ext.attention.test_attention_in_groups import CASES as CHAINS
from tests.ansor_ext.tensor_core.test_ring_convolutions import CASES as WINDOWS
from tests.ansor_ext.tensor_core.test_ring_sketches import CASES as RINGS
from tests.ansor_ext.tensor_core.test_tensor_core_rule import (
    EVERY,
    HARDWARE,
    IN_GROUPS,
    Checker,
    batched,
    conv,
    in_groups,
    linear,
    matmul,
)
from tests.drawn_programs import drawn_program

TOOLS = ("memcheck", "racecheck", "synccheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
PARTS: dict[str, Callable[[], list[te.Tensor]]] = {
    "two parts": lambda: matmul(53, 27, 61, "float32"),
    "two parts, 197 tokens": lambda: linear(197, 96, 48, "float32"),
    "two parts, batched": lambda: batched(2, 33, 40, 45, "float32", (False, True)),
    "two parts, convolution": lambda: conv(1, 3, 28, 19, 27, 3, "float32"),
    "two parts, split sums": lambda: linear(53, 40, 512, "float32"),
}


@dataclass(frozen=True)
class Watched:
    """A computation, and for which target and by which rule it is programmed."""

    tensors: Callable[[], list[te.Tensor]]
    precision: str = TF32
    rule: str = "tensor_core"
    groups: bool = False
    ring: bool = False


PROGRAMS: dict[str, Watched] = {
    **{name: Watched(tensors, groups=name in IN_GROUPS) for name, tensors in EVERY.items()},
    **{name: Watched(tensors, FP32X3) for name, tensors in PARTS.items()},
    **{f"attention, {name}": Watched(case.tensors, rule="attention") for name, case in ATTENTION.items()},
    **{f"ring, {name}": Watched(partial(list, case), groups=True, ring=True) for name, case in RINGS.items()},
    **{f"windows, {name}": Watched(case.tensors, groups=True, ring=True) for name, case in WINDOWS.items()},
    **{
        f"attention in groups, {name}": Watched(case.tensors, rule="attention", groups=True, ring=True)
        for name, (case, _) in CHAINS.items()
    },
}


def program_of(watched: Watched, seed: int) -> tuple[Checker, State]:
    """A random program of a computation, and what checks it."""
    target, rng = Target(f"cuda -model=H200 -precision={watched.precision}"), np.random.default_rng(seed)
    dag = ComputeDAG(watched.tensors())
    sketches = extra_sketches(dag, target, HARDWARE, rules=[watched.rule])
    found = [x for x in sketches if in_groups(x) == watched.groups and (in_ring(x) or not watched.ring)]
    state = drawn_program(found[int(rng.integers(len(found)))], target, HARDWARE, rng)
    assert state is not None
    return Checker(dag, watched.precision), state


def in_ring(sketch: State) -> bool:
    """Whether the copy engine fetches tiles."""
    return any(by_copy_engine(stage) for stage in sketch.stages)


def run_one(name: str, seed: int) -> None:
    """Run one program.  Raises AssertionError where its result is wrong."""
    checker, state = program_of(PROGRAMS[name], seed)
    module = CudaModule(te.lower(state, checker.dag.tensors), open_device().arch)
    arrays = checker.arrays()
    module(*arrays)
    wrong = checker.wrong(arrays).strip()
    assert not wrong, f"{name}: {wrong}"
    print(f"{len(module.program.kernels)} kernels ran")


def watched_run(sanitizer: str, tool: str, name: str, seed: int, seconds: float) -> dict[str, Any]:
    """What a tool says of a program: the kernels that ran and the reports; the end of the text where there is none."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m",
               "benchmarks.sanitized_products", "--one", name, "--seed", str(seed)]  # fmt: skip
    row: dict[str, Any] = {"program": name, "tool": tool}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        return {**row, "kernels": 0, "reports": None, "said": "its time was up"}
    kernels, summary = re.search(r"(\d+) kernels ran", done.stdout), SUMMARY.search(done.stdout)
    reports = int(summary[1]) if summary else None
    row |= {"kernels": int(kernels[1]) if kernels else 0, "reports": reports}
    clean = done.returncode == 0 and reports == 0 and kernels is not None
    return row if clean else {**row, "said": (done.stdout + done.stderr)[-1500:]}


def watch(names: Sequence[str], options: argparse.Namespace, device: str) -> list[dict[str, Any]]:
    """A row for each program and tool, as they end; written each time."""
    sanitizer, end = sanitizer_path(), time.monotonic() + options.seconds
    assert sanitizer is not None
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [
            pool.submit(lambda t, n: watched_run(sanitizer, t, n, options.seed, end - time.monotonic()), tool, name)
            for name in names
            for tool in TOOLS
        ]
        for done in as_completed(runs):
            rows.append(done.result())
            report.write_json(options.json, {"summary": summary_of(rows), "rows": rows}, device)
    return rows


def summary_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """For each tool: kernels that ran clean, and programs that did not."""
    return {
        tool: {
            "clean kernels": sum(r["kernels"] for r in rows if r["tool"] == tool and "said" not in r),
            "programs not clean": sum(r["tool"] == tool and "said" in r for r in rows),
        }
        for tool in TOOLS
    }


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("names", nargs="*", metavar="NAME", help="computations (default: all)")
    p.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) - 2, 1), help="processes at a time")
    p.add_argument("--seconds", type=float, default=450.0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--one", metavar="NAME", help="run this program here, unwatched")
    options = p.parse_args()
    names = [name for pattern in options.names for name in fnmatch.filter(PROGRAMS, pattern) or [pattern]]
    report.require_names("computation", [*names, *([options.one] if options.one else [])], PROGRAMS)
    device = report.gpu()
    if options.one:
        return run_one(options.one, options.seed)
    law = "compute-sanitizer is needed and neither on PATH nor in CUDA_HOME; it comes with NVIDIA's CUDA toolkit"
    require(sanitizer_path() is not None, TaskError, "sanitized_products", law)
    rows = watch(names or list(PROGRAMS), options, device)
    for row in rows:
        if "said" in row:
            print(f"--- {row['tool']}, {row['program']}: {row['reports']} reports\n{row['said']}")
    report.table(
        [[tool, *found.values()] for tool, found in summary_of(rows).items()], ["tool", "kernels", "not clean"]
    )
    return None


if __name__ == "__main__":
    report.run(main)
