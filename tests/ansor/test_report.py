"""`ansor report`: one file without network access that says what the records say, and nothing that they smuggle in."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ansor
from ansor.cli.main import main
from ansor.core.tasks.measure_values import Baseline
from ansor.records.summary import summary_of
from ansor.report.curves import PAUSE, active_seconds, steps_of
from ansor.report.page import write_report
from ansor.report.scale import MOST_TICKS, Scale
from ansor.space.step_decisions import decisions, names_of, numbers_of
from te_lite.schedule.loop_steps import Split
from tests.workloads import matmul

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
LOGS = Path(__file__).parents[2] / "benchmarks/results/logs"


class Page(HTMLParser):
    """Tags that are closed in order, and what would load something or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action") or name[:2] == "on"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def record(task: ansor.SearchTask, state: Any, cost: float, when: int, error: int = 0) -> str:
    result = ansor.MeasureResult((cost,), error, "", 0.25, when)
    return ansor.records.lines.dump_record_to_string(ansor.MeasureInput(task, state), result)


@pytest.fixture(scope="module")
def task() -> ansor.SearchTask:
    return ansor.SearchTask(matmul, (64, 48, 32), target="c")


@pytest.fixture(scope="module")
def states(task: ansor.SearchTask) -> list[Any]:
    return ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).sample_initial_population()[:40]


@pytest.fixture
def log(task: ansor.SearchTask, states: list[Any], tmp_path: Path) -> Path:
    """Every fifth program fails; a program a second."""
    path, rng = tmp_path / "log.json", np.random.default_rng(2)
    lines = [record(task, s, rng.uniform(1e-3, 5e-3), 100 + k, 2 * (k % 5 == 4)) for k, s in enumerate(states)]
    path.write_text("\n".join(lines) + "\n")
    return path


def page_of(*logs: Path, **kwargs: Any) -> tuple[str, Page]:
    out = logs[0].with_suffix(".html")
    write_report(logs, out, **kwargs)
    text = out.read_text()
    return text, Page(text)


def test_the_page_stands_alone_and_says_what_the_log_says(log: Path) -> None:
    text, page = page_of(log)
    (one,) = summary_of(log).tasks.values()
    assert one.best is not None
    assert f"{one.best * 1e3:.3g} ms at trial {one.found_at}" in text and "8 " in text and "COMPILE_HOST" in text
    assert text.count("<svg") >= 4 and text.count('class="cross"') == 8
    assert "script" not in page.tags and all(link.startswith("#") for link in page.links)
    assert not re.search(r"url\(|@import|https?://", text)
    best = min((r.cost, k) for k, r in enumerate(one.results) if r.ok)[1]
    nest = one.inputs[best].task.compute_dag.infer_bound_from_state(one.inputs[best].state)
    assert str(nest).splitlines()[-1].strip() in text
    assert "#pragma omp" in text or "for (" in text


def test_the_programs_are_those_that_the_log_believes(task: ansor.SearchTask, states: list[Any], log: Path) -> None:
    """The figures in turns decide, as for `ansor best`; others that were measured before them come after."""
    (before,) = summary_of(log).tasks.values()
    lucky, steady = [inp.steps for inp, _ in before.leaders(2)]
    inputs = [ansor.MeasureInput(task, steps=steps) for steps in (lucky, steady)]
    ansor.RecordToFile(log).confirmed(inputs, [[9e-3, 8e-3, 7e-3], [6e-3, 5e-3, 7e-3]])
    text, _ = page_of(log)
    for name, seconds, steps in (("best program", "6 ms", steady), ("runner-up", "8 ms", lucky)):
        assert f"the {name}: {seconds} in turns, trial {before.trial_of(steps)}" in text


def test_an_untuned_program_that_left_the_turns_early_has_its_figures_there(task: ansor.SearchTask, log: Path) -> None:
    untuned = ansor.MeasureInput(task, task.compute_dag.init_state)
    ((best, _), *_) = next(iter(summary_of(log).tasks.values())).leaders(1)
    recorder = ansor.RecordToFile(log)
    recorder.baseline(None, Baseline.UNTUNED, untuned, ansor.MeasureResult((2e-3,), 0, "", 0.1, 200))
    recorder.confirmed([untuned, best], [[4e-3] * 5, [1e-3] * 10])
    (summary,) = summary_of(log).tasks.values()
    assert (summary.untuned, summary.untuned_settled, summary.settled) == (2e-3, 4e-3, 1e-3)


def test_the_untuned_program_is_no_faster_than_itself(task: ansor.SearchTask, log: Path) -> None:
    """Its single figure was 2 ms; in turns it is the best, and took 0.5 ms."""
    untuned = ansor.MeasureInput(task, task.compute_dag.init_state)
    recorder = ansor.RecordToFile(log)
    recorder.baseline(None, Baseline.UNTUNED, untuned, ansor.MeasureResult((2e-3,), 0, "", 0.1, 200))
    recorder.confirmed([untuned], [[5e-4, 5e-4, 5e-4]])
    (summary,) = summary_of(log).tasks.values()
    assert (summary.untuned, summary.untuned_settled, summary.settled) == (2e-3, 5e-4, 5e-4)
    assert re.search(r">\s*1\.00\s*<", page_of(log)[0]) and "4.00" not in page_of(log)[0]


