"""Records that TVM wrote replay here to the same programs (golden logs of two tuning runs)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import te_lite as te
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from tests.nonempty import nonempty
from tests.workloads import matmul

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="module")
def dag() -> te.ComputeDAG:
    return te.ComputeDAG(matmul(1024, 1024, 1024))


def lines(name: str) -> list[list[object]]:
    text = (GOLDEN / f"tvm_log_matmul1024_{name}.json").read_text().splitlines()
    return [json.loads(line)["i"][1][1] for line in text]


@pytest.mark.parametrize("name", ["cpu", "cuda_h200"])
def test_bounds_are_those_of_tvm(dag: te.ComputeDAG, name: str) -> None:
    expected = json.loads((GOLDEN / f"tvm_log_matmul1024_{name}.bounds.json").read_text())
    found = [str(infer_bounds(replay(dag, map(from_json, steps))).state) for steps in lines(name)]
    assert found == [entry["program"] for entry in expected]


@pytest.mark.parametrize("name", ["cpu", "cuda_h200"])
def test_replay_is_exact_and_steps_round_trip(dag: te.ComputeDAG, name: str) -> None:
    for data in nonempty(lines(name)):
        steps = [from_json(step) for step in data]
        state = replay(dag, steps)
        assert [to_json(s) for s in state.steps] == data
        assert replay(dag, state.steps) == state


@pytest.mark.parametrize("name", ["cpu", "cuda_h200"])
def test_every_line_lowers(dag: te.ComputeDAG, name: str) -> None:
    for data in nonempty(lines(name)):
        func = te.lower(replay(dag, map(from_json, data)), name="matmul")
        assert [b.name for b in func.args] == ["A", "B", "C"]
