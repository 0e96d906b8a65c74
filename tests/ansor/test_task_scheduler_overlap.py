"""Rounds of several tasks on a device of its own: one is searched and built while the one before it is measured."""

from __future__ import annotations

import math
import random
import threading
import time

import pytest

import ansor
from ansor.measure import MeasureResult
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.scheduler.gradient import GradientParams, SchedulerState, pick_by_gradient
from ansor.scheduler.groups import group_tasks
from ansor.scheduler.task_progress import TaskProgress
from tests.ansor.conftest import matmul
from tests.ansor.fake_clock import FakeClock
from tests.ansor.fake_measure import LateBuilder, ReadyBuilder
from tests.nonempty import nonempty

PARAMS = {"evolutionary_search_population": 24, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}
LAYER = (13, 17, 29)


def tasks_on(target: str) -> list[ansor.SearchTask]:
    hardware = ansor.HardwareParams(num_cores=2, target="c") if target == "c" else None
    return [ansor.SearchTask(matmul, (n, 11, 7), target=target, hardware_params=hardware) for n in LAYER]


@pytest.fixture
def tasks():
    return tasks_on("cuda")


class Told:
    """A policy of which candidate k takes `costs[k]` seconds; it writes down what all of them knew when asked."""

    rounds_ahead = 1

    def __init__(self, number, task, costs, diary):
        self.number, self.task, self.costs, self.diary = number, task, list(costs), diary

    def ask(self, n):
        part, self.costs = self.costs[:n], self.costs[n:]
        self.diary.asked.append((self.number, len(part), self.diary.known))
        self.diary.coming += part
        return [self.task.compute_dag.init_state] * len(part)

    def tell(self, inputs, results):
        self.diary.known += len(results)

    def continue_search_one_round(self, num_measure, measurer):
        inputs = [ansor.MeasureInput(self.task, state) for state in self.ask(num_measure)]
        results = measurer.measure(self.task, self, inputs)
        self.tell(inputs, results)
        return inputs, results


class Diary(ansor.TaskSchedulerCallback):
    """What was asked for, as (task, candidates, results known); the costs to come; and the rounds, as callbacks saw."""

    def __init__(self):
        self.asked, self.coming, self.known, self.events = [], [], 0, []

    def pre_tune(self, task_scheduler, task_id):
        assert not task_scheduler.done
        self.events.append(("pre", task_id, task_scheduler.ct))

    def post_tune(self, task_scheduler, task_id):
        self.events.append(("post", task_id, task_scheduler.ct, task_scheduler.done))

    def run(self, inp, built):
        """As a runner: the cost of the candidate that was built at that place."""
        cost = self.coming[int(built.filename.split()[1])]
        ok = math.isfinite(cost)
        return MeasureResult((cost if ok else 1e10,), 0 if ok else 4, "", 0.1, 0)

    def close(self):
        pass


def run(tasks, costs, trials, per_round=2, per_task=None, early_stopping=None, whole=False, **arguments):
    """Tune with policies of known costs; gives the scheduler and the diary."""
    diary = Diary()
    policies = [Told(k, t, c, diary) for k, (t, c) in enumerate(zip(tasks, costs, strict=True))]
    if whole:
        policies[0].rounds_ahead = 0
    scheduler = ansor.TaskScheduler(tasks, callbacks=[diary], **arguments)
    options = ansor.TuningOptions(
        trials, early_stopping, per_round, verbose=0, builder=ReadyBuilder(), runner=diary
    )  # fmt: skip
    scheduler.tune(options, policies, per_task_early_stopping=per_task)
    assert scheduler.done and scheduler.ct == diary.known == sum(scheduler.task_trials)
    return scheduler, diary


def random_costs(seed, n=99):
    chance = random.Random(seed)
    return [[chance.choice((math.inf, scale, 0.8 * scale, 2e-3)) for _ in range(n)] for scale in (1e-3, 5e-3, 2e-3)]


# -------------------------------------------------------------------------------------------------- what is known


@pytest.mark.parametrize(("target", "whole", "late"), [("cuda", False, 1), ("cuda", True, 0), ("c", False, 0)])
def test_a_round_knows_all_rounds_but_the_last_on_a_device(target, whole, late):
    """Nothing is asked ahead on a host, or when one of the policies cannot be."""
    scheduler, diary = run(tasks_on(target), random_costs(1), 21, 4, whole=whole)
    assert [n for _, n, _ in diary.asked] == [4, 4, 4, 4, 4, 1] and scheduler.ct == 21
    assert [known for _, _, known in diary.asked] == [max(0, 4 * (k - late)) for k in range(6)]
    assert [task for task, _, _ in diary.asked][:3] == [0, 1, 2]


