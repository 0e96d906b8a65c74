"""`mini_ansor` is the definition: the engine derives the same sketches, bounds and features from the same steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.sketch import generate_sketches as engine_sketches
from mini_ansor.__main__ import step_from_json, step_to_json, total_flops
from mini_ansor.program import StepError
from mini_ansor.sketch import generate_sketches
from te_lite import ComputeDAG
from te_lite.schedule.state import State
from tests.amount import some
from tests.ansor.test_sketch_golden import GOLDEN, TARGETS
from tests.ansor.test_sketch_golden import dag_of as golden_dag
from tests.drawn_programs import drawn_program

from .compared import HARDWARE, MACHINES, bounds_differ, divides, features_differ, replayed
from .drawn import drawn_dag
from .translate import mini_args, steps_of

SAID = [entry for entry in GOLDEN if entry["workload"] != "global_avg_pool"]
RANDOM = some(300, 60)


def name(entry: dict[str, Any]) -> str:
    return f"{entry['workload']}-{entry['args'][0]}-{entry['args'][-1]}-{entry['target']}"


def test_extents_that_depend_on_other_axes_are_refused() -> None:
    entries = [entry for entry in GOLDEN if entry not in SAID]
    assert len(entries) == 2
    for entry in entries:
        with pytest.raises(ValueError, match="extent"):
            mini_args(golden_dag(entry["workload"], entry["args"]))


@pytest.mark.parametrize("entry", SAID, ids=name)
def test_sketches_are_those_of_tvm(entry: dict[str, Any]) -> None:
    target = TARGETS[entry["target"]]
    args = mini_args(golden_dag(entry["workload"], entry["args"]))
    sketches = generate_sketches(args, MACHINES[target])
    assert list(map(str, sketches)) == entry["programs"]
    assert total_flops(args) == entry["flop"]


@pytest.mark.parametrize("entry", SAID, ids=name)
def test_golden_programs_have_the_same_steps_bounds_and_features(entry: dict[str, Any]) -> None:
    dag, target = golden_dag(entry["workload"], entry["args"]), TARGETS[entry["target"]]
    args, rng = mini_args(dag), np.random.default_rng(0)
    sketches = engine_sketches(dag, target, HARDWARE[target])
    assert [list(map(step_to_json, s.steps)) for s in generate_sketches(args, MACHINES[target])] == [
        steps_of(s) for s in sketches
    ]
    programs = [drawn_program(sketch, target, HARDWARE[target], rng) for sketch in sketches]
    assert any(programs)
    for state in [state for state in programs if state is not None]:
        program = replayed(args, state)
        assert bounds_differ(state, program, rng) == []
        differ = features_differ(state, program, target)
        if entry["workload"] in ("C1D", "C2D") and target == "c":
            # A region that begins at `co // 512 * 512` of one group never moves; the engine, which asks no program for
            # its numbers, takes it for one that may, and misses that reuse.
            differ = {column for column in differ if "reuse" not in column}
        assert differ == set()


@pytest.mark.parametrize("target", MACHINES)
def test_rows_of_one_matrix_have_the_same_sketches(target: str) -> None:
    x, k = te.placeholder((24, 20), name="X"), te.reduce_axis((0, 20), name="k")
    dag = ComputeDAG([x, te.compute((24, 24), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), name="G")])
    sketches = engine_sketches(dag, target, HARDWARE[target])
    ours = [list(map(step_to_json, s.steps)) for s in generate_sketches(mini_args(dag), MACHINES[target])]
    assert ours == [steps_of(s) for s in sketches] and all(len(steps) > 2 for steps in ours)


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("first", range(0, RANDOM, 20))
def test_random_programs_have_the_same_sketches_bounds_and_features(first: int, target: str) -> None:
    compared = 0
    for seed in range(first, first + 20):
        dag, rng = drawn_dag(seed), np.random.default_rng(seed)
        args, sketches = mini_args(dag), engine_sketches(dag, target, HARDWARE[target])
        ours = [list(map(step_to_json, s.steps)) for s in generate_sketches(args, MACHINES[target])]
        assert ours == [steps_of(s) for s in sketches], seed
        state = drawn_program(sketches[rng.integers(len(sketches))], target, HARDWARE[target], rng)
        if state is not None and divides(state):
            program = replayed(args, state)
            assert bounds_differ(state, program, rng) == [], seed
            assert features_differ(state, program, target) == set(), seed
            compared += 1
    assert compared >= 6


def test_what_is_no_step_is_refused() -> None:
    for data in ([], ["XX", 0], ["SP", 0], "SP", [["SP"], 1, 2]):
        with pytest.raises(StepError, match="no step of AN"):
            step_from_json(data)  # type: ignore[arg-type]


def test_steps_that_do_not_fit_are_refused() -> None:
    args = mini_args(drawn_dag(0))
    for step in (["SP", 99, 0, 4, [2], 1], ["AN", 1, 99, 3], ["CI", 0], ["FSP", 1, 0, 7, 1], ["RE", 1, [0]]):
        with pytest.raises(StepError):
            replayed_steps(args, [step])


def replayed_steps(args: list[Any], steps: list[list[Any]]) -> State:
    from mini_ansor.steps import replay

    return replay(args, [step_from_json(step) for step in steps])  # type: ignore[return-value]
