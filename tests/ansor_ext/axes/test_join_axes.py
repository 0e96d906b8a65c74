"""Axes joined to one: what stages compute then, regions of their tiles, places in memory, records, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.axes.steps import JoinAxes
from te_lite import ComputeDAG, Tensor
from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import ScheduleError
from te_lite.lowering.lower import unverified
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.schedule import Loop, Schedule
from te_lite.schedule.step import from_json, to_json
from te_lite.verify import verify_access
from te_lite.verify.verify import Proven, verdict
from tests.oracle import Oracle
from tests.schedule_fuzz import Fuzzer
from tests.workloads import WORKLOADS

N, H, W, C, K = 3, 5, 7, 4, 3


def windows(behind: str = "another image") -> list[Tensor]:
    """Windows of 3 x 3 over padded images, and what is elementwise `behind` them."""
    x, w = te.placeholder((N, H, W, C), name="x"), te.placeholder((3, 3, C, K), name="w")
    shape = (N, H + 2, W + 2, C)
    pad = te.compute(
        shape,
        lambda n, i, j, c: te.if_then_else(
            te.all(i >= 1, i < H + 1, j >= 1, j < W + 1), x[n, i - 1, j - 1, c], 0.0
        ),
        name="pad",
    )  # fmt: skip
    r, q, c = [te.reduce_axis((0, extent), name=name) for extent, name in ((3, "r"), (3, "q"), (C, "c"))]
    y = te.compute(
        (N, H, W, K), lambda n, i, j, k: te.sum(pad[n, i + r, j + q, c] * w[r, q, c, k], axis=[r, q, c]), name="y"
    )
    other = te.placeholder((N, H, W, K), name="other")
    z = te.compute((N, H, W, K), lambda n, i, j, k: y[n, i, j, k] + other[n, i, j, k], name="z")
    return [x, w, other, pad, y, z]


def by_hand(x: np.ndarray, w: np.ndarray, other: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    sums = other.astype("float64")
    for r in range(3):
        for q in range(3):
            sums = sums + padded[:, r : r + H, q : q + W] @ w[r, q].astype("float64")
    return sums


def scheduled(tile: int, first: int = 0, count: int = 3) -> tuple[Schedule, list[Tensor], Tensor, Loop]:
    """The sums of `tile` joined points at a time, in the loop that is fused in the same way."""
    tensors = windows()
    *_, pad, y, z = tensors
    s = te.create_schedule(z.op)
    s[pad].compute_inline()
    joined = s.join_axes(y, first, count)
    loops = s[z].leaf_iter_vars
    fused = s[z].fuse(*loops[first : first + count])
    outer, _ = s[z].split(fused, tile)
    s[joined].compute_at(s[z], outer)
    return s, tensors, joined, outer


@pytest.mark.parametrize("tile", [1, 5, 8, 21, 64, N * H * W])
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.one_in(5)
def test_tiles_of_joined_axes_compute_the_same(tile: int, threads: bool) -> None:
    s, (x, w, other, _, _, z), joined, outer = scheduled(tile)
    if threads:
        s[z].bind(outer, "blockIdx.x")
    assert joined.shape == (N * H * W, K)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype("float32") for t in (x, w, other)]
    out = np.full(z.shape, np.nan, "float32")
    run(te.lower(s, [x, w, other, z]), [*arrays, out])
    np.testing.assert_allclose(out, by_hand(*arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("first, count", [(0, 2), (1, 2), (2, 2), (0, 3), (0, 4)])
def test_neighbouring_axes_of_any_number(first: int, count: int) -> None:
    s, (x, w, other, _, _, z), _, _ = scheduled(4, first, count)
    arrays = [np.random.default_rng(1).standard_normal(t.shape).astype("float32") for t in (x, w, other)]
    out = np.full(z.shape, np.nan, "float32")
    run(te.lower(s, [x, w, other, z]), [*arrays, out])
    np.testing.assert_allclose(out, by_hand(*arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tile", [5, 8, 21, 64])
def test_a_tile_is_what_its_loop_counts_through(tile: int) -> None:
    """Not the box around its images, lines and columns; and what is elementwise is read and stored at one place."""
    s, (x, w, other, _, _, z), joined, _ = scheduled(tile)
    bounds = infer_bounds(s.state)
    assert [r.extent for r in bounds.regions[s.stage_id(joined)][:2]] == [tile, K]
    (line,) = [text for text in str(te.lower(s, [x, w, other, z])).splitlines() if re.match(r" *z\[", text)]
    places = re.findall(r"(?:z|other)\[([^]]*)\]", line)
    assert len(set(places)) == 1 and "//" not in places[0] and "%" not in places[0]


@pytest.mark.parametrize("tile", [48, 256])
@pytest.mark.parametrize("images", [2, 32])
def test_reads_of_padded_images_are_proven_from_their_conditions(
    images: int, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a look at points, of which there are too many; tiles do not divide."""
    x, w = te.placeholder((images, 14, 14, 8), name="x"), te.placeholder((3, 3, 8, K), name="w")
    y = te.topi.nn.conv2d_nhwc(x, w, 1, 1, 1)
    z = te.topi.nn.relu(y)
    s = te.create_schedule(z.op)
    pad = next(stage.op.output() for stage in s.state.stages if stage.op.name == "pad_temp")
    joined = s.join_axes(y, 0, 3)
    copy = s.reindex(pad, "local", joined)
    s[pad].compute_inline()
    outer, _ = s[z].split(s[z].fuse(*s[z].leaf_iter_vars[:3]), tile)
    s[joined].compute_at(s[z], outer)
    s[copy].compute_at(s[joined], s[joined].op.reduce_axis[0])
    func = unverified(s, [x, w, z])
    monkeypatch.setattr(verify_access, "FEW_POINTS", 0)
    monkeypatch.setattr(verify_access, "MOST_POINTS", 0)
    assert isinstance(verdict(func), Proven)