@pytest.mark.parametrize("strategy", ["gradient", "round-robin"])
def test_tasks_are_chosen_from_the_rounds_before_the_last(tasks, strategy):
    """The last one counts as a round that found nothing better."""
    for seed in range(8):
        costs = random_costs(seed)
        _, diary = run(tasks, costs, 60, 3, strategy=strategy, task_weights=[3, 1, 2])
        chosen = [task for task, _, _ in diary.asked]
        groups, flops = group_tasks(tasks), tuple(t.compute_dag.flop_ct for t in tasks)
        for k in nonempty(range(3, len(chosen))):
            progress = [TaskProgress()] * 3
            for r, task in enumerate(chosen[:k]):
                part, costs_of = progress[task].trials, costs[task]
                found = costs_of[part : part + 3] if r < k - 1 else [math.inf] * 3
                progress[task] = progress[task].after_round(found)
            state = SchedulerState(tuple(progress), (0, 1, 2), flops, groups)
            best = pick_by_gradient(state, lambda c: 3 * c[0] + c[1] + 2 * c[2], GradientParams())
            assert chosen[k] == (best if strategy == "gradient" else k % 3), (seed, k)


def test_while_a_round_is_measured_the_next_one_is_searched_and_built(tasks):
    """Each round ends only after the next one was handed to the builder, which a scheduler that waits never does."""

    class Patient(Diary):
        def run(self, inp, built):
            number = int(built.filename.split()[1])
            with builder.changed:
                assert builder.changed.wait_for(lambda: len(builder.builds) >= min(16, number - number % 4 + 8), 60)
            return super().run(inp, built)

    class Counting(ReadyBuilder):
        changed = threading.Condition()

        def submit(self, inp):
            with self.changed:
                self.changed.notify_all()
                return super().submit(inp)

    builder, diary = Counting(), Patient()
    policies = [Told(k, t, [1e-3] * 9, diary) for k, t in enumerate(tasks)]
    options = ansor.TuningOptions(16, num_measures_per_round=4, verbose=0, builder=builder, runner=diary)
    ansor.TaskScheduler(tasks, callbacks=[]).tune(options, policies)
    assert diary.known == 16


# ----------------------------------------------------------------------------------------- budgets and callbacks


def test_used_up_tasks_are_never_asked_again(tasks):
    for strategy in ("gradient", "round-robin"):
        scheduler, diary = run(tasks, [[1e-3] * 3, [], [2e-3] * 9], 50, strategy=strategy)
        assert scheduler.task_trials == [3, 0, 9] and scheduler.alive == ()
        assert sorted(task for task, n, _ in diary.asked if n == 0) == [0, 1, 2]


def test_early_stopping_measures_what_is_under_way(tasks):
    costs = [[1e-3] * 99, [1e-3, 0.9e-3, 0.8e-3, 0.7e-3] + [1e-3] * 99, [1e-3] * 99]
    scheduler, _ = run(tasks, costs, 99, early_stopping=10, strategy="round-robin")
    assert scheduler.ct == 10 + 10 + 2
    scheduler, _ = run(tasks, costs, 99, per_task=6, strategy="round-robin")
    assert scheduler.alive == () and scheduler.ct < 40
    # a round that begins when its task has one under way may be the one too many
    scheduler, _ = run(tasks[:1], [[1e-3] * 99], 99, per_task=6)
    assert scheduler.task_trials == [10]


def test_a_time_limit_measures_a_program_of_every_round_under_way(tasks, monkeypatch):
    clock = FakeClock()
    for module in ("time_limit", "pipeline"):
        monkeypatch.setattr(f"ansor.measure.{module}.time", clock)

    class Slow(ansor.TaskSchedulerCallback):
        def pre_tune(self, task_scheduler, task_id):
            clock.sleep(1)

    diary = Diary()
    options = ansor.TuningOptions(12, None, 2, verbose=0, builder=ReadyBuilder(), runner=diary, time_limit=1.5)
    policies = [Told(k, t, [1e-3] * 9, diary) for k, t in enumerate(tasks)]
    scheduler = ansor.TaskScheduler(tasks, callbacks=[Slow()])
    scheduler.tune(options, policies)
    assert diary.known == scheduler.ct and 2 <= scheduler.ct <= 4 and scheduler.done


def test_callbacks_see_every_round_and_the_end_once(tasks, capsys):
    _, diary = run(tasks[:2], [[1e-3] * 9] * 2, 6, strategy="round-robin")
    assert diary.events == [
        ("pre", 0, 0), ("pre", 1, 0), ("post", 0, 2, False), ("pre", 0, 2), ("post", 1, 4, False), ("post", 0, 6, True),
    ]  # fmt: skip
    diary = Diary()
    options = ansor.TuningOptions(6, None, 2, verbose=1, builder=ReadyBuilder(), runner=diary)
    policies = [Told(k, t, [1e-3] * 9, diary) for k, t in enumerate(tasks[:2])]
    ansor.TaskScheduler(tasks[:2]).tune(options, policies)
    out = capsys.readouterr().out
    assert out.count("[ Task Scheduler ]") == 4 and out.count("2 trials in ") == 3
    assert out.rpartition("Next ID: ")[2].strip() == "-"


