"""Micro-kernels and packed columns: which shapes and panels they have, and what they compute on awkward extents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from ansor.core.hardware import HardwareParams
from ansor.sketch.extra import extra_sketches
from ansor.sketch.extra.micro_kernel import shapes
from ansor.space.decisions.splits import holes
from te_lite import ComputeDAG, Tensor
from te_lite.interp import run
from te_lite.topi import benchmarks
from tests.ansor.sketch_cases import HARDWARE, matmul
from tests.ansor.test_extra_rules import compiled, programs, rule_sketches
from tests.conv_layer import conv2d_layer
from tests.oracle import Oracle


def test_columns_that_are_read_along_are_packed() -> None:
    """Of weights [out, reduction], whatever their size, with the lanes last; not where they are stored as read."""
    a, b = te.placeholder((2, 9, 14), name="A"), te.placeholder((2, 20, 14), name="B")
    k = te.reduce_axis((0, 14), name="k")
    free = {"layout_free_placeholders": [b]}
    batch = te.compute((2, 9, 20), lambda n, i, j: te.sum(a[n, i, k] * b[n, j, k], axis=k), name="C", attrs=free)
    for tensors, order in ((benchmarks.dense(9, 96, 36), (1, 0)), ([a, b, batch], (0, 2, 1))):
        dag = ComputeDAG(tensors)
        for rule in ("packed_read", "micro_kernel"):
            sketches = rule_sketches(dag, "c", rule)
            panels = [(s.op.name, s.storage_order) for sketch in sketches for s in sketch.stages if s.storage_order]
            assert len(panels) == len(sketches) > 0 and {order for _, order in panels} == {order}
            left = extra_sketches(dag, "c", HARDWARE["c"], rules=[rule], stored_as_read=True)
            assert not any(s.storage_order for sketch in left for s in sketch.stages)
            assert len(left) == (len(sketches) if rule == "micro_kernel" else 0)


MICRO: dict[str, Callable[[], list[Tensor]]] = {
    "primes": lambda: benchmarks.dense(13, 23, 29),
    "one row": lambda: matmul(1, 40, 7),
    "one column": lambda: matmul(17, 1, 5),
    "one term": lambda: benchmarks.dense(11, 1, 37),
    "many columns": lambda: matmul(29, 197, 3),
    "nhwc": lambda: benchmarks.conv2d(1, 7, 5, 3, 19, 3, 2, 1),
    "nchw": lambda: conv2d_layer(1, 5, 13, 6, 4, 3, 1, 1),
}


@pytest.mark.parametrize("name", MICRO)
def test_micro_kernels_of_awkward_shapes(name: str) -> None:
    """Accumulators fit the registers of the machine, and nothing but unrolling and parallel loops is left to decide."""
    dag = ComputeDAG(MICRO[name]())
    oracle = Oracle(dag, np.random.default_rng(8))
    sketches = rule_sketches(dag, "c", "micro_kernel")
    assert bool(sketches) == (name not in ("one column",))
    for n, sketch in enumerate(sketches):
        assert not holes(sketch)
        (state,) = programs(sketch, "c", 1)
        assert oracle.mismatch(te.lower(state), compiled if n == 0 else run) is None


def test_micro_kernels_fill_the_registers() -> None:
    hardware = HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)
    state = ComputeDAG(benchmarks.dense(197, 768, 3072)).init_state
    (k,) = [k for k, s in enumerate(state.stages) if s.op.reduce_axis]
    found = shapes(state, k, hardware)
    assert len(found) == 3 and all(16 <= s.rows * -(-s.columns // 16) <= 28 for s in found)
    assert all(-197 % s.rows <= 197 // 20 and s.block % s.rows == 0 for s in found)
