"""The benchmark of the cost model takes any log, of any folder, and says what it leaves out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ansor
from ansor.offline.analytical import AnalyticalRunner
from benchmarks import cost_model, plots, report

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log as the command line writes it: two tasks of the catalogue, one with few programs, one nobody knows."""
    path = tmp_path / "tuned.json"
    for name, args, trials in (("matmul", (16, 16, 16), 40), ("norm", (1, 8, 8), 24), ("softmax", (4, 8), 3)):
        task, runner = ansor.SearchTask(name, args, target="c"), AnalyticalRunner()
        recorder = ansor.RecordToFile(path)
        options = ansor.TuningOptions(trials, None, 16, 0, runner.builder(), runner, [recorder])
        task.tune(options, ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0))
    lines = [line for line in path.read_text().splitlines() if line.startswith("{") and '\\"norm\\"' in line]
    unknown = "".join(line.replace('\\"norm\\"', '\\"nobody\\"') + "\n" for line in lines)
    path.write_text(path.read_text() + unknown)
    return path


def test_each_task_is_judged(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = cost_model.read(str(log))
    assert [one.name for one in found] == ["matmul(16, 16, 16) for c", "norm(1, 8, 8) for c"]
    assert [len(one.rows) for one in found] == [40, 24]
    err = capsys.readouterr().err
    assert "left out: softmax(4, 8) for c, 3 records: fewer than 16 programs that ran" in err
    assert "left out: nobody(1, 8, 8) for c, 24 records: workload 'nobody': is not registered" in err
    figures = cost_model.judged(found[0], 1)
    assert figures["pairwise_accuracy"] > 0.5


def test_a_model_of_ones_own_is_judged(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = log.parent / "short_models.py"
    text = "import ansor, numpy\n\nclass Short(ansor.PythonBasedModel):\n    def update(self, inputs, results): ...\n"
    text += "    def predict(self, task, states): return numpy.array([-len(s.steps) for s in states], float)\n"
    mine.write_text(text)
    found = cost_model.read(str(log))[0]
    once, again = [cost_model.judged(found, 1, cost_model.model_of(f"{mine}:Short")) for _ in range(2)]
    assert once["pairwise_accuracy"] == again["pairwise_accuracy"] != cost_model.judged(found, 1)["pairwise_accuracy"]
    for bad, law in ((f"{mine}:Long", "the class must be there, got "), ("Short", "CLASS is needed, .* got 'Short'")):
        with pytest.raises(ansor.TaskError, match=f"^--model: .*{law}"):
            cost_model.model_of(bad)
    with pytest.raises(ansor.TaskError, match=r"^--model: a class of cost models, with update and predict, is needed"):
        cost_model.judged(found, 1, dict)


@pytest.mark.long
def test_it_runs_from_any_folder(log: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    words = ["cost_model", "--log", log.name, "--splits", "1", "--json", "figures.json"]
    command = [sys.executable, str(ROOT / "benchmarks"), *words]
    done = subprocess.run(command, cwd=log.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pairwise_accuracy") == 2
    figures = json.loads((log.parent / "figures.json").read_text())["figures"]
    assert [task["programs"] for task in figures["tasks"]] == [40, 24]


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.json").write_text("# nothing\n")
    monkeypatch.setattr(sys, "argv", ["cost_model.py", "--log", str(tmp_path / "empty.json")])
    with pytest.raises(SystemExit, match=r"empty.json: has no task with 16 programs, .* got tasks=0 records=0"):
        report.run(cost_model.main)


def test_a_log_that_is_not_there_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["cost_model.py", "--log", str(tmp_path / "typo.json")])
    with pytest.raises(SystemExit, match=r"typo.json: holds no records; --programs N measures so many"):
        report.run(cost_model.main)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report.is_there.cache_clear()
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    assert not plots.available() and not plots.available()
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("no picture is drawn: matplotlib is not installed (")
    report.is_there.cache_clear()
