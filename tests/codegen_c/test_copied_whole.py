"""A stage copied whole into local storage is no set of registers."""

from __future__ import annotations

import numpy as np

import codegen_c
import te_lite as te
from te_lite.replay import replay
from te_lite.step import Annotate, CacheRead
from tests.oracle import Oracle
from tests.workloads import conv2d_nchw


def test_copy_of_a_computed_stage() -> None:
    dag = te.ComputeDAG(conv2d_nchw(1, 7, 2, 5, 3, 2, 1))
    func = te.lower(replay(dag, [CacheRead(3, "local", (5,)), Annotate(4, 3, "vectorize")]))
    oracle = Oracle(dag, np.random.default_rng(0))
    assert oracle.mismatch(func, lambda f, args: codegen_c.build(f)(*args)) is None
