"""Windows on processors: which computations have sketches, and what those compute."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor.space.decisions.loops import holes
from ansor_ext.windows.windows import tiles
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG, Tensor, topi
from tests.ansor_ext.test_extra_rules import compiled, programs, rule_sketches
from tests.oracle import Oracle


def depthwise_with_bias() -> list[Tensor]:
    data, weight = te.placeholder((1, 7, 9, 32), name="data"), te.placeholder((3, 3, 32, 1), name="weight")
    bias = te.placeholder((32,), name="bias")
    conv = topi.nn.depthwise_conv2d_nhwc(data, weight, 1, 1, 1)
    return [data, weight, bias, topi.nn.relu(topi.add(conv, bias))]


@pytest.mark.parametrize(
    "tensors",
    [
        depthwise_with_bias(),
        benchmarks.depthwise_conv2d(2, 5, 8, 16, 3, 2, 1),
        benchmarks.max_pool2d(1, 6, 11, 16, 3, 2, 1),
    ],
    ids=["depthwise, bias and relu", "depthwise in steps of 2", "max pool"],
)
def test_windows(tensors: list[Tensor]) -> None:
    dag = ComputeDAG(tensors)
    sketches = rule_sketches(dag, "c", "windows")
    assert len(sketches) == 3 and not any(map(holes, sketches))
    oracle = Oracle(dag, np.random.default_rng(2))
    for sketch in sketches:
        (state,) = programs(sketch, "c", 1)
        assert oracle.mismatch(te.lower(state), compiled) is None


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (benchmarks.depthwise_conv2d(1, 56, 56, 144, 3, 1, 1), [(4, 2), (8, 1), (1, 8)]),
        (benchmarks.depthwise_conv2d(1, 7, 7, 960, 3, 1, 1), [(7, 1), (4, 2), (1, 7)]),
        (benchmarks.max_pool2d(1, 3, 33, 16, 3, 2, 0), [(1, 8)]),
    ],
    ids=["large", "lines of 7", "one line"],
)
def test_tiles_share_what_windows_have_in_common(tensors: list[Tensor], found: list[tuple[int, int]]) -> None:
    """Tiles of several lines first, those that read the least for each output; the one of single lines last."""
    state = ComputeDAG(tensors).init_state
    k = len(state.stages) - 1
    assert [(tile.lines, tile.outputs) for tile in tiles(state, k, 16)] == found


def test_other_reductions_have_none() -> None:
    """Channels in parts of vectors, products, sums along rows, long windows; nothing that does not overlap."""
    others = [
        benchmarks.depthwise_conv2d(1, 5, 8, 12, 3, 1, 1),
        benchmarks.conv2d(1, 5, 8, 16, 16, 3, 1, 1),
        benchmarks.softmax(8, 32),
        benchmarks.max_pool2d(1, 9, 9, 16, 7, 1, 3),
        benchmarks.max_pool2d(1, 9, 9, 16, 1, 2, 0),
    ]
    for tensors in others:
        assert rule_sketches(ComputeDAG(tensors), "c", "windows") == []
