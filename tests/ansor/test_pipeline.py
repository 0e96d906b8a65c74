"""Building and running side by side: order of results, errors, and which results a round knows."""

import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

import ansor
from ansor.measure import BuildResult, MeasureResult
from ansor.measure.pipeline import Pipeline
from ansor.measure.progress import SilentDisplay
from ansor.policy.search_loop import search_loop
from ansor.policy.tuning_options import usual_runner
from tests.ansor.conftest import matmul
from tests.ansor.fake_clock import FakeClock
from tests.ansor.fake_measure import ReadyBuilder


class HandBuilder(ReadyBuilder):
    """Builds are done when the test says so."""

    def submit(self, inp):
        self.builds.append(Future())
        return self.builds[-1]

    def finish(self, k):
        self.builds[k].set_result(BuildResult(f"program {k}", (), 0, "", 0.0))


class NumberRunner:
    """The cost of the k-th program that was built is k + 1 seconds; `fail` names the one that breaks the run."""

    def __init__(self, fail=None):
        self.fail = fail
        self.ran = []
        self.closed = 0

    def run(self, inp, built):
        k = int(built.filename.split()[1])
        self.ran.append(k)
        if k == self.fail:
            raise ansor.MeasureError(f"program {k} breaks the run")
        return MeasureResult((k + 1.0,), 0, "", 0.0, 0)

    def close(self):
        self.closed += 1


@pytest.fixture(params=["c", "cuda"])
def task(request):
    return ansor.SearchTask(matmul, (13, 11, 7), target=request.param)


@pytest.fixture
def gpu_task():
    return ansor.SearchTask(matmul, (13, 11, 7), target="cuda")


def inputs_of(task, n):
    return [ansor.MeasureInput(task, task.compute_dag.init_state) for _ in range(n)]


def test_what_is_built_first_is_run_first(gpu_task):
    builder, runner = HandBuilder(), NumberRunner()
    pipeline = Pipeline(builder, runner)
    pipeline.start(list(enumerate(inputs_of(gpu_task, 3), 10)))
    for k in (2, 0, 1):
        builder.finish(k)
    assert [pipeline.take() for _ in range(3)] == [
        (10 + k, MeasureResult((k + 1.0,), 0, "", 0.0, 0)) for k in (2, 0, 1)
    ]
    pipeline.close()


