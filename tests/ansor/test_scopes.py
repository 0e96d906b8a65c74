"""Memories with names of their own are storage of their class: to features, analytical models and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.analytical import CPU, GPUS, Machine, seconds
from ansor.features import extract, state_features, states_features
from ansor.sketch.shared_memory import fetches, shared_bytes
from ansor.space.limits import accumulators
from ansor.space.programs import Programs
from ansor_ext.pipeline.double_buffer import can_be_fetched_ahead
from te_lite.bounds.bounds import infer_bounds
from te_lite.computation.derive import in_scope
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from tests.ansor.feature_values import HARDWARE
from tests.conv_layer import as_lanes, as_single, cuda_steps, random_factors, tutorial_layer
from tests.workloads import matmul

LANES = 5
MACHINES: tuple[Machine, ...] = (GPUS["H200"], CPU("server", 4, 2.5e9, 64, 64))
MEMORIES = [
    {"shared": "shared", "local": "local.acc"},
    {"shared": "shared.xyz", "local": "local"},
    {"shared": "shared.a.b", "local": "local.acc_buffer"},
]


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth, even when there is only one."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


def moved(state: State, names: Mapping[str, str]) -> State:
    """`state` with its shared copies, and its sums, in memories of these names."""
    for k, stage in enumerate(state.stages):
        if not stage.is_placeholder and stage.attach is not None:
            scope = names[stage.compute.scope or "local"]
            state = state.with_stage(k, replace(stage, op=in_scope(stage.compute, scope)))
    return state


@pytest.mark.parametrize("names", MEMORIES, ids=str)
@pytest.mark.one_in(3)
def test_a_name_changes_no_number(names: Mapping[str, str]) -> None:
    """Lanes in such memories, their single programs, and programs in plain storage all have the same numbers."""
    factors = random_factors(np.random.default_rng(2), LANES)
    wrapped = [tuple([np.asarray(x).view(Untrue) for x in f]) for f in as_lanes(factors)]
    plain = replay(tutorial_layer(), cuda_steps(wrapped))
    many = Programs(infer_bounds(moved(plain, names)), LANES)
    assert set(many.bounds.scopes) >= set(names.values())
    features = extract(many, HARDWARE["cuda"])
    times = [seconds(many, machine) for machine in MACHINES]
    assert np.isfinite(features).all() and np.isfinite(times).all() and np.greater(times, 0).all()
    for lane in range(LANES):
        single = replay(tutorial_layer(), cuda_steps(as_single(factors, lane)))
        bounds = infer_bounds(moved(single, names))
        for state in (single, moved(single, names)):
            assert np.array_equal(features[lane], state_features(state, HARDWARE["cuda"]))
            found = [seconds(Programs(infer_bounds(state)), machine)[0] for machine in MACHINES]
            assert found == [time[lane] for time in times]
        assert shared_bytes(bounds) == shared_bytes(infer_bounds(single)) != {}
        assert accumulators(bounds) == accumulators(infer_bounds(single)) != {}
        assert fetches(moved(single, names)) == fetches(single) != ()
        ahead = [[can_be_fetched_ahead(s, k) for k in range(len(s.stages))] for s in (single, moved(single, names))]
        assert ahead[0] == ahead[1] and any(ahead[0])


@pytest.mark.parametrize("scope", ["local", "local.inp", "local.wgt", "local.acc"])
@pytest.mark.parametrize("target", ["c", "cuda"])
def test_a_copy_in_a_memory_of_an_accelerator(scope: str, target: str) -> None:
    """What `cache_read` makes of it has features and seconds, alone and beside others."""
    states = []
    for factor in (2, 4, 3):
        a, b, c = matmul(8, 12, 6)
        s = te.create_schedule(c)
        copy = s.cache_read(a, scope, [c])
        outer, _ = s[c].split(c.op.axis[0], factor=factor)
        s[copy].compute_at(s[c], outer)
        states.append(s.state)
        assert scope in str(te.lower(s, [a, b, c]))
    alone = [state_features(state, HARDWARE[target]) for state in states]
    assert all(np.isfinite(rows).all() for rows in alone)
    assert all(np.array_equal(x, y) for x, y in zip(alone, states_features(states, HARDWARE[target]), strict=True))
    for machine in MACHINES:
        times = [seconds(Programs(infer_bounds(state)), machine)[0] for state in states]
        assert np.isfinite(times).all() and min(times) > 0
