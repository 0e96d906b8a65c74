"""A search says what it uses, and uses what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.evolve.mutation import CPU_MUTATIONS
from ansor.offline.analytical import AnalyticalRunner
from ansor.sketch.generate import OWNERS
from examples.seams.custom_sketch_rule import rule

SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 2}


@pytest.fixture
def task() -> ansor.SearchTask:
    """A product that split reductions apply to."""
    return ansor.SearchTask(
        "matmul", (16, 16, 512), target="c", hardware_params=ansor.HardwareParams(num_cores=4, vector_unit_bytes=32)
    )


class Nothing:
    """Changes no row, and counts how often it is asked."""

    name, weight = "nothing", 1.0

    def __init__(self) -> None:
        self.asked = 0

    def apply(self, rows: np.ndarray, space: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        self.asked += 1
        return rows, np.zeros(len(rows), bool)


def search(task: ansor.SearchTask, model: Any = None, params: Any = None, trials: int = 6, **options: Any) -> Any:
    policy = ansor.SketchPolicy(task, model, {**SMALL, **(params or {})}, seed=3, **options)
    runner = AnalyticalRunner()
    measurer = ansor.ProgramMeasurer(runner.builder(), runner, verbose=0)
    policy.search(trials, None, 3, measurer)
    return policy


def rules_of(policy: Any) -> dict[str, int]:
    """How many sketches the extra rules have for the task, each asked by itself."""
    given = {}
    for name in OWNERS:
        params = {"extra_sketch_rules": name}
        given[name] = len(ansor.SketchPolicy(policy.task, ansor.RandomModel(0), params, verbose=0).extra_sketches())
    return {name: count for name, count in given.items() if count}


@pytest.mark.long
def test_the_first_line_says_what_is_used(task: ansor.SearchTask, capsys: pytest.CaptureFixture[str]) -> None:
    policy = search(task)
    (line,) = capsys.readouterr().out.splitlines()
    extra = rules_of(policy)
    own = len(policy.generate_sketches())
    assert len(extra) > 1 and own + sum(extra.values()) == len(policy.proposals.sketches)
    parts = ", ".join([f"{own} by the rules of c", *[f"{count} by {name}" for name, count in extra.items()]])
    names = ", ".join(m.name for m in CPU_MUTATIONS)
    assert line == (
        f"SketchPolicy: searching {len(policy.proposals.sketches)} sketches ({parts}); model XGBModel; "
        f"evolution of 64 programs over 2 generations by {names}; runner AnalyticalRunner"
    )
    search(task, verbose=0)
    assert capsys.readouterr().out == ""


def test_a_random_search_says_so(task: ansor.SearchTask, capsys: pytest.CaptureFixture[str]) -> None:
    search(task, ansor.RandomModel(0), {"extra_sketch_rules": ""})
    out = capsys.readouterr().out
    assert "3 sketches (3 by the rules of c); model RandomModel; programs at random, without evolution" in out


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "names"), [(None, []), ("rows", []), ("all", None), ("split_reduction", None)])
def test_custom_rules_are_searched_alone_unless_others_are_asked_for(
    task: ansor.SearchTask, capsys: pytest.CaptureFixture[str], asked: str | None, names: Sequence[str] | None
) -> None:
    params = {} if asked is None else {"extra_sketch_rules": asked}
    policy = search(task, params=params, init_search_callbacks=[rule])
    out = capsys.readouterr().out
    own = len(policy.generate_sketches())
    assert f"{own} by {rule.rule_name} and the rules of c" in out
    assert ("the extra rules are off" in out) == (asked is None)
    extra = len(policy.proposals.sketches) - own
    assert (extra == 0) == (names is not None)
    if asked == "all":
        assert extra == sum(rules_of(policy).values())


@pytest.mark.long
def test_the_default_model_learns_and_asks_mutations(task: ansor.SearchTask) -> None:
    mutation = Nothing()
    policy = search(task, trials=9, verbose=0, mutations=[*CPU_MUTATIONS, mutation])
    assert type(policy.cost_model) is ansor.XGBModel and mutation.asked > 0
    with pytest.warns(UserWarning, match="a RandomModel searches without evolution, so no mutation is asked"):
        search(task, ansor.RandomModel(0), verbose=0, mutations=[*CPU_MUTATIONS, Nothing()])


def test_the_default_model_follows_the_seed(task: ansor.SearchTask) -> None:
    first, again = [ansor.SketchPolicy(task, params=SMALL, seed=5, verbose=0).ask(8) for _ in range(2)]
    assert [s.steps for s in first] == [s.steps for s in again]


@pytest.mark.slow
def test_each_task_of_a_scheduler_says_it_once(task: ansor.SearchTask, capsys: pytest.CaptureFixture[str]) -> None:
    other, runner = ansor.SearchTask("norm", (1, 16, 16), target="c"), AnalyticalRunner()
    scheduler = ansor.TaskScheduler([task, other], callbacks=[], seed=0)
    options = ansor.TuningOptions(16, None, 4, 1, runner.builder(), runner)
    scheduler.tune(options, search_policy_params=SMALL)
    out = capsys.readouterr().out
    assert out.count("SketchPolicy: searching") == 2 and out.count("model XGBModel") == 2
