"""What every search policy must do.  A test file inherits the suite and says how the policy is made:

class TestMyPolicy(PolicySuite):
    def make(self, task, seed):
        return MyPolicy(task, seed)

The costs of programs are made up, by the program alone; `task` and `tiny` may be overridden.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import BuildResult, MeasureInput, MeasureResult
from ansor.offline.common import NoBuilder
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from tests.ansor.sketch_cases import matmul


class MadeUpRunner:
    """Gives every program a cost of its own; those whose cost is beyond `worst` fail."""

    def __init__(self, worst: float = 2.0) -> None:
        self.worst = worst

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        digest = hashlib.sha256(text(inp.state).encode()).digest()
        cost = 1.0 + int.from_bytes(digest[:4], "big") / 2**32
        if cost > self.worst:
            return MeasureResult((1e10,), 4, "planted", 0.1, 0)
        return MeasureResult((cost,), 0, "", 0.1, 0)

    def close(self) -> None: ...


class Heard:
    """A callback that keeps what it hears."""

    def __init__(self) -> None:
        self.pairs: list[tuple[MeasureInput, MeasureResult]] = []

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self.pairs += zip(inputs, results, strict=True)


SAME = "programs are the same whose loops, printed with all extents, are: loops of a single turn are left out"


def text(state: State) -> str:
    """The program with all its extents, by which it is known."""
    return str(infer_bounds(state).state)


def matmul_task(n: int, m: int, k: int) -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=4, target="c")
    return ansor.SearchTask(compute_dag=ansor.ComputeDAG(matmul(n, m, k)), target="c", hardware_params=hardware)


class PolicySuite:
    """`make` is what a subclass supplies."""

    def make(self, task: ansor.SearchTask, seed: int) -> Any:
        raise NotImplementedError("supply a method `make`")

    @pytest.fixture
    def task(self) -> ansor.SearchTask:
        return matmul_task(24, 40, 16)

    @pytest.fixture
    def tiny(self) -> ansor.SearchTask:
        """A task whose programs are soon used up."""
        return matmul_task(1, 1, 2)

    def told(self, task: ansor.SearchTask, policy: Any, states: Sequence[State], worst: float = 2.0) -> None:
        inputs = [MeasureInput(task, s) for s in states]
        runner = MadeUpRunner(worst)
        policy.tell(inputs, [runner.run(i, BuildResult("", (), 0, "", 0.0)) for i in inputs])

    def searched(
        self, task: ansor.SearchTask, trials: int, seed: int = 0, worst: float = 2.0, per_round: int = 8
    ) -> tuple[State | None, Heard]:
        """The state that a search gives, and what was heard of it."""
        heard = Heard()
        measurer = ansor.ProgramMeasurer(NoBuilder(), MadeUpRunner(worst), [heard], verbose=0)
        return self.make(task, seed).search(trials, None, per_round, measurer), heard

    def test_what_it_proposes_are_programs_of_the_task(self, task: ansor.SearchTask) -> None:
        states = self.make(task, 0).ask(6)
        assert 0 < len(states) <= 6
        for state in states:
            assert state.dag is task.compute_dag, "a state is one of another computation"
            assert state.concrete, f"a split has no lengths yet: {state.steps}"
            assert replay(task.compute_dag, state.steps) == state, "a state is not what its steps make"

    def test_asked_for_nothing_it_gives_nothing(self, task: ansor.SearchTask) -> None:
        policy = self.make(task, 0)
        assert list(policy.ask(0)) == [] and policy.ask(1)

    def test_nothing_is_proposed_twice(self, task: ansor.SearchTask) -> None:
        """Nor while the results of a round are still to come, nor after failures."""
        policy = self.make(task, 1)
        asked: list[State] = []
        for k in range(4):
            first, second = policy.ask(5), policy.ask(3)
            assert len(first) <= 5 and len(second) <= 3
            for states in (first, second):
                if states:
                    self.told(task, policy, states, worst=1.5 if k % 2 else 2.0)
            asked += [*first, *second]
        texts = [text(s) for s in asked]
        again = [t for k, t in enumerate(texts) if t in texts[:k]]
        assert asked and not again, f"{len(again)} of {len(asked)} were proposed before ({SAME}), such as\n{again[:1]}"

    def test_a_seed_decides(self, task: ansor.SearchTask) -> None:
        runs = [self.searched(task, 20, seed=3)[1] for _ in range(2)]
        first, second = [[i.steps for i, _ in run.pairs] for run in runs]
        at = next((k for k, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), len(first))
        assert first == second, f"two searches with one seed differ from trial {at} on, of {len(first)}"

    def test_the_budget_is_kept_and_the_best_is_given(self, task: ansor.SearchTask) -> None:
        for trials in (1, 7, 20):
            best, heard = self.searched(task, trials)
            assert 0 < len(heard.pairs) <= trials, f"{len(heard.pairs)} programs were measured, {trials} were allowed"
            least = min(heard.pairs, key=lambda pair: pair[1].cost)
            assert best is not None and text(best) == text(least[0].state), "search must give the best it measured"

    def test_failures_do_not_end_a_search(self, task: ansor.SearchTask) -> None:
        """Half of the programs fail, and then all: there is no best one then."""
        best, heard = self.searched(task, 20, worst=1.5)
        good = [i for i, r in heard.pairs if r.ok]
        assert (best is None) == (not good)
        nothing, heard = self.searched(task, 20, worst=0.0)
        assert nothing is None and heard.pairs

    def test_a_space_that_is_used_up_ends_the_search(self, tiny: ansor.SearchTask) -> None:
        best, heard = self.searched(tiny, 3000, per_round=64)
        assert best is not None and 0 < len(heard.pairs) < 3000

    def test_tuning_by_it(self, task: ansor.SearchTask) -> None:
        heard = Heard()
        options = ansor.TuningOptions(
            9, num_measures_per_round=4, verbose=0, builder=NoBuilder(), runner=MadeUpRunner(),
            measure_callbacks=[heard],
        )  # fmt: skip
        task.tune(options, search_policy=self.make(task, 0))
        assert 0 < len(heard.pairs) <= 9

    def test_one_round_for_the_task_scheduler(self, task: ansor.SearchTask) -> None:
        policy = self.make(task, 0)
        if not hasattr(policy, "continue_search_one_round"):
            pytest.skip("is for single tasks")
        measurer = ansor.ProgramMeasurer(NoBuilder(), MadeUpRunner(), verbose=0)
        seen = []
        for _ in range(3):
            inputs, results = policy.continue_search_one_round(5, measurer)
            assert len(inputs) == len(results) <= 5, f"{len(inputs)} inputs and {len(results)} results of up to 5"
            seen += [text(i.state) for i in inputs]
        assert len(set(seen)) == len(seen), f"{len(seen) - len(set(seen))} were measured before ({SAME})"
        assert len(seen) == measurer.count > 0
