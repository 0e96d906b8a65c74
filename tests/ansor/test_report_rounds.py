"""What a search expected, where its time went, and its network: lines of a log, and what a report makes of them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ansor
from ansor.core.tasks.measure_values import MeasureInput, MeasureResult, Prediction, Spent
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.records.network import NetworkNote, network_line, read_network
from ansor.records.notes import prediction_line, read_prediction, read_round, round_line
from ansor.records.summary import TaskSummary, summary_of
from ansor.report.page import write_report
from ansor.report.predictions import Round, rounds_of
from benchmarks.report_size import LOG, grown
from tests.nonempty import nonempty

FLOATS = st.floats(-1e9, 1e9)
SECONDS = st.floats(0, 1e6)
SMALL = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1}


def page_of(log: Path) -> str:
    out = log.with_suffix(".html")
    write_report([log], out)
    return out.read_text()


@given(FLOATS, st.integers(1, 10_000), st.integers(0, 9))
def test_a_prediction_is_read_as_it_was_written(score: float, number: int, run: int) -> None:
    found = read_prediction(prediction_line(Prediction(score, number)).encode(), run)
    assert found is not None and (found.round, found.run) == (number, run)
    assert found.score == pytest.approx(score, rel=1e-5, abs=1e-300)


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_seconds_of_a_round_are_read_as_they_were_written(a: float, b: float, c: float, d: float) -> None:
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    found = read_round(round_line(task, Spent(a, b, c, d)).encode())
    assert found is not None and found[0] == (task.target.key, task.workload_key)
    assert [found[1].search, found[1].wait, found[1].build, found[1].run] == pytest.approx([a, b, c, d], rel=1e-5)


@pytest.mark.parametrize("text", [
    "", "# predicted", "# predicted []", "# predicted {" + "[" * 9999, "# network 5",
    '# predicted {"score": NaN, "round": 1}', '# predicted {"score": 1e999, "round": 1}',
    '# predicted {"score": 1, "round": true}', '# predicted {"score": "1", "round": 1}',
    '# round {"key": 3}', '# round {"key": "k", "target": "c", "search": -1, "wait": 0, "build": 0, "run": 0}',
    '# network {"name": 1}', '# network {"name": "", "tasks": [1]}',
])  # fmt: skip
def test_lines_that_are_none_say_nothing(text: str) -> None:
    line = text.encode()
    assert read_prediction(line, 0) is None and read_round(line) is None and read_network(line) is None


def test_a_network_is_read_as_it_was_written() -> None:
    tasks = [ansor.SearchTask("matmul", (n, 11, 7), target="c") for n in (3, 4)]
    keys = [(task.target.key, task.workload_key) for task in tasks]
    line = network_line("net", tasks, [2, 1.5], [1e-3, 2e-3], 1e-4, [0.5, 0.25])
    assert line is not None
    weights, seconds = dict(zip(keys, (2, 1.5), strict=True)), dict(zip(keys, (1e-3, 2e-3), strict=True))
    assert read_network(line.encode()) == NetworkNote("net", weights, seconds, 1e-4, (0.5, 0.25))


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two runs of a search that needs no device."""
    log = tmp_path_factory.mktemp("searched") / "log.json"
    task = ansor.SearchTask("matmul", (48, 32, 16), target="c")
    for seed, trials in ((1, 16), (2, 8)):
        policy = ansor.SketchPolicy(task, params=SMALL, seed=seed, verbose=0)
        options = ansor.TuningOptions(
            trials, num_measures_per_round=8, verbose=0, builder=NoBuilder(), runner=AnalyticalRunner(),
            measure_callbacks=[ansor.RecordToFile(log)],
        )  # fmt: skip
        task.tune(options, search_policy=policy)
    return log


def test_a_search_tells_its_log_what_it_expected_and_where_its_time_went(searched: Path) -> None:
    (one,) = summary_of(searched).tasks.values()
    found = [inp.prediction for inp in one.inputs]
    known = [p for p in found if p is not None]
    assert len(found) == 24 and len(known) == 18, "two of eight programs of the first rounds are random"
    assert [len(r.trials) for r in rounds_of(one)] == [6] * 3
    assert sorted({(p.run, p.round) for p in known}) == [(1, 1), (1, 2), (2, 1)]
    lines = searched.read_text().splitlines()
    assert sum(line.startswith("# round ") for line in lines) == 3
    assert one.spent is not None and one.spent.search > 0
    assert one.spent.run == pytest.approx(sum(res.all_cost for res in one.results), rel=1e-4)


