"""Programs with copies in local storage that schedule fuzzing found to go wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json
from tests.conv_layer import conv2d_layer
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


ON_HEAP: list[list[Any]] = [
    ["CI", 5], ["SP", 3, 0, 1, [1, 1, 1], 1], ["SP", 3, 4, 8, [4, 1, 1], 1], ["SP", 3, 8, 7, [1, 1, 1], 1],
    ["SP", 3, 12, 7, [1, 1, 7], 1], ["SP", 3, 16, 8, [8], 1], ["SP", 3, 18, 3, [3], 1], ["SP", 3, 20, 3, [3], 1],
    ["RE", 3, [0, 4, 8, 12, 1, 5, 9, 13, 16, 18, 20, 2, 6, 10, 14, 17, 19, 21, 3, 7, 11, 15]], ["FSP", 6, 0, 1, 1],
    ["FSP", 6, 2, 2, 1], ["FSP", 6, 4, 3, 1], ["FSP", 6, 6, 4, 1], ["RE", 6, [0, 2, 4, 6, 1, 3, 5, 7]],
    ["CA", 3, 6, 3], ["CA", 1, 3, 5], ["FU", 6, [0, 1]], ["AN", 6, 0, 3], ["PR", 3, 0, "auto_unroll_max_step$512"],
    ["AN", 1, 3, 2], ["AN", 3, 21, 2], ["AN", 6, 6, 2],
]  # fmt: skip


@pytest.mark.long
def test_copies_share_their_scratch_memory() -> None:
    dag = te.ComputeDAG(conv2d_layer(1, 7, 7, 8, 8, 3, 1, 1))
    func = te.lower(replay(dag, [from_json(s) for s in ON_HEAP]))
    small_stack = replace(codegen_c.host_options(), stack_bytes=0)
    source = codegen_c.emit(func, options=small_stack)
    assert source.count("pad_temp = scratch(") == 1 and source.count("free(pad_temp)") == 1
    oracle = Oracle(dag, np.random.default_rng(0))
    assert oracle.mismatch(func, lambda f, args: codegen_c.build(f, options=small_stack)(*args)) is None
