"""The CUDA sketches of `tests/golden/sketches.json`, at their own shapes and at shapes small enough to emulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch import generate_sketches
from benchmarks import workloads as benchmarks
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program

HARDWARE = HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32)
_ALL = json.loads((Path(__file__).parents[1] / "golden" / "sketches.json").read_text())
ENTRIES: list[dict[str, Any]] = [e for e in _ALL if e["target"] == "cuda"]
BUILDERS = {**benchmarks.OPERATORS, **benchmarks.WORKLOADS}
REDUCED: dict[tuple[Any, ...], tuple[int, ...]] = {
    ("matmul", 512, 512, 512): (24, 32, 16),
    ("matmul", 8, 8, 512): (4, 4, 64),
    ("matmul", 16, 1024, 512): (8, 48, 12),
    ("double_matmul", 512): (16,),
    ("conv2d_layer", 1, 7, 7, 512, 512, 3, 3, 1, 1): (1, 7, 7, 16, 8, 3, 3, 1, 1),
    ("C1D", 1, 32, 512, 512, 3, 1, 1): (1, 12, 8, 16, 3, 1, 1),
    ("C2D", 1, 7, 7, 512, 512, 3, 1, 1): (1, 7, 7, 8, 16, 3, 1, 1),
    ("GMM", 1, 1024, 1024, 1024): (2, 16, 20, 12),
    ("DEP", 1, 7, 7, 1024, 3, 1, 1): (2, 7, 7, 16, 3, 1, 1),
    ("SFM", 2048, 2048): (6, 64),
    ("CBR", 1, 7, 7, 512, 512, 3, 1, 1): (1, 7, 7, 8, 12, 3, 1, 1),
    ("max_pool2d", 1, 56, 56, 512): (1, 9, 9, 8),
    ("softmax", 64, 1024): (4, 96),
    ("conv2d_winograd_nhwc", 1, 56, 56, 64, 64, 4): (1, 6, 6, 4, 8, 2),
    ("dense", 1, 512, 1000): (1, 20, 48),
    ("global_avg_pool", 1, 7, 7, 512): (1, 7, 7, 20),
    ("relu", 64, 1024): (6, 50),
}


def entry_name(entry: dict[str, Any]) -> str:
    """What a test calls an entry: its workload and arguments."""
    return "-".join(map(str, (entry["workload"], *entry["args"])))


def reduced_args(entry: dict[str, Any]) -> tuple[int, ...]:
    """The arguments of the small variant of an entry."""
    return REDUCED[(entry["workload"], *entry["args"])]


def sketches_of(entry: dict[str, Any], args: tuple[int, ...] | None = None) -> list[State]:
    """The CUDA sketches of an entry's workload, at its own arguments or at `args`."""
    dag = te.ComputeDAG(BUILDERS[entry["workload"]](*(args or entry["args"])))
    return generate_sketches(dag, "cuda", HARDWARE)


def annotated(sketch: State, number: int, seed: int) -> State:
    """A random program of sketch `number` of its workload."""
    state = drawn_program(sketch, "cuda", HARDWARE, np.random.default_rng([seed, number]))
    assert state is not None
    return state


def step_kinds(sketch: State) -> list[str]:
    """The kinds of the steps of a sketch, in order."""
    return [type(step).__name__ for step in sketch.steps]
