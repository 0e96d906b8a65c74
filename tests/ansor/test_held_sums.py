"""What programs hold in registers: lanes are states, no lane is asked for its truth, and tiles known by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.features.held_sums import HeldSums, held_sums, reads_of
from ansor.sketch import generate_sketches
from ansor.space.programs import Programs, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_space, random_variant
from ansor.space.states import concrete
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.nest import nests_of
from te_lite.loops.register_tile import VectorUnit
from te_lite.schedule.loop_steps import Annotate, Fuse, Reorder, Split
from te_lite.schedule.replay import replay
from tests.nonempty import nonempty
from tests.workloads import conv2d_nchw, matmul, matmul_relu

from .feature_values import HARDWARE

FIGURES = ("kept", "registers", "vectors", "steps", "loads", "broadcasts", "elements", "live", "spilled")


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


def held_by_stage(found: Programs, unit: VectorUnit) -> dict[int, HeldSums]:
    bounds, nests = found.bounds, nests_of(found.bounds)
    out = {}
    for k, nest in nests.items():
        held = held_sums(found, nest, nests, reads_of(bounds, k), unit)
        if held is not None:
            out[k] = held
    return out


@pytest.mark.parametrize("build", [lambda: matmul_relu(34, 60, 17), lambda: conv2d_nchw(1, 13, 8, 12, 3, 2, 1)])
def test_lanes_are_states(build: Any) -> None:
    rng = np.random.default_rng(0)
    for sketch in nonempty(generate_sketches(te.ComputeDAG(build()), "c", HARDWARE["c"])):
        variant = random_variant(random_space(sketch, rng, "c", HARDWARE["c"]), rng)
        rows = sample_rows(variant, 12, rng, "c", HARDWARE["c"])
        for unit in (VectorUnit.of(64), VectorUnit.of(32)):
            many = held_by_stage(programs(variant, rows, "c", HARDWARE["c"]), unit)
            for lane, row in nonempty(enumerate(rows)):
                state = concrete(variant, row, "c", HARDWARE["c"])
                for k, one in nonempty(held_by_stage(Programs(infer_bounds(state)), unit).items()):
                    for name in FIGURES:
                        values = np.broadcast_to(getattr(many[k], name), (len(rows),))
                        assert values[lane] == getattr(one, name), (name, lane, k)


def tiled(rows: Any, vectors: Any, lanes: int) -> Programs:
    """A product whose innermost tile is `rows` by `vectors` times `lanes`, the reduction around it."""
    steps = [Split(2, 0, 96, (rows,)), Split(2, 2, 1024, (vectors, lanes))]
    steps += [Reorder(2, (0, 2, 5, 1, 3, 4)), Annotate(2, 5, "vectorize")]
    return Programs(infer_bounds(replay(te.ComputeDAG(matmul(96, 1024, 64)), steps)))


def test_no_lane_is_asked_for_its_truth() -> None:
    rows, vectors = np.array([6, 3]).view(Untrue), np.array([2, 4]).view(Untrue)
    (held,) = held_by_stage(tiled(rows, vectors, 8), VectorUnit.of(32)).values()
    assert held.registers.tolist() == [12, 12]
    assert held.spilled.tolist() == [0, 1]


def test_without_room_nothing_is_held() -> None:
    (held,) = held_by_stage(tiled(6, 2, 16), VectorUnit(64, 4)).values()
    assert (held.kept, held.registers, held.steps, held.vectors) == (False, 0, 1, 1)


def test_lanes_of_two_axes_read_neither_operand_as_vectors() -> None:
    """Six rows of five columns side by side: A changes with the rows, B starts anew."""
    steps = [Split(2, 0, 96, (6,)), Split(2, 2, 5, (5,)), Reorder(2, (0, 2, 4, 1, 3)), Fuse(2, (3, 4))]
    found = Programs(infer_bounds(replay(te.ComputeDAG(matmul(96, 5, 64)), [*steps, Annotate(2, 3, "vectorize")])))
    (held,) = held_by_stage(found, VectorUnit.of(64)).values()
    assert (held.pieces.lengths, held.loads, held.broadcasts, held.elements) == ([16, 14], 0, 0, 60)


@pytest.mark.parametrize(
    ("rows", "vectors", "size", "registers", "steps", "loads", "broadcasts", "spilled"),
    [
        (6, 2, 32, 12, 64, 2, 6, 0),  # OpenBLAS's on Haswell
        (3, 4, 32, 12, 64, 4, 3, 1),  # the four vectors of B and an element of A: 17 of 16 registers
        (12, 2, 64, 24, 64, 2, 12, 0),
        (32, 2, 64, 16, 64, 2, 8, 0),  # in four parts of 8 rows, which divide 32 and fit 28
        (1, 1, 64, 1, 64, 1, 1, 0),
    ],
)
def test_tiles_by_hand(
    rows: int, vectors: int, size: int, registers: int, steps: int, loads: int, broadcasts: int, spilled: int
) -> None:
    (held,) = held_by_stage(tiled(rows, vectors, size // 4), VectorUnit.of(size)).values()
    found = (held.registers, held.steps, held.loads, held.broadcasts, held.spilled)
    assert found == (registers, steps, loads, broadcasts, spilled)
