"""Exported networks that were changed are refused in one sentence, or are networks: see `hostile_exports.py`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from ansor.core.device.network_plan import ExecutionPlan
from ansor.core.device.read_plan import plan_from_json
from relay_lite.compiler.build import build
from relay_lite.ir.errors import GraphError
from relay_lite.ir.param_dict import load_param_dict, save_param_dict
from relay_lite.runtime.memory import Request
from te_lite.environment import ANSOR_TENSOR_BYTES
from tests.amount import some
from tests.relay_lite.hostile_exports import arrays_file
from tests.relay_lite.memory_oracle import collisions
from tests.relay_lite.test_executor import NETWORK

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exports")
    build(NETWORK, target="c").export(place / "network")
    return place


def loaded(folder: Path, first: int, count: int) -> None:
    """Load changed copies in a process of its own, which has little memory."""
    env = {**os.environ, ANSOR_TENSOR_BYTES.name: str(1 << 29)}
    words = [str(folder / "network"), str(folder / "copies"), str(first), str(count)]
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "tests.relay_lite.hostile_exports", *words],
                          cwd=ROOT, env=env, capture_output=True, text=True, timeout=500, check=False)  # fmt: skip
    assert done.stdout.splitlines()[-1:] == [f"{count} of {count} as promised"], done.stdout + done.stderr


def test_hostile_exports(folder: Path) -> None:
    loaded(folder, 0, some(100, 35))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 4_000, 1_000))
def test_more_hostile_exports(folder: Path, first: int) -> None:
    loaded(folder, first, 1_000)


def lives(plan: ExecutionPlan) -> tuple[list[Request], list[int]]:
    """When each storage of the arena is used, and where it lies: of scratch memory too."""
    uses = {s: [k for k, step in enumerate(plan.steps) if s in step.storages] for s in range(len(plan.storages))}
    inside = [s for s in range(plan.externals, len(plan.storages)) if uses[s]]
    requests = [Request(plan.storages[s].nbytes, min(uses[s]), max(uses[s])) for s in inside]
    return requests, [plan.storages[s].offset for s in inside]


@pytest.mark.long
def test_storages_that_overlap_while_both_are_needed() -> None:
    """An oracle of its own says when: all pairs, all steps."""
    plan, rng = build(NETWORK, target="c").plan, random.Random(0)
    inside = range(plan.externals, len(plan.storages))
    refused = 0
    for _ in range(1_000):  # the arena has few storages, for others lie in outputs
        storages = list(plan.storages)
        for k in rng.sample(inside, 2):
            most = plan.arena_bytes - storages[k].nbytes
            storages[k] = replace(storages[k], offset=rng.randrange(0, most + 1))
        moved = replace(plan, storages=tuple(storages))
        if collisions(*lives(moved)):
            refused += 1
            with pytest.raises(GraphError, match="overwrites what is still needed"):
                plan_from_json(moved.to_json())
        else:
            assert plan_from_json(moved.to_json()) == moved
    assert 20 < refused < 950


def test_steps_in_another_order_read_what_nothing_wrote() -> None:
    plan = build(NETWORK, target="c").plan
    with pytest.raises(GraphError, match="step 0 reads memory that no step before it wrote"):
        plan_from_json(replace(plan, steps=plan.steps[::-1]).to_json())


def test_hostile_parameters() -> None:
    whole = save_param_dict({"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.ones((), "int64")})
    again = load_param_dict(whole)
    assert again["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and again["b"].shape == ()
    rng, refused = random.Random(1), 0
    for _ in range(150):
        try:
            found = load_param_dict(arrays_file(rng, whole))
        except GraphError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 1000
        else:
            assert sum(a.nbytes for a in found.values()) <= len(whole)
    assert refused > 75
