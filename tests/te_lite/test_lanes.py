"""One replay over lanes equals a replay per candidate, and never asks a lane for its truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import te_lite as te
from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.schedule.loop_steps import Fuse, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.region import DivAtom, Linear, Region
from te_lite.schedule.replay import replay
from te_lite.schedule.step import Length, Step
from tests.conv_layer import as_lanes, as_single, cuda_steps, random_factors, tutorial_layer
from tests.nonempty import nonempty
from tests.workloads import conv2d_nchw, shuffle

LANES = 96


def at(value: Any, lane: int) -> Any:
    return value if value is None or isinstance(value, int) else int(np.broadcast_to(value, (LANES,))[lane])


def linear_at(low: Linear, lane: int) -> list[Any]:
    """A comparable form of a region's start: nonzero coefficients of loops, quotients by their own form."""
    terms = []
    for atom, c in low.terms.items():
        if at(c, lane) == 0:
            continue
        if isinstance(atom, DivAtom):
            terms.append((atom.mod, at(atom.divisor, lane), linear_at(atom.base, lane), at(c, lane)))
        else:
            terms.append((atom.stage, atom.uid, at(atom.extent, lane), at(c, lane)))
    return [at(low.const, lane), *sorted(terms, key=repr)]


def region_at(region: Region, lane: int) -> tuple[Any, ...]:
    return at(region.extent, lane), linear_at(region.min, lane)


def assert_equal(lanes: Bounds, single: Bounds, lane: int) -> None:
    for many, one in nonempty(zip(lanes.state.stages, single.state.stages, strict=True)):
        assert [at(v.extent, lane) for v in many.vars] == [v.extent for v in one.vars], one.op.name
    for many_regions, one_regions in nonempty(zip(lanes.regions, single.regions, strict=True)):
        assert [region_at(r, lane) for r in many_regions] == [region_at(r, 0) for r in one_regions]


def test_the_cuda_sketch() -> None:
    dag = tutorial_layer()
    factors = random_factors(np.random.default_rng(3), LANES)
    lanes = infer_bounds(replay(dag, cuda_steps(as_lanes(factors))))
    for lane in range(LANES):
        assert_equal(lanes, infer_bounds(replay(dag, cuda_steps(as_single(factors, lane)))), lane)


def awkward_steps(f: list[tuple[Length, ...]]) -> list[Step]:
    """A convolution whose inputs are computed inside fused loops that are split again, by factors that do not fit."""
    steps: list[Step] = [Fuse(6, (0, 1, 2)), Split(6, 0, 0, f[0]), Split(6, 2, 0, f[1], False)]
    return [*steps, ComputeAt(5, 6, 1), ComputeAt(3, 5, 1), Split(3, 2, 0, f[2]), ComputeAt(1, 3, 1)]


def shuffle_steps(f: list[tuple[Length, ...]]) -> list[Step]:
    """Divisions and remainders in the indices."""
    return [Split(3, 0, 0, f[0]), Split(3, 2, 0, f[1]), ComputeAt(2, 3, 1), Split(2, 0, 0, f[2]), ComputeAt(1, 2, 0)]


def flat(rows: int, columns: int) -> te.ComputeDAG:
    """A matrix read from a vector of its elements, and read by a vector of twice as many."""
    a = te.placeholder((rows * columns,), name="a")
    line = te.compute((rows * columns,), lambda x: a[x] * 2, "line")
    square = te.compute((rows, columns), lambda i, j: line[i * columns + j] + 1, "square")
    out = te.compute((2 * rows, 2 * columns), lambda i, j: square[i // 2, j // 2], "out")
    return te.ComputeDAG([a, out])


def flat_steps(f: list[tuple[Length, ...]]) -> list[Step]:
    """The matrix inside of tiles, whose width, with some factors all of it, says whether a fused loop counts along."""
    steps: list[Step] = [Split(3, 0, 0, f[0]), Split(3, 2, 0, f[2]), Reorder(3, (0, 2, 1, 3)), ComputeAt(2, 3, 1)]
    return [*steps, Fuse(2, (0, 1)), Split(2, 0, 0, f[1][:1]), ComputeAt(1, 2, 0)]


@pytest.mark.parametrize(
    ("dag", "make"),
    [
        (te.ComputeDAG(conv2d_nchw(2, 5, 3, 4, 3, 1, 1)), awkward_steps),
        (te.ComputeDAG(shuffle(4, 6)), shuffle_steps),
        (flat(4, 3), flat_steps),
    ],
    ids=["conv", "shuffle", "flat"],
)
def test_factors_that_do_not_divide(dag: te.ComputeDAG, make: Any) -> None:
    rng = np.random.default_rng(5)
    factors = [rng.integers(1, 9, size=(LANES, n)) for n in (1, 2, 1)]
    factors = [f[:, :1] for f in factors] if make is shuffle_steps else factors
    lanes = infer_bounds(replay(dag, make(as_lanes(factors))))
    for lane in range(LANES):
        assert_equal(lanes, infer_bounds(replay(dag, make(as_single(factors, lane)))), lane)


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth, even when there is only one."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


@pytest.mark.parametrize("make", [cuda_steps])
def test_no_lane_is_asked_for_its_truth(make: Any) -> None:
    factors = random_factors(np.random.default_rng(1), 1)
    wrapped = [tuple([np.asarray(x).view(Untrue) for x in f]) for f in as_lanes(factors)]
    found = infer_bounds(replay(tutorial_layer(), make(wrapped)))
    single = infer_bounds(replay(tutorial_layer(), make(as_single(factors, 0))))
    both = zip(found.state.stages, single.state.stages, strict=True)
    for v, w in nonempty(pair for many, one in both for pair in zip(many.vars, one.vars, strict=True)):
        assert (v.extent if v.extent is None else int(np.asarray(v.extent).item())) == w.extent


def test_awkward_lanes_are_not_asked_either() -> None:
    factors = [np.full((1, n), 3) for n in (1, 2, 1)]
    wrapped = [tuple([np.asarray(x).view(Untrue) for x in f]) for f in as_lanes(factors)]
    infer_bounds(replay(te.ComputeDAG(conv2d_nchw(2, 5, 3, 4, 3, 1, 1)), awkward_steps(wrapped)))
    infer_bounds(replay(te.ComputeDAG(shuffle(4, 6)), shuffle_steps([w[:1] for w in wrapped])))
    infer_bounds(replay(flat(4, 3), flat_steps(wrapped)))
