"""Logs of templates are logs, too: the commands that list, compare and draw logs read both kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansor.autotvm import MeasureInput, MeasureResult, callback
from ansor.autotvm.log_summary import holds_configurations, log_summary
from ansor.autotvm.record import load_from_file, pick_best, save
from ansor.cli.main import main
from ansor.records.notes import read_note
from tests.conformance.tuner import LAYERS, conv_task

FAILED = 1e9


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tasks with three records each, the first of which failed."""
    monkeypatch.chdir(tmp_path)
    for layer in (0, 1):
        task = conv_task(LAYERS[layer])
        inputs = [MeasureInput("vta", task, task.config_space.get(k)) for k in range(3)]
        costs = (FAILED, 4e-3 + layer, 2e-3 + layer)
        results = [MeasureResult((c,), int(c == FAILED), "no <b>room</b>" * (c == FAILED), 0.5, 7) for c in costs]
        save("vta.log", inputs, results)
    return tmp_path / "vta.log"


def test_a_summary_has_all_that_the_records_say(log: Path) -> None:
    assert holds_configurations(log) and not holds_configurations(Path(__file__).with_name("conftest.py"))
    summary = log_summary(log)
    assert summary.trials == 6 and summary.seconds == 3.0
    for layer, one in enumerate(summary.tasks.values()):
        assert one.curve == [None, 4e-3 + layer, 2e-3 + layer] and one.found_at == 3
        assert one.flops == conv_task(LAYERS[layer]).flop and one.target == "vta"
        assert list(one.failures.values()) == [1] and list(one.reasons.values()) == ["no <b>room</b>"]


def test_the_commands_read_it(log: Path, capsys: Any) -> None:
    title = next(iter(log_summary(log).tasks.values())).title
    assert main(["log", "vta.log"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("vta.log: 6 trials of 2 tasks") and "best 2 ms" in out and "the first: no <b>room</b>" in out
    assert main(["log", "vta.log", "--workload", title]) == 0 and capsys.readouterr().out.count(" for vta\n") == 1
    assert (
        main(["log", "vta.log", "vta.log", "--compare"]) == 0 and "B takes 1.00 of A's time" in capsys.readouterr().out
    )
    assert main(["best", "vta.log"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{title} for vta: 2 ms  ") and ": 1002 ms  " in second and "oc_nthread=" in first
    assert main(["best", "vta.log", "--print", "c"]) == 2 and "has no program to print" in capsys.readouterr().err
    assert main(["report", "vta.log"]) == 0
    assert "no &lt;b&gt;room" in Path("report.html").read_text()


def test_it_says_what_it_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """One line a run, one a task, whichever process wrote what is there; names are seen in every command."""
    monkeypatch.chdir(tmp_path)
    named, plain = conv_task(LAYERS[0]), conv_task(LAYERS[1])
    named.desc = "a layer\x1b, 3x3"
    result = MeasureResult((1e-3,), 0, "", 0.5, 7)
    for seed in (5, 5, None):
        keep = callback.log_to_file("vta.log", seed=seed)
        for task in (named, plain):
            keep(None, [MeasureInput("vta", task, task.config_space.get(0))], [result])
    lines = Path("vta.log").read_text().splitlines()
    assert [line.split()[1] for line in lines if line[0] == "#"] == ["run", "workload", "workload", "run", "run"]
    notes = [note[1] for note in map(read_note, Path("vta.log").read_bytes().splitlines()) if note is not None]
    assert [note["seed"] for note in notes if "seed" in note] == [5, 5, None] and notes[0]["versions"]["ansor"]
    assert pick_best("vta.log", "vta.log.best.json") == pick_best("vta.log", "vta.log.best.json") == 2
    for log in ("vta.log", "vta.log.best.json"):
        assert main(["log", log]) == main(["best", log, "--workload", "a layer , 3x3"]) == 0
        printed = capsys.readouterr().out
        assert printed.count("a layer , 3x3 for vta") == 2 and f"\n{plain.call} for vta\n" in printed
    assert main(["best", "vta.log", "--workload", "x"]) == 1
    assert "has no workload 'x'; its workloads are a layer , 3x3, made_up.conv" in capsys.readouterr().err
    assert [inp.task.title for inp, _ in load_from_file("vta.log")][:2] == ["a layer , 3x3", plain.call]
