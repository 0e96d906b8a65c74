"""Programs with copies in local storage that schedule fuzzing found to go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

import codegen_c
import te_lite as te
from te_lite.replay import replay
from te_lite.step import from_json
from tests.oracle import Oracle
from tests.workloads import conv2d_nchw, conv2d_nhwc

STEPS: list[list[Any]] = [
    ["CHR", 3, "local", [5]], ["CI", 6], ["RE", 3, [6, 5, 3, 1, 0, 2, 4]], ["SP", 3, 2, 0, [4], 1],
    ["SP", 3, 7, 0, [2, 2, 2], 0], ["RE", 3, [5, 6, 4, 7, 1, 0, 10, 8, 3, 9, 2]], ["CA", 3, 4, 0],
    ["AN", 4, 3, 2], ["PR", 7, 0, "auto_unroll_max_step$64"],
]  # fmt: skip


def test_copy_of_a_computed_stage() -> None:
    dag = te.ComputeDAG(conv2d_nchw(1, 7, 2, 5, 3, 2, 1))
    func = te.lower(replay(dag, [from_json(s) for s in STEPS]))
    oracle = Oracle(dag, np.random.default_rng(0))
    assert oracle.mismatch(func, lambda f, args: codegen_c.build(f)(*args)) is None


GUARDED: list[list[Any]] = [
    ["CHR", 0, "local", [1]], ["SP", 1, 2, 0, [6, 3, 1], 0], ["RE", 1, [2, 1, 5, 0, 6, 4, 3]], ["CA", 1, 2, 1],
    ["SP", 2, 2, 0, [1, 1], 1], ["PR", 2, 0, "auto_unroll_max_step$64"],
]  # fmt: skip


def test_registers_that_a_guard_sets() -> None:
    dag = te.ComputeDAG(conv2d_nhwc(1, 6, 3, 4, 3, 1, 1, 1))
    func = te.lower(replay(dag, [from_json(s) for s in GUARDED]))
    oracle = Oracle(dag, np.random.default_rng(0))
    assert oracle.mismatch(func, lambda f, args: codegen_c.build(f)(*args)) is None
