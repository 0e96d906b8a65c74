"""The task scheduler as a whole, with policies and runners that need no compiler."""

import math
from pathlib import Path

import pytest

import ansor
from ansor.scheduler.report import Summary, curve_text
from ansor.scheduler.restore import restore
from tests.ansor.fake_clock import FakeClock
from tests.ansor.fake_measure import ReadyBuilder

FLAT = {
    "sample_init_min_population": 1, "evolutionary_search_population": 64, "evolutionary_search_num_iters": 1,
}  # fmt: skip


def task_of(n, desc="", m=11):
    hardware = ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
    return ansor.SearchTask("matmul", (n, m, 7), target="c", hardware_params=hardware, desc=desc)


@pytest.fixture
def tasks():
    return [task_of(13), task_of(17), task_of(29)]


def result_of(cost):
    ok = math.isfinite(cost)
    return ansor.MeasureResult((cost if ok else 1e10,), 0 if ok else 4, "", 0.1, 0)


class FakePolicy:
    """Answers its costs one after the other, and nothing when they are used up."""

    def __init__(self, task, costs):
        self.task, self.costs, self.asked = task, list(costs), []

    def continue_search_one_round(self, num_measure, measurer):
        self.asked.append(num_measure)
        part, self.costs = self.costs[:num_measure], self.costs[num_measure:]
        return [ansor.MeasureInput(self.task) for _ in part], [result_of(c) for c in part]


class FakeRunner:
    """The latency of a program depends on its task and its steps alone; every seventh fails."""

    def __init__(self, interrupt_at=None):
        self.count, self.interrupt_at = 0, interrupt_at

    def run(self, inp, built):
        self.count += 1
        if self.count == self.interrupt_at:
            raise KeyboardInterrupt
        value = sum(map(ord, repr(inp.steps)))
        return result_of(math.inf if value % 7 == 0 else inp.task.compute_dag.flop_ct * (1 + value % 89) * 1e-9)

    def close(self):
        pass


class Diary(ansor.TaskSchedulerCallback):
    def __init__(self):
        self.events = []

    def pre_tune(self, task_scheduler, task_id):
        self.events.append(("pre", task_id, task_scheduler.ct))

    def post_tune(self, task_scheduler, task_id):
        self.events.append(("post", task_id, task_scheduler.ct))

    @property
    def picks(self):
        return [k for when, k, _ in self.events if when == "pre"]


def options(trials, per_round=2, log=None, runner=None, **more):
    callbacks = [] if log is None else [ansor.RecordToFile(log)]
    return ansor.TuningOptions(
        trials, num_measures_per_round=per_round, builder=ReadyBuilder(), runner=runner or FakeRunner(),
        measure_callbacks=callbacks, **{"verbose": 0, **more},
    )  # fmt: skip


def run(tasks, costs, trials, per_round=2, per_task=None, early_stopping=None, **arguments):
    """Tune with fake policies; gives the scheduler, the picks, and the policies."""
    diary = Diary()
    scheduler = ansor.TaskScheduler(tasks, callbacks=[diary], **arguments)
    policies = [FakePolicy(t, c) for t, c in zip(tasks, costs, strict=True)]
    scheduler.tune(
        options(trials, per_round, early_stopping=early_stopping), policies, per_task_early_stopping=per_task
    )
    return scheduler, diary.picks, policies


def lines(log):
    return [(i.task.workload_key, i.steps) for i, _ in ansor.load_records(log)]


# -------------------------------------------------------------------------------------------------- strategies


def test_round_robin_is_fair(tasks):
    scheduler, picks, _ = run(tasks, [[1e-3] * 99] * 3, 6, 1, strategy="round-robin")
    assert picks == [0, 1, 2, 0, 1, 2] and scheduler.task_trials == [2, 2, 2]


def test_gradient_follows_the_objective(tasks):
    costs = [[1e-3] * 99, [9e-3] * 99, [9e-3] * 99]
    assert run(tasks, costs, 12, objective_func=lambda c: 1e5 * c[0])[1] == [0, 1, 2, 0, 0, 0]
    assert run(tasks, costs, 12, task_weights=[99, 1, 0])[1] == [0, 1, 2, 0, 0, 0]
    scheduler, _, _ = run(tasks, costs, 12, task_weights=[2, 1, 0])
    assert scheduler.score == pytest.approx(2e-3 + 9e-3) and scheduler.best_costs == [1e-3, 9e-3, 9e-3]