# ------------------------------------------------------------------------------------------- seeds, stops, logs


class SlowRunner(AnalyticalRunner):
    """Takes now and then some time, and is interrupted when it runs program number `stop`."""

    def __init__(self, delay=0.0, stop=None):
        super().__init__(noise=0.3)
        self.delay, self.stop, self.ran = delay, stop, []

    def run(self, inp, built):
        if len(self.ran) == self.stop:
            raise KeyboardInterrupt
        self.ran.append((inp.task.workload_key, inp.steps))
        time.sleep(self.delay if len(self.ran) % 3 == 0 else 0)
        return super().run(inp, built)


def tune(tasks, trials, log, builder, runner, policy="default", seed=5, old=None):
    """Tune with real policies; gives the scheduler and what was asked for, round by round."""
    asked: list[tuple[int, list[str]]] = []
    scheduler = ansor.TaskScheduler(tasks, callbacks=[], seed=seed, load_log_file=old)
    policies = ansor.task_scheduler.make_search_policies(policy, PARAMS, tasks, 5, 0, None, old, False, seed)
    for k, one in enumerate(policies):

        def ask(n, k=k, ask=one.ask):
            states = ask(n)
            asked.append((k, [str(s.steps) for s in states]))
            return states

        one.ask = ask
    options = ansor.TuningOptions(
        trials, None, 5, verbose=0, builder=builder, runner=runner, measure_callbacks=[ansor.RecordToFile(log)]
    )  # fmt: skip
    scheduler.tune(options, policies)
    return scheduler, asked


@pytest.mark.slow
@pytest.mark.parametrize("policy", [pytest.param("default", marks=pytest.mark.long), "sketch.random"])
def test_a_seed_decides_the_run_however_long_things_take(tasks, policy, tmp_path):
    runs = [
        tune(tasks, 45, tmp_path / f"{k}", builder, SlowRunner(delay), policy, seed)
        for k, (builder, delay, seed) in enumerate(
            [(NoBuilder(), 0.0, 5), (LateBuilder(1), 0.005, 5), (LateBuilder(2), 0.0, 5), (NoBuilder(), 0.0, 6)]
        )
    ]
    first, *others = [asked for _, asked in runs]
    assert others[0] == others[1] == first != others[2]
    programs = [(task, steps) for task, found in first for steps in found]
    assert len(programs) == len(set(programs)) == 45 and len(first) == 9
    assert runs[0][0].progress == runs[1][0].progress


def lines(log):
    return [(i.task.workload_key, i.steps) for i, _ in ansor.load_records(log)]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [7, *[pytest.param(n, marks=pytest.mark.slow) for n in (3, 22)]])
def test_ctrl_c_keeps_what_was_measured_and_nothing_is_measured_twice(tasks, stop, tmp_path):
    log, runner = tmp_path / "log", SlowRunner(stop=stop)
    with pytest.raises(KeyboardInterrupt):
        tune(tasks, 40, log, LateBuilder(stop), runner)
    assert sorted(map(str, lines(log))) == sorted(map(str, runner.ran)) and len(runner.ran) == stop
    scheduler, _ = tune(tasks, 40 - stop, log, NoBuilder(), SlowRunner(), old=log)
    assert len(lines(log)) == len(set(lines(log))) == 40 == sum(scheduler.task_trials)


def test_ctrl_c_while_the_next_round_is_searched(tasks, tmp_path):
    """What the device has done by then is in the log, and the workers are stopped."""

    class Impatient(Told):
        def ask(self, n):
            if self.diary.asked:
                while len(ran) < 2:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().ask(n)

    class Two(Diary):
        def run(self, inp, built):
            if len(ran) == 2:
                gate.wait(60)
            ran.append(built.filename)
            return super().run(inp, built)

        def close(self):
            gate.set()

    ran, gate, builder, diary, log = [], threading.Event(), ReadyBuilder(), Two(), tmp_path / "log"
    policies = [Impatient(k, t, [1e-3] * 99, diary) for k, t in enumerate(tasks)]
    options = ansor.TuningOptions(
        40, None, 8, verbose=0, builder=builder, runner=diary, measure_callbacks=[ansor.RecordToFile(log)]
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        ansor.TaskScheduler(tasks, callbacks=[]).tune(options, policies)
    assert len(lines(log)) == 2 and builder.closed == 1 and len(ran) <= 3