def test_text_from_logs_is_escaped(task: ansor.SearchTask, states: list[Any], tmp_path: Path) -> None:
    bad, log = '<script>alert("x")</script>', tmp_path / "l<b>og.json"
    key = json.dumps([bad, 1])
    line = json.loads(record(task, states[0], 1e-3, 5))
    line["i"][0][0] = key
    line["d"], line["v"] = bad, "ansor-v1"
    note = {"command": bad, "seed": bad, "versions": {bad: bad}}
    log.write_text(f"# run {json.dumps(note)}\n{json.dumps(line)}\n")
    text, page = page_of(log)
    assert "script" not in page.tags and "b" not in page.tags and text.count("&lt;script&gt;") >= 4


def test_logs_stand_beside_each_other(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("".join(line + "\n" for line in log.read_text().splitlines()[:10]))
    text, _ = page_of(log, other)
    assert text.count("<h2") == 1 and text.count("<td>other.json</td>") == 1
    for name in ("log.json", "other.json"):
        assert f">{name}</text>" in text


@pytest.mark.parametrize("name", ["conv2d_layer_h200.json", "matmul_1024_h200.json"])
def test_shipped_logs(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert main(["report", str(LOGS / name), "-o", str(out)]) == 0
    text = out.read_text()
    assert Page(text) and "H200, nominal" in text and "__global__" in text


def test_what_cannot_be_reported_is_one_sentence(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("")
    monkeypatch.chdir(tmp_path)
    for args, text in (
        ([str(empty)], "holds no record"),
        ([str(log), "--workload", "conv"], "workload 'conv': is in none of the logs"),
        ([str(log), "-o", str(log)], "--output: is one of the logs"),
        ([str(log), "--follow", "0"], "at least 1 second"),
    ):
        refused(["report", *args], text, 1, 2)
    assert not (tmp_path / "report.html").exists()


def test_it_follows_a_log_until_it_is_stopped(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    lines = log.read_text().splitlines()
    log.write_text("")

    def sleep(seconds: float) -> None:
        out = log.with_name("report.html")
        seen.append(out.read_text() if out.exists() else "")
        if len(seen) == 3:
            raise KeyboardInterrupt
        log.write_text("\n".join(lines[: 10 * len(seen)]) + "\n")

    monkeypatch.setattr("ansor.cli.report.time.sleep", sleep)
    monkeypatch.chdir(log.parent)
    assert main(["report", str(log), "--follow", "7"]) == 130
    assert seen[0] == "" and ["10 trials" in seen[1], "20 trials" in seen[2]] == [True, True]
    assert '<meta http-equiv="refresh" content="7">' in seen[1]


def test_decisions_are_the_numbers_in_the_steps(task: ansor.SearchTask, states: list[Any]) -> None:
    programs = [tuple(s.steps) for s in states]
    tables = decisions(task.compute_dag, programs)
    assert sorted(k for t in tables for k in t.members) == list(range(len(programs)))
    for table in tables:
        names = names_of(task.compute_dag, programs[table.members[0]])
        assert len(table.names) == table.values.shape[1] == len(set(table.names)) <= len(names)
        for k, row in zip(table.members, table.values, strict=True):
            numbers = dict(zip(names, numbers_of(programs[k]) or [], strict=True))
            assert [numbers[name] for name in table.names] == row.tolist()
            splits = [s for s in programs[k] if isinstance(s, Split)]
            assert sum(len(s.lengths) for s in splits) <= len(numbers)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30))
def test_pauses_are_no_work(times: list[int]) -> None:
    got = active_seconds(times)
    assert got[0] == 0 and got == sorted(got) and len(got) == len(times)
    gaps = np.diff(times)
    assert got[-1] == gaps[(gaps >= 0) & (gaps <= PAUSE)].sum()


@given(st.lists(st.one_of(st.none(), st.floats(1e-6, 1.0)), max_size=30))
def test_a_curve_is_drawn_by_its_corners(costs: list[float | None]) -> None:
    best = [min([c for c in costs[: k + 1] if c is not None], default=None) for k in range(len(costs))]
    points = steps_of([float(k) for k in range(len(costs))], best)
    assert bool(points) == any(c is not None for c in costs)
    for k, value in enumerate(best):
        if value is not None:
            assert [y for x, y in points if x <= k][-1] == value
    assert all(b[0] >= a[0] and b[1] <= a[1] for a, b in pairwise(points))


@given(st.floats(1e-9, 1e9), st.floats(1.0001, 1e12), st.booleans())
def test_ticks_are_few_round_and_inside(low: float, ratio: float, log: bool) -> None:
    scale = Scale(low, low * ratio, log)
    ticks = scale.ticks()
    slack = 1e-6 * low if log else 1e-6 * low * ratio
    assert len(ticks) <= 2 * MOST_TICKS and all(low - slack <= t <= low * ratio * (1 + 1e-6) for t in ticks)
    places = [scale.place(t) for t in ticks]
    assert places == sorted(places) and all(0 <= p <= 1 for p in places)
    assert ratio < 2 or ticks