def test_the_budget_is_kept_to_the_trial(tasks):
    for trials in range(3, 24):
        scheduler, _, policies = run(tasks, [[1e-3] * 99] * 3, trials, 4)
        assert scheduler.ct == trials == sum(scheduler.task_trials) == 99 * 3 - sum(len(p.costs) for p in policies)
        assert scheduler.num_measures_per_round == min(4, trials // 3)
    for bad in (0, 2):
        with pytest.raises(ValueError, match="each of the 3 tasks without a record needs a trial") as raised:
            run(tasks, [[1e-3]] * 3, bad)
        assert isinstance(raised.value, ansor.TaskError)


def test_a_task_without_a_program_starves_nobody(tasks):
    scheduler, picks, _ = run(tasks, [[1e-3] * 99, [math.inf] * 99, [1e-3] * 99], 60)
    assert picks.count(1) == 10 and scheduler.score is None
    scheduler, picks, _ = run(tasks, [[math.inf] * 99] * 3, 60)
    assert scheduler.task_trials == [20, 20, 20]
    scheduler, picks, _ = run(tasks, [[1e-3] * 99, [math.inf] * 99, [1e-3] * 99], 60, per_task=5)
    assert picks.count(1) == 3


def test_dead_tasks_are_never_picked_again(tasks):
    for strategy in ("gradient", "round-robin"):
        costs = [[1e-3] * 3, [], [2e-3] * 9]
        scheduler, picks, _ = run(tasks, costs, 50, strategy=strategy)
        assert scheduler.task_trials == [3, 0, 9] and scheduler.alive == () and scheduler.done
        assert picks.count(1) == 1 and picks.count(0) == 3
        constant, _, _ = run(tasks, costs, 50, strategy=strategy, objective_func=lambda c: 1.0)
        assert constant.task_trials == [3, 0, 9]


def test_early_stopping(tasks):
    costs = [[1e-3] * 99, [1e-3, 0.9e-3, 0.8e-3, 0.7e-3] + [1e-3] * 99, [1e-3] * 99]
    scheduler, _, _ = run(tasks, costs, 99, per_task=6, strategy="round-robin")
    assert scheduler.task_trials == [8, 10, 8] and scheduler.alive == ()
    scheduler, _, _ = run(tasks, costs, 99, early_stopping=10, strategy="round-robin")
    assert scheduler.ct == 10 + 10
    # a task that never works keeps nobody from stopping, and all tasks are tried before
    scheduler, _, _ = run(tasks, [costs[0], [math.inf] * 99, costs[2]], 99, early_stopping=1, strategy="round-robin")
    assert scheduler.task_trials == [4, 2, 2]
    for bad in (0, 1.5, "x"):
        with pytest.raises(ansor.TaskError, match="per_task_early_stopping: "):
            run(tasks, costs, 9, per_task=bad)


def test_callbacks_see_every_round(tasks):
    diary = Diary()
    scheduler = ansor.TaskScheduler(tasks[:2], callbacks=[diary], strategy="round-robin")
    scheduler.tune(options(6), [FakePolicy(t, [1e-3] * 9) for t in tasks[:2]])
    assert diary.events == [
        ("pre", 0, 0), ("post", 0, 2), ("pre", 1, 2), ("post", 1, 4), ("pre", 0, 4), ("post", 0, 6),
    ]  # fmt: skip


def test_bad_arguments_are_one_sentence(tasks, tmp_path):
    for text, arguments in {
        "no formula uses gamma": {"gamma": 0.4},
        "strategy is one of": {"strategy": "best"},
        "not both": {"task_weights": [1, 1, 1], "objective_func": sum},
        "3 finite numbers": {"task_weights": [1, 1]},
        "not negative": {"task_weights": [1, -1, 1]},
        "objective_func: it must give a finite number": {"objective_func": lambda costs: None},
        "alpha must lie": {"alpha": 2},
        "beta must be": {"beta": -1},
        "backward_window_size": {"backward_window_size": 0},
    }.items():
        with pytest.raises(ansor.TaskError, match=text):
            ansor.TaskScheduler(tasks, **arguments)
    for bad, text in (([], "at least one task"), ([tasks[0], tasks[1], task_of(13)], "tasks 0 and 2 are the same")):
        with pytest.raises(ansor.TaskError, match=text):
            ansor.TaskScheduler(bad)
    model = tmp_path / "model"
    for policy, text, arguments in (
        ("sketch.best", "'sketch.random' or a list", {}),
        ([FakePolicy(tasks[0], [])], "a policy for each task", {}),
        ([1, 2, 3], "needs the method continue_search_one_round", {}),
        (
            [FakePolicy(t, []) for t in (tasks[1], tasks[0], tasks[2])],
            r"search_policy\[0\]: the policy is for another",
            {},
        ),
        ([FakePolicy] * 3, "a class was given, call it", {}),
        ("sketch.random", "has nothing to load", {"load_model_file": model}),
        ([FakePolicy(t, []) for t in tasks], "models of their own", {"load_model_file": model}),
        ("default", "holds no model", {"load_model_file": model}),
    ):
        with pytest.raises(ansor.TaskError, match=text):
            ansor.TaskScheduler(tasks, **arguments).tune(options(6), policy)
    one = FakePolicy(tasks[0], [])
    with pytest.raises(ansor.TaskError, match=r"^search_policy: one policy serves two tasks, 0 and 1"):
        ansor.TaskScheduler(tasks).tune(options(6), [one, one, one])
    with pytest.raises(ansor.JournalError, match="cannot be read"):
        ansor.TaskScheduler(tasks, load_log_file=tmp_path / "no").tune(options(6))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------- policies, logs, models


@pytest.mark.long
def test_same_seed_same_log(tasks, tmp_path):
    for policy in ("sketch.random", "default"):
        logs = []
        for k, seed in enumerate((7, 7, 8)):
            log = tmp_path / f"{policy}{k}"
            scheduler = ansor.TaskScheduler(tasks, callbacks=[], seed=seed)
            scheduler.tune(options(15, 3, log), policy, FLAT)
            logs.append(lines(log))
        assert logs[0] == logs[1] != logs[2] and len(logs[0]) == 15
    assert 1 <= ansor.TaskScheduler(tasks).seed <= 2**30


@pytest.mark.long
def test_restart_from_a_log_measures_nothing_twice(tasks, tmp_path):
    log = tmp_path / "log"
    for k, trials in enumerate((9, 7, 5)):
        scheduler = ansor.TaskScheduler(tasks, callbacks=[], seed=1, load_log_file=log if k else None)
        scheduler.tune(options(trials, 2, log), "default" if k < 2 else "sketch.random", FLAT)
        assert scheduler.ct == trials
    assert sum(scheduler.task_trials) == 21 == len(lines(log)) == len(set(lines(log)))
    records = list(ansor.load_records(log))
    for task, trials, cost in zip(tasks, scheduler.task_trials, scheduler.best_costs, strict=True):
        mine = [r for i, r in records if i.task.workload_key == task.workload_key]
        assert len(mine) == trials and min(r.cost for r in mine if r.ok) == cost


def test_restored_standings_are_those_of_the_run(tasks, tmp_path):
    log = tmp_path / "log"
    scheduler = ansor.TaskScheduler(tasks, callbacks=[], seed=3)
    scheduler.tune(options(24, 4, log), "sketch.random", FLAT)
    assert restore(ansor.RecordReader(log), tasks, 4) == scheduler.progress
    again = ansor.TaskScheduler(tasks, callbacks=[], load_log_file=log)
    again.tune(options(0), [FakePolicy(t, []) for t in tasks])
    assert again.best_costs == scheduler.best_costs and again.ct == 0 and sum(again.task_trials) == 24
    # records of other targets and workloads, torn and foreign lines are no trials
    other = ansor.SearchTask("matmul", (13, 11, 7), target="cuda", hardware_params=ansor.HardwareParams(num_cores=2))
    ansor.save_records(log, [ansor.MeasureInput(other), ansor.MeasureInput(task_of(99))], [result_of(1e-9)] * 2)
    with open(log, "a") as f:
        f.write("# note\nnonsense\n" + Path(log).read_text().splitlines()[-1][:50])
    assert restore(ansor.RecordReader(log), tasks, 4) == scheduler.progress


def test_only_tasks_without_records_are_warmed_up(tasks, tmp_path):
    log = tmp_path / "log"
    ansor.TaskScheduler(tasks[1:2], callbacks=[], seed=1).tune(options(3, 3, log), "sketch.random", FLAT)
    _, picks, _ = run(tasks, [[1e-3] * 9] * 3, 2, load_log_file=log)
    assert picks == [0, 2]
    with pytest.raises(ansor.BudgetError, match="each of the 2 tasks"):
        run(tasks, [[1e-3] * 9] * 3, 1, load_log_file=log)
    ansor.save_records(log, [ansor.MeasureInput(tasks[1])] * 7, [result_of(math.inf)] * 7)
    scheduler, picks, _ = run(tasks, [[1e-3] * 99] * 3, 30, load_log_file=log, per_task=7)
    assert 1 not in picks and scheduler.task_trials[1] == 10


def test_ctrl_c_keeps_what_was_measured(tasks, tmp_path):
    log = tmp_path / "log"
    with pytest.raises(KeyboardInterrupt):
        ansor.TaskScheduler(tasks, callbacks=[], seed=1).tune(
            options(40, 4, log, FakeRunner(interrupt_at=18)), "sketch.random", FLAT
        )
    assert len(lines(log)) == 17
    scheduler = ansor.TaskScheduler(tasks, callbacks=[], seed=1, load_log_file=log)
    scheduler.tune(options(23, 4, log), "sketch.random", FLAT)
    assert len(set(lines(log))) == 40 == sum(scheduler.task_trials)


@pytest.mark.long
def test_the_model_learns_from_both_files_and_overwrites_neither(tasks, tmp_path, monkeypatch):
    log, model, calls = tmp_path / "log", tmp_path / "model.ubj", []
    ansor.TaskScheduler(tasks, callbacks=[], seed=1).tune(options(12, 4, log), "sketch.random", FLAT)
    trained = ansor.XGBModel(num_warmup_sample=0)
    trained.update_from_file(log)
    trained.save(model)
    before = model.read_bytes(), log.read_bytes()
    for name in ("load", "update"):
        original = getattr(ansor.XGBModel, name)

        def spy(self, told, *rest, name=name, original=original):
            calls.append((name, id(self), told if name == "load" else len(told)))
            return original(self, told, *rest)

        monkeypatch.setattr(ansor.XGBModel, name, spy)
    scheduler = ansor.TaskScheduler(tasks, callbacks=[], load_model_file=model, load_log_file=log)
    scheduler.tune(options(6, 2), "default", FLAT)
    assert [(name, told) for name, _, told in calls][:2] == [("load", model), ("update", 12)]
    assert len({self for _, self, _ in calls}) == 1
    assert (model.read_bytes(), log.read_bytes()) == before


def test_tasks_share_one_model(tasks):
    policies = ansor.task_scheduler.make_search_policies("default", None, tasks, 4, 0)
    assert len({id(p.cost_model) for p in policies}) == 1 and policies[0].cost_model.num_warmup_sample == 12
    assert [p.search_task for p in policies] == tasks and len({p.seed for p in policies}) == 3


def test_a_time_limit_ends_between_rounds(tasks, monkeypatch):
    clock, found = FakeClock(), []
    monkeypatch.setattr("ansor.measure.time_limit.time", clock)

    class Slow(Diary):
        def pre_tune(self, task_scheduler, task_id):
            clock.sleep(1)
            super().pre_tune(task_scheduler, task_id)

    for limit in (0.5, 2.5, None):
        diary = Slow()
        scheduler = ansor.TaskScheduler(tasks, callbacks=[diary])
        scheduler.tune(options(12, time_limit=limit), [FakePolicy(t, [1e-3] * 9) for t in tasks])
        found.append(len(diary.picks))
        assert scheduler.done and scheduler.ct == 2 * len(diary.picks)
    assert found == [1, 3, 6]


def test_first_rounds_share_half_of_a_time_limit(tasks, monkeypatch):
    """A sixth of nine seconds for the first; each ends after one second, and leaves the rest of its part to others."""
    clock, untils = FakeClock(), []
    monkeypatch.setattr("ansor.measure.time_limit.time", clock)

    class Asked(FakePolicy):
        def continue_search_one_round(self, num_measure, measurer):
            untils.append(measurer.until - measurer.limit.begun)
            clock.sleep(1)
            return super().continue_search_one_round(num_measure, measurer)

    policies = [Asked(t, [1e-3] * 9) for t in tasks]
    ansor.TaskScheduler(tasks, callbacks=[]).tune(options(8, time_limit=9), policies)
    assert untils == pytest.approx([9 / 6, 1 + 8 / 5, 2 + 7 / 4, 9])


def test_a_log_is_read_once(tasks, tmp_path, monkeypatch, capsys):
    log = tmp_path / "log"
    ansor.TaskScheduler(tasks, callbacks=[], seed=1).tune(options(9, 3, log), "sketch.random", FLAT)
    decoded = []
    original = ansor.records.lines.load_record_from_string
    monkeypatch.setattr("ansor.records.lines.load_record_from_string", lambda *a: decoded.append(a) or original(*a))
    for policy in ("default", "sketch.random"):
        decoded.clear()
        scheduler = ansor.TaskScheduler(tasks, callbacks=[], load_log_file=log)
        scheduler.tune(options(0, verbose=1), policy, FLAT)
        assert len(decoded) == 9 == sum(scheduler.task_trials)
        assert capsys.readouterr().out.count(f"loaded 3 measured programs of this task from {log}") == 3
    decoded.clear()
    ansor.task_scheduler.make_search_policies("default", FLAT, tasks, 3, 0, load_log_file=log)
    assert len(decoded) == 9


# ------------------------------------------------------------------------------------------------------ output


def test_the_table_is_printed_before_each_round_and_at_the_end(capsys):
    for verbose, tables in ((0, 0), (1, 4)):
        scheduler = ansor.TaskScheduler([task_of(13, "first"), task_of(17, "second")], task_weights=[3, 1])
        policies = [FakePolicy(t, [k * 1e-3] * 9) for k, t in enumerate(scheduler.tasks, 1)]
        scheduler.tune(options(6, 2, verbose=verbose), policies)
        out = capsys.readouterr().out
        assert out.count("[ Task Scheduler ]") == tables
    last = out.rpartition("[ Task Scheduler ]")[2].splitlines()
    assert [line.split("|")[2:-1] for line in last[4:6]] == [
        [" " * 57 + "first ", "        1.000 ", "           0.00 ", "      4 "],
        [" " * 56 + "second ", "        2.000 ", "           0.00 ", "      2 "],
    ]
    assert last[7].startswith("Estimated total latency: 5.000 ms\tTrials: 6\tUsed time : ")
    assert last[7].endswith("Next ID: -")
    scheduler = ansor.TaskScheduler([task_of(13)], objective_func=lambda costs: -1.0 / costs[0])
    scheduler.tune(options(2, 2, verbose=1), [FakePolicy(scheduler.tasks[0], [4e-3] * 2)])
    assert "\nObjective: -250\tTrials: 2\tUsed time : " in capsys.readouterr().out.rpartition("[ Task Scheduler ]")[2]


def test_the_curve_appends_and_is_made_with_its_first_line(tasks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("total_latency.tsv").write_text("earlier\n")
    curve = Path("deep", "curve.tsv")
    callbacks = [ansor.LogEstimatedLatency(curve), ansor.LogEstimatedLatency("total_latency.tsv")]
    scheduler = ansor.TaskScheduler(tasks[:2], callbacks=callbacks)
    ansor.TaskScheduler(tasks)
    assert not curve.exists() and Path("total_latency.tsv").read_text() == "earlier\n"
    scheduler.tune(options(6), [FakePolicy(t, [1e-3] * 9) for t in tasks[:2]])
    rows = [line.split("\t") for line in curve.read_text().splitlines()]
    assert [(r[0], r[2], r[4]) for r in rows] == [("ElapsedTime(s)", "EstimatedLatency(ms)", "Trials")] * 3
    assert [(r[3], r[5]) for r in rows] == [("N/A", "2"), ("2.000", "4"), ("2.000", "6")]
    assert all(r[1].isdigit() for r in rows)
    assert Path("total_latency.tsv").read_text().splitlines() == ["earlier", *map("\t".join, rows)]
    assert curve_text(Summary(1.23456e-3, 7, 12.6)) == "ElapsedTime(s)\t13\tEstimatedLatency(ms)\t1.235\tTrials\t7"
    assert {p.name for p in Path().iterdir()} == {"deep", "total_latency.tsv"}