def test_lanes_are_single_programs() -> None:
    """Of 3 tile lengths."""
    lengths = [5, 8, 64]
    s, _, joined, _ = scheduled(5)
    steps = [replace(step, lengths=(np.array(lengths),)) if isinstance(step, Split) else step for step in s.state.steps]
    lanes = infer_bounds(replay(s.state.dag, steps))
    assert lanes.regions[s.stage_id(joined)][0].extent.tolist() == lengths


def test_records_and_text() -> None:
    x, w, other, _, y, z = windows()
    dag = ComputeDAG([x, w, other, z])
    s = Schedule(dag.init_state)
    joined = s.join_axes(y, 0, 3)
    s[joined].split(joined.op.axis[0], 8)
    steps = [from_json(to_json(step)) for step in s.state.steps]
    assert to_json(steps[0]) == ["JAX", dag.ops.index(y.op), 0, 3]
    assert str(replay(dag, steps)) == str(s.state)
    again = Schedule(dag.init_state)
    exec(compile(python_schedule(s.state), "schedule", "exec"), dict(python_names(dag), s=again, te=te))
    assert again.state.steps == s.state.steps


class Joining(Fuzzer):
    """Draws schedules in which stages have joined axes, copies of what these read among them."""

    def _structure(self) -> None:
        super()._structure()
        for k in self.computed():
            rank = len(self.state.stages[k].op.axis)
            first = int(self.rng.integers(max(rank - 1, 1)))
            self.attempt(JoinAxes(k, first, int(self.rng.integers(2, max(rank - first, 2) + 1))))


@pytest.mark.parametrize("name", ["conv2d_stride", "max_pool", "softmax"])
@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize("draws", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_random_schedules_with_joined_axes(name: str, gpu: bool, draws: int) -> None:
    oracle = Oracle(ComputeDAG(WORKLOADS[name]()), np.random.default_rng(0))
    joined = 0
    for seed in range(draws):
        state, func = Joining(oracle.dag, np.random.default_rng([7, seed]), gpu).draw()
        where = f"seed [7, {seed}], steps {[to_json(s) for s in state.steps]}"
        assert isinstance(verdict(func), Proven) and oracle.mismatch(func, run) is None, where
        joined += any(isinstance(step, JoinAxes) for step in state.steps)
    assert joined


@pytest.mark.parametrize("first, count", [(0, 1), (0, 5), (3, 2)])
def test_axes_that_are_not_there_are_refused(first: int, count: int) -> None:
    *_, y, z = windows()
    with pytest.raises(ScheduleError, match="join_axes y: it has 4 axes, of which two or more can be joined"):
        te.create_schedule(z).join_axes(y, first, count)


def test_other_stages_are_refused() -> None:
    """An input, an output, a stage with steps, and one that has moved."""
    x, *_, y, z = windows()
    for tensor, law in ((x, "an input is not computed"), (z, "arguments of the program are stored")):
        with pytest.raises(ScheduleError, match=law):
            te.create_schedule(z).join_axes(tensor, 0, 2)
    s = te.create_schedule(z)
    s[y].split(y.op.axis[0], 2)
    with pytest.raises(ScheduleError, match="it must come before other steps on these loops"):
        s.join_axes(y, 0, 2)
    s = te.create_schedule(z)
    s[y].compute_at(s[z], z.op.axis[0])
    with pytest.raises(ScheduleError, match="join before moving it"):
        s.join_axes(y, 0, 2)


def test_a_stage_at_root_whose_part_is_read_is_stored_from_its_start() -> None:
    """Its fused loop counts from there, its axes do not."""
    x = te.placeholder((6, 9), name="x")
    y = te.compute((6, 9), lambda i, j: x[i, j] * 2, name="y")
    z = te.compute((4, 7), lambda i, j: y[i + 1, j + 2] + 1, name="z")
    s = te.create_schedule(z.op)
    s[y].split(s[y].fuse(*y.op.axis), 4)
    array, out = np.arange(54, dtype="float32").reshape(6, 9), np.full((4, 7), np.nan, "float32")
    run(te.lower(s, [x, z]), [array, out])
    np.testing.assert_array_equal(out, array[1:5, 2:] * 2 + 1)
