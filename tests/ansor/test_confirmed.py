"""Programs that were timed again, in turns, go before the single figures that were measured before them."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import Baseline
from ansor.records.best import best_few, ranked_records, settled_records
from ansor.records.confirmed import SettledReader, confirm_line, read_turns
from ansor.records.dispatch import ApplyHistoryBest
from ansor.records.notes import CONFIRM
from tests.ansor.default_programs import default_of
from tests.ansor.fake_measure import InTurns, tune

CLOCK = itertools.count(1_700_000_000)
States = Callable[..., list[Any]]


def result(*costs: float) -> ansor.MeasureResult:
    return ansor.MeasureResult(costs, 0, "", 0.1, next(CLOCK))


class Race:
    """A log that is written by hand."""

    def __init__(self, task: ansor.SearchTask, states: States, log: Path) -> None:
        self.task, self.log = task, log
        self.inputs = [ansor.MeasureInput(task, state) for state in states(6)]
        self.recorder = ansor.RecordToFile(log)

    def measure(self, k: int, cost: float) -> None:
        self.recorder.callback(None, [self.inputs[k]], [result(cost)])

    def confirm(self, figures: dict[int, Sequence[float]]) -> None:
        self.recorder.confirmed([self.inputs[k] for k in figures], list(figures.values()))

    def best(self) -> tuple[int, float]:
        """The number of the best program of the log, and its cost."""
        inp, res = ansor.load_best_record(self.log, self.task.workload_key, self.task.target)
        assert inp is not None and res is not None
        return self.number(inp.steps), res.cost

    def number(self, steps: Sequence[Any]) -> int:
        return [inp.steps for inp in self.inputs].index(tuple(steps))


@pytest.fixture
def race(matmul_task: ansor.SearchTask, states: States, tmp_path: Path) -> Race:
    """Three programs were measured, and the two that seemed best confirmed: 1 is the better one then."""
    made = Race(matmul_task, states, tmp_path / "log.json")
    for k, cost in enumerate((1e-3, 2e-3, 3e-3)):
        made.measure(k, cost)
    made.confirm({0: (9e-3, 5e-3, 5e-3), 1: (4e-3, 1e-3, 4e-3)})
    return made


def test_the_median_of_the_turns_is_believed_by_all_who_ask_for_the_best(race: Race) -> None:
    assert race.best() == (1, 4e-3)
    assert race.number(race.task.best_state(race.log).steps) == 1
    chosen = ApplyHistoryBest(race.log).query("c", race.task.workload_key, dag=race.task.compute_dag)
    assert chosen is not None and race.number(chosen.steps) == 1
    part = ApplyHistoryBest(race.log, n_lines=3).query("c", race.task.workload_key)
    assert part is not None and race.number(part.steps) == 0
    assert ansor.distill_record_file(race.log, race.log.with_name("best")) == 1
    ((inp, res),) = ansor.load_records(race.log.with_name("best"))
    assert (race.number(inp.steps), res.costs) == (1, (4e-3,))


def test_what_comes_after_a_confirmation_is_in_the_race_again(race: Race) -> None:
    race.measure(3, 4.5e-3)
    assert race.best() == (1, 4e-3)
    race.measure(4, 3.5e-3)
    assert race.best() == (4, 3.5e-3)
    race.confirm({1: (6e-3,) * 3, 4: (8e-3, 7e-3, 7e-3), 5: ()})
    assert race.best() == (1, 6e-3)
    assert [race.number(inp.steps) for inp, _ in best_few(ranked_records(race.log), race.task, 5)] == [1, 4, 0, 2, 3]


def test_who_left_the_turns_earlier_is_out_of_the_race(race: Race) -> None:
    """The machine was faster while it was there."""
    race.confirm({0: (2e-3,) * 5, 1: (3e-3,) * 15, 2: (3.5e-3,) * 15})
    assert race.best() == (1, 3e-3)
    assert [race.number(inp.steps) for inp, _ in best_few(ranked_records(race.log), race.task, 5)] == [1, 2, 0]
    reader = SettledReader(race.log)
    assert len(list(reader)) == 2
    turns = reader.confirmations["c", race.task.workload_key].turns
    assert [(race.number(inp.steps), len(res.costs)) for inp, res in turns] == [(1, 15), (2, 15), (0, 5)]


def test_a_busy_machine_overrules_no_quiet_one(race: Race) -> None:
    """Figures that are far apart count where there are no others, and no more once there are."""
    race.confirm({0: [5e-3, 5e-3, 9e-3], 1: [4e-3] * 3})
    race.confirm({0: [1e-4, 3e-3, 1e-4], 1: [9e-3] * 3})
    assert race.best() == (1, 4e-3)
    race.confirm({0: [1e-3] * 3, 1: [3e-3] * 3})
    assert race.best() == (0, 1e-3)


def test_of_a_busy_machine_the_last_word_counts(matmul_task: ansor.SearchTask, states: States, tmp_path: Path) -> None:
    race = Race(matmul_task, states, tmp_path / "busy.json")
    race.measure(0, 1e-3)
    race.confirm({0: [2e-3, 9e-3, 3e-3]})
    assert race.best() == (0, 3e-3)
    race.confirm({0: [5e-3, 1e-3, 5e-3]})
    assert race.best() == (0, 5e-3)
    race.confirm({0: [4e-3] * 3})
    assert race.best() == (0, 4e-3)


def test_other_readers_see_the_records_alone(race: Race) -> None:
    reader = ansor.RecordReader(race.log)
    assert [res.cost for _, res in reader] == [1e-3, 2e-3, 3e-3] and reader.num_bad == 0
    assert race.log.read_text().splitlines()[-1].startswith(CONFIRM)
    other = ansor.SearchTask("matmul", (4, 4, 4), target="c")
    race.recorder.callback(None, [ansor.MeasureInput(other, other.compute_dag.init_state)], [result(2e-3)])
    costs = {inp.task.workload_key: res.cost for inp, res in settled_records(race.log) if res.cost != 5e-3}
    assert costs == {race.task.workload_key: 4e-3, other.workload_key: 2e-3}


def turns_of(race: Race) -> list[Any]:
    turns: list[Any] = json.loads(race.log.read_text().splitlines()[-1][len(CONFIRM) :])["turns"]
    return turns


@pytest.mark.parametrize("spoil", [
    lambda turns: turns[0]["r"][0].append(float("nan")),
    lambda turns: turns[0]["r"].__setitem__(1, 4),
    lambda turns: turns[0]["i"][0].__setitem__(0, '["matmul", 1, 1, 1]'),
    lambda turns: turns.append("?"),
    lambda turns: [turn["r"].__setitem__(0, [1e-12]) for turn in turns],
    lambda turns: [turn["i"].__setitem__(1, [[], [["AN", 99, 0, 2]]]) for turn in turns],
    lambda turns: turns.clear(),
])  # fmt: skip
def test_a_confirmation_that_is_not_believed_counts_for_nothing(
    race: Race, spoil: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    turns = turns_of(race)
    spoil(turns)
    with race.log.open("a") as log:
        log.write(CONFIRM + json.dumps({"turns": turns}) + "\n" + CONFIRM + "3\n" + CONFIRM + "{\n")
    with caplog.at_level(logging.WARNING, "ansor"):
        assert race.best() == (1, 4e-3)


def test_one_bad_program_of_a_confirmation_costs_the_others_nothing(race: Race) -> None:
    turns = turns_of(race)
    turns[1]["r"][0] = [1e-12]
    with race.log.open("a") as log:
        log.write(CONFIRM + json.dumps({"turns": turns}) + "\n")
    assert race.best() == (0, 5e-3)


def test_a_line_that_no_reader_would_take_is_not_written(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    line = confirm_line(race.inputs[:2], [(1e-3,), ()])
    assert line is not None and [res.costs for _, res in read_turns(line.encode())] == [(1e-3,)]
    assert confirm_line(race.inputs[:2], [(), ()]) is None
    monkeypatch.setattr("ansor.records.confirmed.MOST_CHARACTERS", 40)
    assert confirm_line(race.inputs[:2], [(1e-3,), (2e-3,)]) is None


@pytest.mark.parametrize("which", Baseline)
def test_a_baseline_is_believed_as_a_record_is(which: Baseline, race: Race) -> None:
    """After a confirmation it is in the race, the next one decides, and an older one outranks it."""
    race.recorder.baseline(None, which, race.inputs[5], result(3e-3))
    assert race.best() == (5, 3e-3)
    race.confirm({1: (4e-3,), 5: (2e-3, 2e-3, 9e-3)})
    assert race.best() == (5, 2e-3)
    race.confirm({1: (4e-3,)})
    assert race.best() == (1, 4e-3)
    assert len(list(ansor.load_records(race.log))) == 3


class Rising(InTurns):
    """Measures the k-th candidate as k ms, baselines as a second; in turns the last program is the fastest."""

    searched = 0

    def seconds(self, inp: Any) -> float:
        if not inp.steps or inp.steps == default_of(inp.task).steps:
            return 1.0
        self.searched += 1
        return self.searched * 1e-3

    def in_turns(self, k: int, inp: Any) -> float:
        return 5e-3 - k * 1e-3


def test_a_search_on_the_processor_ends_with_its_best_few_in_turns_and_logs_them(
    matmul_task: ansor.SearchTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, runner = tmp_path / "log.json", Rising()
    tune(matmul_task, log, runner)
    out = capsys.readouterr().out
    assert "timed again in turns: best 1 ms (1 ms to 1 ms in 3 figures), of 5 programs" in out
    assert ", best 1 ms" in out.splitlines()[-1]
    inp, res = ansor.load_best_record(log, matmul_task.workload_key)
    fifth = list(ansor.load_records(log))[4]
    assert inp is not None and res is not None and res.cost == 1e-3 and inp.steps == fifth[0].steps

    tune(matmul_task, log, runner)
    assert [len(inputs) for inputs in runner.compared] == [5, 5]
    reader = SettledReader(log)
    again, _ = min(reader, key=lambda pair: pair[1].cost)
    assert len(list(ansor.load_records(log))) == 16 and len(reader.confirmations) == 1
    turns = reader.confirmations["c", matmul_task.workload_key].turns
    assert fifth[0].steps in [one.steps for one, _ in turns]
    assert again.steps == turns[0][0].steps


class SlowInTurns(Rising):
    """On a machine that is `times` as slow as before when the best few are timed in turns."""

    times = 1.0

    def in_turns(self, k: int, inp: Any) -> float:
        return self.times * 1e-3 * (k + 1)


@pytest.mark.parametrize("times", [1.0, 7.0])
def test_a_run_that_goes_on_shows_the_best_of_its_log_and_says_where_it_was_faster_then(
    times: float, matmul_task: ansor.SearchTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, runner = tmp_path / "log.json", SlowInTurns()
    for _ in range(2):
        capsys.readouterr()
        tune(matmul_task, log, runner)
        runner.times = times
    lines = capsys.readouterr().out.splitlines()
    assert f"[0] best of {log} so far: 1 ms" in lines
    (shown,) = [line for line in lines if line.startswith("[8/8] ")]
    assert ", best 1 ms" in shown
    told = [line for line in lines if line.startswith("the programs of the log take ")]
    assert [line[:62] for line in told] == ["the programs of the log take 7 times what it says of them; the"] * (
        times > 2
    )
