"""The suites notice parts that break a promise: each bad part here fails the test that is for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import ansor
from ansor.core.tasks.measure_values import BuildResult, MeasureInput, MeasureResult
from ansor.evolve.mutation import CPU_MUTATIONS
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.sketch import generate_sketches
from ansor.sketch.rule import Condition
from ansor.space.decisions.lengths import Lengths
from te_lite.errors import TeError
from te_lite.schedule import step as step_module
from te_lite.schedule.loop_steps import Pragma, split_loop
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from te_lite.schedule.step import Step, Words
from tests.ansor.sketch_cases import HARDWARE
from tests.conformance.callback import MeasureCallbackSuite
from tests.conformance.mutation import MutationSuite
from tests.conformance.policy import PolicySuite, matmul_task
from tests.conformance.runner import BuilderSuite, RunnerSuite
from tests.conformance.sketch_rule import SketchesSuite, SketchRuleSuite, Watched
from tests.conformance.step import StepSuite

TASK = matmul_task(13, 11, 7)
MOVE_FACTOR = next(m for m in CPU_MUTATIONS if m.name == Lengths.name)
INPUTS = [MeasureInput(TASK, s) for s in ansor.SketchPolicy(TASK, ansor.RandomModel(0), seed=5, verbose=0).ask(3)]


# ---------------------------------------------------------------------------------------------------- mutations


def in_place(rows: Any, space: Any, rng: Any) -> Any:
    out, mask = MOVE_FACTOR.apply(rows, space, rng)
    rows[:] = out
    return rows, mask


BAD_MUTATIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], None]]] = {
    "breaks tiles": (
        lambda rows, space, rng: (rows * 3, np.ones(len(rows), bool)),
        lambda m: MutationSuite().test_rows_stay_programs_and_the_mask_says_which_differ(m, 0),
    ),
    "lies": (
        lambda rows, space, rng: (MOVE_FACTOR.apply(rows, space, rng)[0], np.zeros(len(rows), bool)),
        lambda m: MutationSuite().test_rows_stay_programs_and_the_mask_says_which_differ(m, 0),
    ),
    "writes over": (in_place, lambda m: MutationSuite().test_the_rows_it_is_given_are_left_alone(m)),
    "idles": (
        lambda rows, space, rng: (rows.copy(), np.zeros(len(rows), bool)),
        lambda m: MutationSuite().test_it_changes_something_somewhere(m),
    ),
    "own dice": (
        lambda rows, space, rng: MOVE_FACTOR.apply(rows, space, np.random.default_rng()),
        lambda m: MutationSuite().test_a_seed_decides(m),
    ),
}


@pytest.mark.parametrize("case", BAD_MUTATIONS)
def test_bad_mutations(case: str) -> None:
    change, test = BAD_MUTATIONS[case]
    mutation = type("Bad", (), {"name": "bad", "weight": 1.0, "apply": staticmethod(change)})()
    with pytest.raises(AssertionError):
        test(mutation)


# --------------------------------------------------------------------------------------------------------- steps


class Halves(Step):
    """Splits the first loop of a stage by `factor`; breaks one promise."""

    __slots__ = ()
    tag: ClassVar[str] = "BAD"
    fault: ClassVar[str] = ""
    factor: int

    def effect(self, state: State) -> State:
        return split_loop(state, self.stage, 0, (self.factor,), inner_to_outer=True)

    def written(self, name: str) -> Any:
        return 1 if self.fault == "forgets" and name == "factor" else getattr(self, name)

    def python(self, words: Words, before: State) -> None:
        for uid in words.state.stages[self.stage].relations[-1].children:
            words.new_loop(self.stage, uid)
        if self.fault != "silent":
            words.call(self.stage, f'step("BAD", {self.factor})')


BAD_STEPS: dict[str, Callable[[StepSuite, type[Step], State], None]] = {
    "forgets": lambda s, kind, state: s.test_its_json_says_all_of_it(kind, state),
    "silent": lambda s, kind, state: s.test_its_python_makes_the_same_program(kind, state),
    "nameless": lambda s, kind, state: s.test_a_stage_that_is_not_there_is_refused(kind, state),
}


@pytest.mark.parametrize("fault", BAD_STEPS)
def test_bad_steps(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite finds the fault, and nothing in the same kind without it."""
    monkeypatch.setitem(step_module.KINDS, "BAD", step_module.Kind(__name__, "Bad"))
    for own in ("", fault):
        names = {"__annotations__": {"stage": "int", "factor": "int"}, "fault": own, "__slots__": ("factor",)}
        names |= {"about": ()} if own == "nameless" else {}
        kind: type[Step] = dataclass(frozen=True)(type("Bad", (Halves,), names))
        monkeypatch.setattr(step_module, "kind_of", {"BAD": kind}.__getitem__)
        state = apply(TASK.compute_dag.init_state, kind(len(TASK.compute_dag.ops) - 1, 4))  # type: ignore[call-arg]
        with pytest.raises((AssertionError, pytest.fail.Exception)) if own else nullcontext():
            BAD_STEPS[fault](StepSuite(), kind, state)


# ----------------------------------------------------------------------------------------------------- policies