def test_results_come_in_the_order_of_the_inputs_and_callbacks_in_that_of_arrival(gpu_task):
    """Of the programs that are built while one runs, those of the older round go first."""

    class Gated(NumberRunner):
        def run(self, inp, built):
            begun.set()
            assert gate.wait(60)
            return super().run(inp, built)

    builder, runner, heard, begun, gate = HandBuilder(), Gated(), [], threading.Event(), threading.Event()

    class Ear(ansor.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            heard.extend(r.cost for r in results)

    measurer = ansor.ProgramMeasurer(builder, runner, [Ear()], verbose=0)
    first = measurer.start(gpu_task, None, inputs_of(gpu_task, 2))
    second = measurer.start(gpu_task, None, inputs_of(gpu_task, 2))
    builder.finish(3)
    assert begun.wait(60)
    for k in (2, 1, 0):
        builder.finish(k)
    gate.set()
    assert [r.cost for r in measurer.finish(first)] == [1.0, 2.0]
    assert [r.cost for r in measurer.finish(second)] == [3.0, 4.0]
    assert heard == [4.0, 2.0, 1.0, 3.0] and measurer.count == 4
    measurer.close()


def test_a_host_that_runs_programs_builds_a_few_and_then_runs_them():
    task = ansor.SearchTask(matmul, (13, 11, 7), target="c")
    builder, runner = ReadyBuilder(), NumberRunner()
    pipeline = Pipeline(builder, runner)
    pipeline.start(list(enumerate(inputs_of(task, 11))))
    assert builder.builds == []
    numbers = []
    for k in range(11):
        numbers.append(pipeline.take()[0])
        assert len(builder.builds) == (8 if k < 8 else 11) and runner.ran == list(range(k + 1))
    assert numbers == list(range(11))


def test_what_breaks_the_run_stops_the_workers(task):
    builder, runner = ReadyBuilder(), NumberRunner(fail=1)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    with pytest.raises(ansor.MeasureError, match="program 1 breaks"):
        measurer.measure(task, None, inputs_of(task, 4))
    assert builder.closed == runner.closed == 1
    assert [r.cost for r in measurer.measure(task, None, inputs_of(task, 2))] == [5.0, 6.0]


class Diary:
    """A policy that writes down how many results it knew when it was asked."""

    def __init__(self, task, rounds=100):
        self.task = task
        self.rounds = rounds
        self.known = 0
        self.asked = []

    def ask(self, n):
        self.asked.append((n, self.known))
        return [self.task.compute_dag.init_state] * (n if len(self.asked) <= self.rounds else 0)

    def tell(self, inputs, results):
        self.known += len(results)


def loop(task, policy, trials, per_round=4, **options):
    measurer = ansor.ProgramMeasurer(ReadyBuilder(), NumberRunner(), verbose=0)
    search_loop(policy, task, trials, options.pop("early_stopping", None), per_round, measurer, **options)
    measurer.close()
    return measurer.count


def test_a_round_knows_the_rounds_before_it_on_a_host_and_all_but_the_last_on_a_device(task):
    policy = Diary(task)
    assert loop(task, policy, 14) == 14
    late = 0 if task.target.kind.name == "c" else 4
    assert policy.asked == [(4, 0), (4, max(0, 4 - late)), (4, 8 - late), (2, 12 - late)]
    assert policy.known == 14


def test_a_search_ends_when_nothing_new_is_found(task):
    policy = Diary(task, rounds=2)
    assert loop(task, policy, 100, retries=1) == 8
    assert len(policy.asked) == 4 and policy.known == 8


def test_a_search_ends_when_nothing_improves_or_time_is_up(task):
    assert 5 <= loop(task, Diary(task), 400, early_stopping=5) <= 16
    assert loop(task, Diary(task), 400, time_limit=0.0) == 0


def test_rounds_get_smaller_when_time_is_nearly_up(monkeypatch):
    task, clock = ansor.SearchTask("matmul", (6, 4, 8), target="c"), FakeClock()
    monkeypatch.setattr("ansor.policy.search_loop.time", clock)
    monkeypatch.setattr("ansor.measure.time_limit.time", clock)
    monkeypatch.setattr("ansor.measure.pipeline.time", clock)

    class Second(Diary):
        """Each program takes a second."""

        def tell(self, inputs, results):
            clock.sleep(len(inputs))
            super().tell(inputs, results)

    policy = Second(task)
    assert loop(task, policy, 400, time_limit=9.5) == 10
    assert [n for n, _ in policy.asked] == [4, 4, 1, 1]


def limited_search(monkeypatch, target, limit, seconds=1.0):
    """A search whose programs take so many seconds each: the policy, runner and measurer afterwards."""
    task, clock = ansor.SearchTask("matmul", (6, 4, 8), target=target), FakeClock()
    for module in ("ansor.measure.time_limit", "ansor.measure.pipeline", "ansor.policy.search_loop"):
        monkeypatch.setattr(f"{module}.time", clock)

    class Slow(NumberRunner):
        def run(self, inp, built):
            clock.sleep(seconds)
            return replace(super().run(inp, built), all_cost=seconds)

        def compare(self, inputs, builds):
            clock.sleep(seconds * len(inputs))
            self.compared = len(inputs)
            return [[1.0]] * len(inputs)

    policy, runner = Diary(task), Slow()
    measurer = ansor.ProgramMeasurer(ReadyBuilder(), runner, verbose=0)
    said = []
    measurer.display.note = lambda text, best=None: said.append(text)
    search_loop(policy, task, 400, None, 64, measurer, time_limit=limit)
    measurer.close()
    return policy, runner, measurer, said, clock


def test_a_time_limit_holds_within_a_round_and_what_was_measured_is_told(monkeypatch, task):
    policy, runner, measurer, said, clock = limited_search(monkeypatch, task.target.kind.name, 20.0)
    assert measurer.count == len(runner.ran) == policy.known
    assert 16 <= measurer.count <= 17, "four seconds are for the turns, and of a round ahead one program is measured"
    assert runner.compared >= 3 and clock.passed == 20.0
    assert said[-1] == "stopped after 20.0 s by the time limit of 20 s"


def test_a_time_limit_that_is_too_short_measures_one_program(monkeypatch):
    policy, runner, measurer, said, _ = limited_search(monkeypatch, "c", 0.5, 7.0)
    assert measurer.count == policy.known == 1 and not hasattr(runner, "compared")
    assert said == ["stopped after 7.0 s by the time limit of 0.5 s"]


def test_a_time_limit_counts_from_the_beginning_of_what_comes_before(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr("ansor.measure.time_limit.time", clock)
    measurer = ansor.ProgramMeasurer(ReadyBuilder(), NumberRunner(), verbose=0)
    begun = clock.monotonic()
    measurer.begin()
    clock.sleep(3)
    assert [measurer.limited(10.0).begun - begun for _ in range(2)] == [0, 3]


@pytest.mark.parametrize(("limit", "seconds"), [(None, 10.0), (3.0, 1.5), (60.0, 10.0)])
def test_a_program_runs_for_a_part_of_the_limit(limit, seconds):
    assert usual_runner("c", time_limit=limit).timeout == seconds
    assert ansor.TuningOptions(8, time_limit=limit).runner.timeout == seconds


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_two_searches_with_one_seed_ask_for_the_same_programs(target):
    task, texts = ansor.SearchTask(matmul, (24, 20, 36), target=target), []
    for _ in range(2):
        policy = ansor.SketchPolicy(task, ansor.RandomModel(3), seed=5, verbose=0)
        asked = []
        ask = policy.ask
        policy.ask = lambda n, ask=ask, asked=asked: asked.append(ask(n)) or asked[-1]
        loop(task, policy, 24, per_round=8)
        texts.append([str(s.steps) for states in asked for s in states])
    assert texts[0] == texts[1] and len(texts[0]) == 24
    assert np.unique(texts[0]).size == 24


def test_the_best_few_are_timed_again_in_turns(task):
    class Luck(NumberRunner):
        """The first figures of the programs flatter the later ones; in turns program 2 is the fastest."""

        def compare(self, inputs, builds):
            self.compared = [int(b.filename.split()[1]) for b in builds]
            return [[1.0, 5.0, 1.1], [0.9, 0.8, 0.7], [], [2.0], [3.0]]

    runner = Luck()
    measurer = ansor.ProgramMeasurer(ReadyBuilder(), runner, verbose=0)
    assert measurer.confirm(task) is None
    inputs = inputs_of(task, 8)
    measurer.measure(task, None, inputs)
    best = measurer.confirm(task)
    assert len(runner.compared) == 5
    assert (best.cost, best.trial, best.state) == (0.8, 2, inputs[1].state)
    assert measurer.count == 8


def test_ctrl_c_while_a_policy_thinks_loses_nothing_that_was_measured(gpu_task):
    heard = []

    class Ear(ansor.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            heard.extend(r.cost for r in results)

    class Thoughtful(Diary):
        """Is interrupted in its second round, when three programs of the first have run."""

        def ask(self, n):
            if self.asked:
                while len(runner.ran) < 3:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().ask(n)

    class Patient(NumberRunner):
        def run(self, inp, built):
            if len(self.ran) == 3:
                gate.wait(10)
            return super().run(inp, built)

        def close(self):
            super().close()
            gate.set()

    gate, builder, runner = threading.Event(), ReadyBuilder(), Patient()
    measurer = ansor.ProgramMeasurer(builder, runner, [Ear()], verbose=0)
    with pytest.raises(KeyboardInterrupt):
        search_loop(Thoughtful(gpu_task), gpu_task, 100, None, 32, measurer)
    assert heard == [1.0, 2.0, 3.0] and len(runner.ran) <= 4
    assert builder.closed == runner.closed == 1


def test_early_stopping_goes_by_rounds_and_not_by_arrival(gpu_task):
    class Slow(HandBuilder):
        """The first build of every round ends late."""

        def submit(self, inp):
            future = super().submit(inp)
            number = len(self.builds) - 1
            if number % 32:
                self.finish(number)
            else:
                threading.Timer(0.1, self.finish, [number]).start()
            return future

    counts = []
    for builder in (ReadyBuilder(), Slow()):
        measurer = ansor.ProgramMeasurer(builder, NumberRunner(), verbose=0)
        search_loop(Diary(gpu_task, rounds=6), gpu_task, 32 * 6, 40, 32, measurer)
        counts.append(measurer.count)
        measurer.close()
    assert counts[0] == counts[1] < 32 * 6


def test_the_display_hears_of_a_round_when_it_is_waited_for(gpu_task):
    shown = []

    class Screen(SilentDisplay):
        def result(self, task, inp, result, best):
            shown.append((result.cost, best))

    class Straggler(NumberRunner):
        """Program 0 is built after two others were run."""

        def run(self, inp, built):
            result = super().run(inp, built)
            if len(self.ran) == 2:
                builder.finish(0)
            return result

    builder = HandBuilder()
    measurer = ansor.ProgramMeasurer(builder, Straggler(), verbose=0)
    measurer.display = Screen()
    first, second = [measurer.start(gpu_task, None, inputs_of(gpu_task, n)) for n in (1, 2)]
    for k in (2, 1):
        builder.finish(k)
    measurer.finish(first)
    assert measurer.count == 3 and shown == [(1.0, 1.0)]
    measurer.finish(second)
    assert shown[1:] == [(3.0, 1.0), (2.0, 1.0)]
    measurer.close()


def test_a_batch_is_given_once_and_never_waited_for_after_a_stop(gpu_task):
    measurer = ansor.ProgramMeasurer(HandBuilder(), NumberRunner(), verbose=0)
    first = measurer.start(gpu_task, None, inputs_of(gpu_task, 2))
    measurer.close()
    with pytest.raises(ansor.MeasureError, match="given back or dropped"):
        measurer.finish(first)
