"""Winograd's method on processors: which computations have sketches, what those compute, and how exact tiles are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.sketch.generate import extra_sketches
from ansor.space.decisions.loops import holes
from ansor_ext.winograd.winograd import Stages, tiles_of
from te_lite import ComputeDAG, Tensor, topi
from te_lite.meaning.reference import evaluate, random_inputs
from te_lite.schedule.state import ROOT
from tests.ansor.sketch_cases import HARDWARE, winograd_by_axis
from tests.ansor_ext.test_extra_rules import compiled, programs, rule_sketches
from tests.oracle import Oracle


@pytest.mark.parametrize(
    "tensors",
    [
        winograd_by_axis((2, 7, 9, 16), 32, 2),
        winograd_by_axis((1, 6, 7, 16), 16, 4, bias=True),
        winograd_by_axis((1, 4, 5, 6, 16), 16, 2),
    ],
    ids=["images", "followed by bias and relu", "volumes"],
)
@pytest.mark.one_in(2)
def test_everything_is_computed_in_parts_of_the_image(tensors: list[Tensor]) -> None:
    """Two nests, of the weight and of the rest, in which nothing but parallel loops and unrolling is left to decide."""
    dag = ComputeDAG(tensors)
    oracle = Oracle(dag, np.random.default_rng(8))
    sketches = rule_sketches(dag, "c", "winograd")
    assert 2 <= len(sketches) == len({s.steps for s in sketches}) <= 3
    for sketch in sketches:
        roots = [s.op.name for s in sketch.stages if s.where == ROOT and not s.is_placeholder]
        assert not holes(sketch) and roots == ["weight_points", tensors[-1].op.name]
    (state,) = programs(sketches[0], "c", 1)
    assert oracle.mismatch(te.lower(state), compiled) is None


def with_transformed_weight(m: int, filters: int) -> list[Tensor]:
    data, weight = (
        te.placeholder((1, 6, 7, 16), name="data"),
        te.placeholder((m + 2, m + 2, filters, 16), name="weight"),
    )
    return [data, weight, topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, weight, 1, 1, 1, tile_size=m)]


def test_the_computation_of_tvm() -> None:
    """One nest, with panels of the weight turned for each point, unless the graph stores it as it is read."""
    dag = ComputeDAG(with_transformed_weight(2, 32))
    sketches = rule_sketches(dag, "c", "winograd")
    assert len(sketches) == 3 and not any(map(holes, sketches))
    for sketch in sketches:
        roots = [s.op.name for s in sketch.stages if s.where == ROOT and not s.is_placeholder]
        orders = [s.storage_order for s in sketch.stages if s.storage_order]
        assert roots == ["conv2d_winograd"] and orders == [(0, 1, 3, 2)]
    (state,) = programs(sketches[0], "c", 1)
    assert Oracle(dag, np.random.default_rng(8)).mismatch(te.lower(state), compiled) is None
    stored = extra_sketches(dag, "c", HARDWARE["c"], rules=["winograd"], stored_as_read=True)
    assert len(stored) == 3 and not any(s.storage_order for sketch in stored for s in sketch.stages)


def test_only_channels_in_whole_vectors_have_sketches() -> None:
    for tensors in (winograd_by_axis((1, 6, 6, 12), 16, 2), winograd_by_axis((1, 6, 6, 16), 24, 2)):
        assert rule_sketches(ComputeDAG(tensors), "c", "winograd") == []
    dag = ComputeDAG(winograd_by_axis((1, 6, 6, 16), 16, 2))
    untransformed = [te.placeholder((1, 6, 6, 16)), te.placeholder((3, 3, 16, 16))]
    untransformed.append(topi.nn.conv2d_winograd_nhwc(*untransformed, 1, 1, 1, tile_size=2))
    assert rule_sketches(ComputeDAG(untransformed), "c", "winograd") == []
    assert extra_sketches(dag, "cuda", HARDWARE["cuda"], rules=["winograd"]) == []


def test_depths_are_shared_out_among_cores() -> None:
    """7 lines of tiles are no equal shares of two cores, 14 halves of them are."""
    state = ComputeDAG(winograd_by_axis((1, 16, 28, 28, 16), 16, 4)).init_state
    numbers = {s.op.name: k for k, s in enumerate(state.stages)}
    data, back = [(numbers[a], numbers[b]) for a, b in (("data_rows", "data_points"), ("output_rows", "output_tiles"))]
    found = Stages(numbers["data_pad"], data, (), numbers["products"], back, *[numbers["conv_winograd"]] * 2)
    for cores, depths in ((1, 16), (2, 8), (7, 16)):
        assert {tile.depths for tile in tiles_of(state, found, replace(HARDWARE["c"], num_cores=cores))} == {depths}


def test_how_exact_tiles_are() -> None:
    """In float32, relative to the norm of the result in float64: tiles of 4 lose two bits, those of 2 none."""
    errors = {}
    for m in (2, 4):
        tensors = winograd_by_axis((1, 12, 12, 64), 8, m)
        inputs = random_inputs(tensors, np.random.default_rng(0))
        single, exact = [evaluate(tensors, inputs, dtype)[tensors[-1]] for dtype in ("float32", "float64")]
        errors[m] = np.linalg.norm(single - exact) / np.linalg.norm(exact)
    assert errors[2] < 4e-7 and errors[4] < 1.5e-6
