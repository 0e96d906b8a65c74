"""Features of many programs at once are those of each program alone, and of states from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.features import extract, programs_of, state_features, states_features
from ansor.sketch.generate import generate_sketches
from ansor.space.programs import Programs, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_variant
from ansor.space.states import concrete
from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import LowerError
from te_lite.schedule.loop_steps import Annotate, Fuse, Split
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.step import from_json
from tests.ansor.feature_values import HARDWARE, assert_lanes_are_states
from tests.conv_layer import as_lanes, as_single, cuda_steps, random_factors, tutorial_layer
from tests.drawn_programs import drawn_program, spaces_of
from tests.nonempty import nonempty
from tests.workloads import WORKLOADS, matmul

GOLDEN = Path(__file__).parent.parent / "golden"


def test_lanes_of_the_cuda_schedule() -> None:
    dag, lanes = tutorial_layer(), 70
    factors = random_factors(np.random.default_rng(3), lanes)
    many = Programs(infer_bounds(replay(dag, cuda_steps(as_lanes(factors)))), lanes)
    states = {i: replay(dag, cuda_steps(as_single(factors, i))) for i in range(0, lanes, 3)}
    assert_lanes_are_states(many, states, "cuda")


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", ["matmul_relu", "conv2d_stride", "depthwise", "softmax", "winograd", "max_pool"])
@pytest.mark.one_in(5)
def test_lanes_of_sampled_rows(name: str, target: str) -> None:
    rng = np.random.default_rng(11)
    dag, hardware = te.ComputeDAG(WORKLOADS[name]()), HARDWARE[target]
    for sketch in nonempty(generate_sketches(dag, target, hardware)):
        variant = random_variant(spaces_of(sketch, target, hardware)[0], rng)
        rows = sample_rows(variant, 9, rng, target, hardware)
        states = {i: concrete(variant, rows[i], target, hardware) for i in range(0, len(rows), 3)}
        assert_lanes_are_states(programs(variant, rows, target, hardware), states, target)


def test_chunks_of_lanes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = random_factors(np.random.default_rng(8), 50)
    many = Programs(infer_bounds(replay(tutorial_layer(), cuda_steps(as_lanes(factors)))), 50)
    whole = extract(many, HARDWARE["cuda"])
    monkeypatch.setattr("ansor.features.extraction.CHUNK", 7)
    assert np.array_equal(extract(many, HARDWARE["cuda"]), whole)


def test_fusing_is_not_seen() -> None:
    """The loops i.0 and j.0 in parallel, fused in one state and apart in the other; j.1 in vectors."""
    dag = te.ComputeDAG(matmul(12, 20, 5))
    apart = replay(dag, [Split(2, 0, 12, (3,)), Split(2, 2, 20, (4,))])
    order = apply(apart, from_json(["RE", 2, [0, 2, 1, 4, 3]]))
    fused = apply(apply(order, Fuse(2, (0, 1))), Annotate(2, 0, "parallel"))
    fused = apply(fused, Annotate(2, 3, "vectorize"))
    bounds = infer_bounds(order)
    found = extract(Programs(bounds, 1, {"parallel": {2: 2}, "vectorize": {2: 1}}), HARDWARE["c"])[0]
    assert np.array_equal(found, state_features(fused, HARDWARE["c"]))
    other = extract(Programs(bounds, 1, {"parallel": {2: 1}, "vectorize": {2: 1}}), HARDWARE["c"])[0]
    assert not np.array_equal(found, other)


@pytest.mark.parametrize(("name", "target"), [("cpu", "c"), ("cuda_h200", "cuda")])
def test_states_of_tvm_logs(name: str, target: str) -> None:
    dag = te.ComputeDAG(matmul(1024, 1024, 1024))
    lines = (GOLDEN / f"tvm_log_matmul1024_{name}.json").read_text().splitlines()
    assert len(lines) == 64
    states, single = [], []
    for line in lines:
        state = replay(dag, map(from_json, json.loads(line)["i"][1][1]))
        values = state_features(state, HARDWARE[target])
        assert np.isfinite(values).all() and (values >= 0).all()
        states.append(state)
        single.append(values)
    assert len({values.tobytes() for values in single}) > 55, "programs must differ"
    together = states_features(states, HARDWARE[target])
    assert all(np.array_equal(a, b) for a, b in zip(together, single, strict=True))


def test_states_of_several_computations_at_once() -> None:
    rng = np.random.default_rng(4)
    states = []
    for name in ("softmax", "conv2d_nhwc", "softmax", "matmul"):
        for sketch in generate_sketches(te.ComputeDAG(WORKLOADS[name]()), "c", HARDWARE["c"]):
            state = drawn_program(sketch, "c", HARDWARE["c"], rng)
            assert state is not None
            states += [state, state.dag.init_state]
    together = states_features(states, HARDWARE["c"])
    assert all(np.array_equal(x, state_features(s, HARDWARE["c"])) for s, x in zip(states, together, strict=True))
    assert states_features([], HARDWARE["c"]) == []


def test_undecided_lengths_are_refused() -> None:
    state = replay(te.ComputeDAG(matmul(4, 4, 4)), [Split(2, 0, 4, (None,))])
    with pytest.raises(LowerError, match="not decided"):
        states_features([state, state], HARDWARE["c"])


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth, even when there is only one."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


def test_no_lane_is_asked_for_its_truth() -> None:
    factors = random_factors(np.random.default_rng(1), 1)
    wrapped = [tuple([np.asarray(x).view(Untrue) for x in f]) for f in as_lanes(factors)]
    limits = {5: np.array([512]).view(Untrue)}
    many = Programs(infer_bounds(replay(tutorial_layer(), cuda_steps(wrapped, 0))), 1, {"unroll": limits})
    single = state_features(replay(tutorial_layer(), cuda_steps(as_single(factors, 0))), HARDWARE["cuda"])
    assert np.array_equal(extract(many, HARDWARE["cuda"])[0], single)


def test_no_choice_is_asked_for_its_truth() -> None:
    state = te.ComputeDAG(matmul(12, 20, 5)).init_state
    ones = np.array([1]).view(Untrue)
    numbers = {"parallel": {2: ones}, "vectorize": {2: 0 * ones}, "unroll": {2: 16 * ones}}
    many = Programs(infer_bounds(state), 1, numbers)
    assert np.isfinite(extract(many, HARDWARE["c"])).all()


def test_a_bare_computation() -> None:
    values = state_features(te.ComputeDAG(matmul(1, 1, 1)).init_state, HardwareParams(2, 64, 64, 0, 0, 0, 0, 0))
    assert values.shape[0] == 1 and np.isfinite(values).all()
    assert programs_of(te.ComputeDAG(matmul(2, 3, 4)).init_state).n == 1