class Bad(ansor.SketchPolicy):
    """Breaks one promise."""

    def __init__(self, task: ansor.SearchTask, seed: int, fault: str) -> None:
        super().__init__(task, ansor.RandomModel(0), seed=None if fault == "no seed" else seed, verbose=0)
        self.fault = fault
        self.first: list[Any] = []

    def ask(self, n: int) -> list[Any]:
        if self.fault == "again" and self.first:
            return self.first[:n]
        found = super().ask(n + (self.fault == "greedy"))
        self.first = self.first or found
        return found

    def search(self, trials: int, *rest: Any, **options: Any) -> Any:
        best = super().search(trials + (self.fault == "spends"), *rest, **options)
        return self.first[0] if self.fault == "worst" else best


BAD_POLICIES: dict[str, Callable[[PolicySuite], None]] = {
    "again": lambda s: s.test_nothing_is_proposed_twice(TASK),
    "greedy": lambda s: s.test_nothing_is_proposed_twice(TASK),
    "no seed": lambda s: s.test_a_seed_decides(TASK),
    "spends": lambda s: s.test_the_budget_is_kept_and_the_best_is_given(TASK),
    "worst": lambda s: s.test_the_budget_is_kept_and_the_best_is_given(TASK),
}


@pytest.mark.parametrize("fault", BAD_POLICIES)
def test_bad_policies(fault: str) -> None:
    suite = type("Suite", (PolicySuite,), {"make": lambda self, task, seed: Bad(task, seed, fault)})()
    with pytest.raises(AssertionError):
        BAD_POLICIES[fault](suite)


# ------------------------------------------------------------------------------------------ builders and runners


class BadRunner(AnalyticalRunner):
    """Gives a result with one thing wrong."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__()
        self.wrong = wrong

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        return replace(super().run(inp, replace(built, error_no=0)), **self.wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp": int(time.time() * 1000)}, {"all_cost": 1000.0}, {"all_cost": -1.0}, {"costs": (0.0,)},
        {"costs": ()}, {"costs": (float("inf"),)}, {"error_no": 99}, {"error_msg": "fine"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_bad_results(wrong: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, TeError, ValueError)):
        RunnerSuite().test_programs_in_order_have_costs_in_seconds(BadRunner(**wrong), NoBuilder(), INPUTS)


def test_a_runner_that_forgets_failed_builds() -> None:
    with pytest.raises(AssertionError):
        RunnerSuite().test_a_failed_build_is_a_failed_result(BadRunner(), INPUTS)


def test_a_builder_of_one_place() -> None:
    class OnePlace(NoBuilder):
        def submit(self, inp: MeasureInput) -> Future[BuildResult]:
            done: Future[BuildResult] = Future()
            done.set_result(BuildResult("there", (), 0, "", 0.0))
            return done

    with pytest.raises(AssertionError):
        BuilderSuite().test_many_may_be_queued_and_each_gets_its_own(OnePlace(), INPUTS)
    unfit = MeasureInput(TASK, steps=[Pragma(77, 0, "x$1")])
    with pytest.raises(AssertionError):
        BuilderSuite().test_what_cannot_be_built_is_a_result(NoBuilder(), unfit, INPUTS)


# ---------------------------------------------------------------------------------------------------- callbacks


def test_a_callback_that_meddles() -> None:
    class Meddles:
        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            if policy is not None:
                policy.ask(1)
            inputs[:] = []

    results = [MeasureResult((1.0,), 0, "", 0.0, 0)] * 3
    with pytest.raises((AssertionError, ValueError)):
        MeasureCallbackSuite().test_what_it_is_told_stays_as_it_was(Meddles(), ([*INPUTS], [*results]))
    with pytest.raises((AssertionError, ValueError)):
        MeasureCallbackSuite().test_a_search_goes_as_it_would_without_it(Meddles())


# -------------------------------------------------------------------------------------------------- sketch rules


class BadRule:
    """Applies once to the last stage, and breaks one promise."""

    paper, departs = "", ""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.asked = 0

    def condition(self, ctx: Any, state: Any, k: int) -> Any:
        self.asked += 1
        if self.fault == "idles" or k != len(state.stages) - 1:
            return Condition.SKIP
        return Condition(1 + self.asked % 2) if self.fault == "moody" else Condition.APPLY_AND_SKIP_REST

    def apply(self, ctx: Any, state: Any, k: int) -> Any:
        if self.fault == "rewinds":
            return (
                [(ctx.dag.init_state, -1)]
                if state.steps
                else [(apply(state, Pragma(k, 0, "auto_unroll_max_step$16")), k)]
            )
        return [(replace(state, steps=()) if self.fault == "forgets" else state, -1)]


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("idles", "test_it_applies_to_each_workload"),
        ("moody", "test_the_condition_is_one_of_three_and_always_the_same"),
        ("rewinds", "test_it_appends_steps_and_names_the_next_stage"),
    ],
)
def test_bad_rules(fault: str, test: str) -> None:
    suite = SketchRuleSuite()
    suite.watched, suite.own = Watched(BadRule(fault)), True  # type: ignore[arg-type]
    with pytest.raises((AssertionError, TeError)):
        getattr(suite, test)()


def test_sketches_of_another_computation() -> None:
    class Other(SketchesSuite):
        def sketches(self, dag: Any) -> list[Any]:
            return generate_sketches(matmul_task(4, 4, 4).compute_dag, "c", HARDWARE["c"])

    with pytest.raises((AssertionError, TeError, ValueError)):
        Other().test_programs_compute_the_workload()
