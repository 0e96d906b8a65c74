"""The programs of TVM's CUDA log, lowered."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import te_lite as te
from te_lite.loops.stmt import LoweredFunc
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json
from tests.workloads import matmul

LOG = Path(__file__).parents[1] / "golden" / "tvm_log_matmul1024_cuda_h200.json"
COUNT = 64


@lru_cache(maxsize=1)
def _entries() -> tuple[te.ComputeDAG, list[list[object]]]:
    lines = LOG.read_text().splitlines()
    return te.ComputeDAG(matmul(1024, 1024, 1024)), [json.loads(line)["i"][1][1] for line in lines]


@lru_cache(maxsize=COUNT)
def golden_state(k: int) -> State:
    """The state of line `k`."""
    dag, entries = _entries()
    return replay(dag, map(from_json, entries[k]))


@lru_cache(maxsize=COUNT)
def golden_func(k: int) -> LoweredFunc:
    return te.lower(golden_state(k), name="matmul")