def test_records_are_what_they_were(searched: Path, tmp_path: Path) -> None:
    """Without the comments the same records are read, and they are written as the same lines."""
    plain = tmp_path / "plain.json"
    plain.write_text("".join(line + "\n" for line in searched.read_text().splitlines() if line[0] != "#"))
    for (a, x), (b, y) in nonempty(zip(ansor.load_records(searched), ansor.load_records(plain), strict=True)):
        assert (a.steps, x) == (b.steps, y) and b.prediction is None
        assert ansor.dump_record_to_string(a, x) == ansor.dump_record_to_string(b, y)


def test_a_random_search_expects_nothing() -> None:
    task = ansor.SearchTask("matmul", (48, 32, 16), target="c")
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0)
    assert policy.predicted(policy.ask(4)) == [None] * 4


def summary(scores: list[float], costs: list[float]) -> TaskSummary:
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    one = TaskSummary("t", ("t",), "c")
    for score, cost in zip(scores, costs, strict=True):
        res = MeasureResult((cost if np.isfinite(cost) else 1e10,), 0 if np.isfinite(cost) else 2, "", 0.1, 0)
        one.add(res, MeasureInput(task, prediction=Prediction(score, 1)))
    return one


COSTS = st.one_of(st.floats(1e-6, 1.0), st.just(float("inf")))


@given(st.lists(st.tuples(st.floats(-5, 5), COSTS), min_size=1, max_size=20))
def test_accuracy_counts_pairs_and_times_are_expected_in_the_order_of_scores(rows: list[tuple[float, float]]) -> None:
    scores, costs = map(list, zip(*rows, strict=True))
    (found,) = rounds_of(summary(scores, costs))
    pairs = [(a, b) for a, b in combinations(rows, 2) if a[1] != b[1]]
    right = sum(0.5 if a[0] == b[0] else (a[0] > b[0]) == (a[1] < b[1]) for a, b in pairs)
    assert np.isnan(found.accuracy()) if not pairs else found.accuracy() == pytest.approx(right / len(pairs))
    expected = list(found.expected())
    assert sorted(guess for _, guess, _ in expected) == sorted(cost for cost in costs if np.isfinite(cost))
    assert [costs[trial - 1] for trial, _, _ in expected] == [cost for _, _, cost in expected]
    guesses = {trial: guess for trial, guess, _ in expected}
    assert all(guesses[a] <= guesses[b] for a in guesses for b in guesses if scores[a - 1] > scores[b - 1])


def test_long_rounds_are_sampled() -> None:
    rng = np.random.default_rng(0)
    costs = rng.uniform(1, 2, 20_000)
    assert Round(1, tuple(range(20_000)), -costs, costs).accuracy() == 1


def test_the_page_shows_predictions_and_seconds(searched: Path) -> None:
    text = page_of(searched)
    assert "Predicted and measured" in text and text.count('class="dot small"') >= 18
    assert "search: chose and learned" in text and "There are no predictions" not in text


def test_a_log_without_them_says_so_once(searched: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    kept = [x for x in searched.read_text().splitlines() if not x.startswith(("# predicted", "# round"))]
    old.write_text("".join(line + "\n" for line in kept))
    text = page_of(old)
    assert text.count("There are no predictions in the log") == 1 and "does not say where the time went" in text
    assert "Predicted and measured" not in text


def test_a_network_has_its_weights_and_a_run_from_end_to_end(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text("".join(line + "\n" for line in grown(LOG, 20)))
    (task,) = [one.task for one in summary_of(log).tasks.values()]
    assert task is not None
    recorder = ansor.RecordToFile(log)
    recorder.network_ran("<b>net", [task], [3], [1e-3], 2e-3, [6e-3, 7e-3, 5e-3])
    text = " ".join(re.sub("<[^>]*>", " ", page_of(log)).split())
    assert "As often as they occur in &lt;b&gt;net" in text and "In it they took 3 ms" in text
    assert "A run from end to end took 6 ms (5 ms to 7 ms in 3 figures)" in text
    assert "failed: 1 RUN_TIMEOUT" in text


def test_the_log_says_what_device_and_compiler_its_figures_are_of(tmp_path: Path) -> None:
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    recorder = ansor.RecordToFile(tmp_path / "log.json")
    recorder.runs_here(0)
    recorder.weighed([task], [4])
    inp: Any = MeasureInput(task, task.compute_dag.init_state)
    recorder.callback(None, [inp], [MeasureResult((1e-3,), 0, "", 0.1, 5)])
    first = json.loads((tmp_path / "log.json").read_text().splitlines()[0].removeprefix("# run "))
    assert "vectors of" in first["device"] and first["compiler"]
    found = summary_of(tmp_path / "log.json").network
    assert found is not None and list(found.weights.values()) == [4] and found.runs == ()
    assert "vectors of" in page_of(tmp_path / "log.json")
