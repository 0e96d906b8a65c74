"""What every sketch rule must do.  A test file inherits the suite and supplies the rule, and a workload it applies to:

class TestMyRule(SketchRuleSuite):
    @pytest.fixture
    def rule(self):
        return MyRule()

    def workloads(self):
        return {"matmul": te.ComputeDAG(matmul(24, 40, 16))}

A rule of the package is tested in its place among the others, one of your own before them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch import RULES, generate_sketches
from ansor.sketch.rule import Condition, Outcome, SketchContext, SketchRule
from te_lite import ComputeDAG
from te_lite.bounds.bounds import infer_bounds
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.ansor.sketch_cases import HARDWARE, matmul
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle

PROGRAMS = 2


class SketchesSuite:
    """What holds of sketches, whoever makes them: `sketches(dag)` is what a subclass supplies."""

    target = "c"

    def sketches(self, dag: ComputeDAG) -> list[State]:
        raise NotImplementedError("supply a method `sketches`")

    def workloads(self) -> Mapping[str, ComputeDAG]:
        """Small computations; the rule applies to each."""
        return {"matmul": ComputeDAG(matmul(12, 20, 16)), "primes": ComputeDAG(matmul(13, 11, 7))}

    @property
    def hardware(self) -> HardwareParams:
        return HARDWARE[self.target]

    def programs(self, dag: ComputeDAG) -> list[State]:
        """Random programs of each sketch."""
        drawn = []
        for k, sketch in enumerate(self.sketches(dag)):
            for n in range(PROGRAMS):
                state = drawn_program(sketch, self.target, self.hardware, np.random.default_rng([k, n]))
                assert state is not None, f"sketch {k} has no programs"
                drawn.append(state)
        return drawn

    def test_there_are_sketches_and_the_same_ones_every_time(self) -> None:
        for name, dag in nonempty(self.workloads().items()):
            found = self.sketches(dag)
            assert found, name
            assert [s.steps for s in found] == [s.steps for s in self.sketches(dag)]

    def test_programs_are_whole_and_survive_as_records(self) -> None:
        for dag in nonempty(self.workloads().values()):
            for state in nonempty(self.programs(dag)):
                assert state.concrete and infer_bounds(state).state.steps == state.steps
                text = json.dumps([to_json(step) for step in state.steps])
                assert replay(dag, [from_json(x) for x in json.loads(text)]) == state

    def test_programs_compute_the_workload(self) -> None:
        for name, dag in nonempty(self.workloads().items()):
            oracle = Oracle(dag, np.random.default_rng(7))
            for state in nonempty(self.programs(dag)):
                found = oracle.mismatch(te.lower(state), run)
                assert found is None, f"{name}: {found} in {[to_json(step) for step in state.steps]}"


class Watched:
    """A rule that notes what it is asked and what it answers."""

    def __init__(self, rule: SketchRule) -> None:
        self.rule = rule
        self.paper, self.departs = rule.paper, rule.departs
        self.asked: list[tuple[SketchContext, State, int, Condition]] = []
        self.applied: list[tuple[State, int, Sequence[Outcome]]] = []

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        answer = self.rule.condition(ctx, state, k)
        self.asked.append((ctx, state, k, answer))
        return answer

    def apply(self, ctx: SketchContext, state: State, k: int) -> Sequence[Outcome]:
        outcomes = self.rule.apply(ctx, state, k)
        self.applied.append((state, k, outcomes))
        return outcomes


class SketchRuleSuite(SketchesSuite):
    """The fixture `rule` is what a subclass supplies; `workloads` are computations that it applies to."""

    @pytest.fixture
    def rule(self) -> SketchRule:
        raise NotImplementedError("supply a fixture `rule`")

    @pytest.fixture(autouse=True)
    def _watched(self, rule: SketchRule, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watched = Watched(rule)
        usual: Any = RULES[self.target]
        self.own = not any(type(r) is type(rule) for r in usual)
        if not self.own:
            placed = [self.watched if type(r) is type(rule) else r for r in usual]
            monkeypatch.setitem(RULES, self.target, tuple(placed))

    def sketches(self, dag: ComputeDAG) -> list[State]:
        rules: list[Any] = [self.watched] if self.own else []
        return generate_sketches(dag, Target(self.target), self.hardware, custom_rules=rules)

    def test_it_says_what_it_is_for(self) -> None:
        assert isinstance(self.watched.paper, str) and isinstance(self.watched.departs, str)

    def test_it_applies_to_each_workload(self) -> None:
        for name, dag in nonempty(self.workloads().items()):
            self.watched.applied.clear()
            self.sketches(dag)
            assert self.watched.applied, f"the condition of the rule never holds for the workload {name!r}"

    def test_the_condition_is_one_of_three_and_always_the_same(self) -> None:
        for dag in self.workloads().values():
            self.sketches(dag)
        for ctx, state, k, answer in nonempty(list(self.watched.asked)):
            assert isinstance(answer, Condition)
            assert self.watched.rule.condition(ctx, state, k) is answer

    def test_it_appends_steps_and_names_the_next_stage(self) -> None:
        """The state it was given is how every state begins that it gives; each is what its steps make."""
        for dag in self.workloads().values():
            self.sketches(dag)
        for state, k, outcomes in nonempty(self.watched.applied):
            assert 0 <= k < len(state.stages)
            for made, following in nonempty(outcomes):
                assert made.steps[: len(state.steps)] == state.steps, "a state must go on from the one it is given"
                assert replay(made.dag, made.steps) == made, "a state is not what its steps make"
                assert -1 <= following < len(made.stages), f"there is no stage {following} to look at next"
