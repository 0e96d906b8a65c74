"""How many rounds are under way where policies know nothing of each other: by their sizes, so that builders work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import BuildResult
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.scheduler.policies import make_search_policies
from ansor.scheduler.rounds import Round, Rounds
from tests.ansor.fake_measure import Heard, LateBuilder, fake_measurer
from tests.workloads import matmul

SMALL = {"evolutionary_search_population": 24, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}


def tasks_of(count: int) -> list[ansor.SearchTask]:
    return [ansor.SearchTask(matmul, (16, 8 + k, 4), target="cuda") for k in range(count)]


def under_way(rounds: Rounds, trials: int) -> tuple[int, int]:
    """How many rounds of so many candidates are under way when no other is begun, and how many of them are built."""
    begun: tuple[Round, ...] = ()
    while rounds.has_room(begun):
        begun = (*begun, Round(len(begun), trials))
    return len(begun), len(rounds.built(begun))


@pytest.mark.parametrize(
    ("tasks", "trials", "expected"),
    [
        (24, 64, (5, 4)), (24, 256, (3, 2)), (24, 43, (7, 6)), (24, 36, (7, 6)), (24, 16, (8, 6)), (24, 12, (9, 6)),
        (24, 4, (9, 6)), (48, 12, (15, 12)), (48, 4, (18, 12)), (10, 30, (3, 2)), (3, 4, (3, 2)), (1, 64, (3, 2)),
    ],
)  # fmt: skip
def test_small_rounds_of_many_tasks_are_built_beside_each_other(
    tasks: int, trials: int, expected: tuple[int, int]
) -> None:
    """A search knows of all rounds but those of a few of its tasks."""
    some = tasks_of(tasks)
    policies = make_search_policies("sketch.random", SMALL, some, 4, 0, seed=1)
    measurer = fake_measurer(lambda _: 1e-3)
    assert under_way(Rounds(some, policies, measurer, apart=True), trials) == expected
    assert under_way(Rounds(some, policies, measurer), trials)[0] == 2, "policies that share a model"


def test_what_finds_nothing_new_ends_before_another_round_is_begun() -> None:
    some = tasks_of(24)
    policies = make_search_policies("sketch.random", SMALL, some, 4, 0, seed=1)
    rounds = Rounds(some, policies, fake_measurer(lambda _: 1e-3), apart=True)
    assert rounds.has_room((Round(0, 4),)) and not rounds.has_room((Round(0, 4), Round(1, 0)))
    assert rounds.built(()) == () and len(rounds.built((Round(0, 4),) * 7)) == 6


class Stuck(NoBuilder):
    """The first program is built when so many others are."""

    def __init__(self, others: int) -> None:
        self.first: Future[BuildResult] = Future()
        self.others = others
        self.heard: list[str] = []

    def submit(self, inp: ansor.MeasureInput) -> Future[BuildResult]:
        self.heard.append(inp.task.workload_key)
        done = super().submit(inp)
        if len(self.heard) == 1 + self.others and not self.first.done():
            self.first.set_result(done.result())
        return self.first if len(self.heard) == 1 else done

    def give_up(self) -> None:
        if not self.first.done():
            self.first.set_exception(TimeoutError("no other program came"))


class Elsewhere:
    """A policy that thinks elsewhere, until `thought`; it writes down how many programs it was asked for."""

    rounds_ahead = 1

    def __init__(self, task: ansor.SearchTask) -> None:
        self.task = task
        self.asked: list[int] = []
        self.thought = threading.Event()

    def foresee_default(self) -> None: ...

    def foresee(self, n: int) -> None: ...

    def known(self) -> bool:
        return self.thought.is_set()

    def candidates(self, n: int) -> list[ansor.MeasureInput]:
        self.asked.append(n)
        return [ansor.MeasureInput(self.task, self.task.compute_dag.init_state) for _ in range(n)]

    def tell(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[Any]) -> None: ...

    def settle(self, until: float) -> None: ...

    def continue_search_one_round(self, num_measure: int, measurer: Any) -> Any: ...


@pytest.mark.timeout(60)
def test_a_round_is_built_as_soon_as_its_programs_are_known() -> None:
    """While the oldest is waited for; it is stuck here until the next one is built, which is thought about for long."""
    some = tasks_of(3)
    policies = [Elsewhere(task) for task in some]
    builder = Stuck(1)
    measurer = ansor.ProgramMeasurer(builder, AnalyticalRunner(), verbose=0)
    rounds = Rounds(some, policies, measurer, apart=True)
    rounds.foresee([0, 1, 2], 1)
    under_way = [rounds.begin(k, 1, 3 - k) for k in range(3)]
    threading.Timer(0.5, policies[1].thought.set).start()
    assert len(rounds.end(under_way)) == 1
    assert [policy.asked for policy in policies] == [[1], [1], []], "the third is searched"


def test_when_the_time_is_up_only_first_rounds_measure_a_program() -> None:
    some = tasks_of(2)
    policies = [Elsewhere(task) for task in some]
    measurer = fake_measurer(lambda _: 1e-3)
    rounds = Rounds(some, policies, measurer, apart=True)
    measurer.limited(1e-9)
    rounds.foresee([0, 1], 3)
    first, second, later = rounds.begin(0, 3, 2), rounds.begin(1, 3, 1), rounds.begin(0, 3)
    assert [len(round.costs()) for round in (first, second, later)] == [1, 1, 0]
    assert [policy.asked for policy in policies] == [[3], [3]]


class Preparing(AnalyticalRunner):
    """Writes down what was prepared, and that it was before the first program of its task came."""

    def __init__(self) -> None:
        super().__init__(noise=0.2)
        self.prepared: list[str] = []

    def prepare(self, task: ansor.SearchTask) -> None:
        self.prepared.append(task.workload_key)

    def run(self, inp: ansor.MeasureInput, built: BuildResult) -> ansor.MeasureResult:
        assert inp.task.workload_key in self.prepared
        return super().run(inp, built)


def tune(builder: NoBuilder, processes: int, runner: AnalyticalRunner | None = None) -> dict[str, set[Any]]:
    """36 programs of twelve tasks, in rounds of two; gives those of each task."""
    heard = Heard()
    runner = AnalyticalRunner(noise=0.2) if runner is None else runner
    scheduler = ansor.TaskScheduler(tasks_of(12), callbacks=[], seed=4)
    options = ansor.TuningOptions(36, None, 2, 0, builder, runner, [heard])
    scheduler.tune(options, search_policy_params=SMALL, policy_processes=processes)
    return {key: {steps for _, steps, _ in found} for key, found in heard.found.items()}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_program_that_takes_long_to_build_holds_no_builder_back() -> None:
    """Of twelve tasks three are built at once: a scheduler with two would wait for ever."""
    builder, runner = Stuck(5), Preparing()
    given_up = threading.Timer(60, builder.give_up)
    given_up.start()
    found = tune(builder, 2, runner)
    given_up.cancel()
    assert len(set(builder.heard[:6])) == 3 and sum(map(len, found.values())) == 36
    assert len(set(runner.prepared)) == 12 and set(builder.heard[:6]) == set(runner.prepared[:3])


@pytest.mark.long
def test_a_seed_decides_the_search_however_long_builds_take() -> None:
    assert tune(LateBuilder(1), 0) == tune(LateBuilder(2), 2)
