"""`ansor log` and `ansor best --workload`: what a log holds is said, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.cli.main import main
from ansor.cli.remeasure import names_in
from ansor.core.tasks.measure_values import Baseline
from ansor.records.summary import summary_of


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`write(log, name, args, costs)`: records of a task; a negative cost is an error number."""
    monkeypatch.chdir(tmp_path)

    def write(log: str, name: str, args: tuple[int, ...], costs: list[float]) -> None:
        task = ansor.SearchTask(name, args, target="c")
        inp = ansor.MeasureInput(task, task.compute_dag.init_state)
        results = [
            ansor.MeasureResult((1e10,) if c < 0 else (c,), int(-c) if c < 0 else 0, "", 0.5, 1_700_000_000)
            for c in costs
        ]
        ansor.RecordToFile(log).callback(None, [inp] * len(costs), results)

    return write


def test_figures_show_how_far_they_reach(write: Any, capsys: Any) -> None:
    """Those of the best record, of baselines and of turns, in the list, beside another log and on the page."""
    write("log.json", "matmul", (8, 8, 8), [])
    task = ansor.SearchTask("matmul", (8, 8, 8), target="c")
    inp, keep = ansor.MeasureInput(task, task.compute_dag.init_state), ansor.RecordToFile("log.json")
    several = [ansor.MeasureResult(costs, 0, "", 0.5, 7) for costs in [(3e-3, 5e-3), (9e-3,), (1e-3, 2e-3, 6e-3)]]
    keep.callback(None, [inp] * 3, several)
    keep.baseline(None, Baseline.UNTUNED, inp, ansor.MeasureResult((5e-3, 7e-3), 0, "", 0.5, 7))
    assert main(["log", "log.json"]) == main(["best", "log.json"]) == 0
    printed = capsys.readouterr().out
    assert "best 3 ms (0.0 GFLOP/s; 1 ms to 6 ms in 3 figures) at" in printed
    assert "for c: 3 ms (1 ms to 6 ms in 3 figures)  0.0 GFLOP/s" in printed
    assert "untuned: 6 ms (5 ms to 7 ms in 2 figures)\n" in printed
    keep.confirmed([inp], [(3e-3, 4e-3, 8e-3)])
    assert main(["log", "log.json", "log.json", "--compare"]) == main(["report", "log.json"]) == 0
    assert "A 3 ms to 8 ms   B 3 ms to 8 ms\n" in capsys.readouterr().out
    page = Path("report.html").read_text()
    assert page.count("4 ms (3 ms to 8 ms in 3 figures)") >= 2 and "6 ms (5 ms to 7 ms in 2 figures)" in page


def test_what_a_log_holds(write: Any, capsys: Any) -> None:
    costs = [-4, 4e-3, 5e-3, -7, -7, 1e-3, 2e-3]
    write("log.json", "matmul", (8, 8, 8), costs)
    write("log.json", "norm", (1, 4, 4), [-7])
    assert main(["log", "log.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "log.json: 8 trials of 2 tasks, 4.0 s of building and measuring"
    assert lines[1].startswith("  written by: ") and lines[1].endswith("(seed None)")
    assert lines[3] == "matmul(8, 8, 8) for c"
    rate = f"{ansor.SearchTask('matmul', (8, 8, 8), target='c').compute_dag.flop_ct / 1e-3 / 1e9:.1f} GFLOP/s"
    assert lines[4] == f"  7 trials in 3.5 s, best 1 ms ({rate}) at trial 6; failed: 2 RUN_TIMEOUT, 1 RUNTIME_DEVICE"
    assert [line.split() for line in lines[5:8]] == [
        ["2", "trials", "4", "ms", "#" * 10], ["4", "trials", "4", "ms", "#" * 10], ["7", "trials", "1", "ms", "#" * 40]
    ]  # fmt: skip
    assert lines[8:] == ["norm(1, 4, 4) for c", "  1 trial in 0.5 s, no valid program; failed: 1 RUN_TIMEOUT"]
    assert main(["log", "log.json", "--workload", "norm"]) == 0
    assert "matmul" not in "\n".join(capsys.readouterr().out.splitlines()[3:])
    for name in ("norm(1,4,4)", "norm( 1, 4, 4 )", '["norm",1,4,4]'):
        assert main(["log", "log.json", "--workload", name]) == 0
    capsys.readouterr()


def test_the_curve_is_the_least_so_far(write: Any) -> None:
    rng = np.random.default_rng(0)
    costs = [float(c) if rng.random() < 0.8 else -7.0 for c in rng.uniform(1e-4, 1e-2, 60)]
    write("log.json", "matmul", (8, 8, 8), costs)
    (one,) = summary_of("log.json").tasks.values()
    for k in range(1, 61):
        good = [c for c in costs[:k] if c > 0]
        assert one.after(k) == (min(good) if good else None)
    assert sum(one.failures.values()) == sum(c < 0 for c in costs)
    assert costs[(one.found_at or 0) - 1] == one.best == min(c for c in costs if c > 0)


def test_two_logs_beside_each_other(write: Any, capsys: Any) -> None:
    write("a.json", "matmul", (8, 8, 8), [4e-3, 3e-3, 1e-3])
    write("b.json", "matmul", (8, 8, 8), [2e-3, -7])
    write("b.json", "norm", (1, 4, 4), [1e-3])
    assert main(["log", "--compare", "a.json", "b.json"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "A: a.json, 3 trials, 1.5 s" and out[2] == "matmul(8, 8, 8) for c"
    same, whole = "after 2 trials A 3 ms B 2 ms B takes 0.67", "in all (3 and 2) A 1 ms B 2 ms B takes 2.00"
    for line, words in ((3, same), (4, whole)):
        assert " ".join(out[line].split()) == f"{words} of A's time"
    assert out[5].split() == ["failed", "A", "0", "B", "1"]
    assert out[6] == "only in B: norm(1, 4, 4)"


def test_what_was_confirmed_stands_beside_what_was_measured_once(write: Any, capsys: Any) -> None:
    for log, costs, figures in (("a.json", [1e-3, 2e-3], [3e-3, 5e-3, 4e-3]), ("b.json", [2e-3], [2e-3, 1e-3, 3e-3])):
        write(log, "matmul", (8, 8, 8), costs)
        task = ansor.SearchTask("matmul", (8, 8, 8), target="c")
        ansor.RecordToFile(log).confirmed([ansor.MeasureInput(task, task.compute_dag.init_state)], [figures])
    write("c.json", "matmul", (8, 8, 8), [1e-3])
    words = "timed again, in turns A 4 ms B 2 ms B takes 0.50 of A's time"
    for other, expected in (("b.json", words), ("c.json", "timed again, in turns A 4 ms B none")):
        assert main(["log", "--compare", "a.json", other]) == 0
        assert expected in [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert main(["log", "a.json"]) == 0
    assert "in turns: 4 ms (3 ms to 5 ms in 3 figures), the untuned one\n" in capsys.readouterr().out
    assert main(["log", "--compare", "c.json", "c.json"]) == 0
    assert "timed again" not in capsys.readouterr().out


def test_it_says_which_program_best_takes(
    matmul_task: ansor.SearchTask, states: Any, tmp_path: Path, capsys: Any
) -> None:
    """The figures in turns go before the single ones, and what was measured later goes before both if it is faster."""
    log = tmp_path / "log.json"
    first, second, later = [ansor.MeasureInput(matmul_task, state) for state in states(3)]
    recorder, result = ansor.RecordToFile(log), ansor.MeasureResult
    recorder.callback(None, [first, second], [result((c,), 0, "", 0.5, 1_700_000_000) for c in (1e-3, 2e-3)])
    recorder.confirmed([first, second], [[5e-3], [4e-3]])
    for text in ("4 ms in turns, trial 2", "3 ms, trial 3"):
        assert main(["log", str(log)]) == 0
        out = capsys.readouterr().out
        assert "best 1 ms" in out and f"\n  best, export and apply_best take: {text}\n" in out
        assert main(["best", str(log)]) == 0
        assert f"for c: {text[:4]}" in capsys.readouterr().out
        recorder.callback(None, [later], [result((3e-3,), 0, "", 0.5, 1_700_000_000)])


@pytest.mark.parametrize("which", Baseline)
def test_what_nobody_searched_for_is_named(
    which: Baseline, write: Any, matmul_task: ansor.SearchTask, states: Any, capsys: Any
) -> None:
    """A log tells which program it is, also one with steps; where it failed, it has no seconds."""
    inp, other = [ansor.MeasureInput(matmul_task, state) for state in states(2)]
    recorder = ansor.RecordToFile("log.json")
    recorder.callback(None, [other], [ansor.MeasureResult((5e-3,), 0, "", 0.5, 1_700_000_000)])
    recorder.baseline(None, which, inp, ansor.MeasureResult((2e-3,), 0, "", 0.5, 1_700_000_000))
    recorder.confirmed([inp, other], [[3e-3], [4e-3]])
    assert main(["log", "log.json"]) == 0
    out = capsys.readouterr().out
    assert "1 trial of 1 task" in out and f"\n  {which.value}: 2 ms\n" in out
    assert f"in turns: 3 ms (3 ms to 3 ms in 1 figure), {which.phrase}\n" in out
    assert f"\n  best, export and apply_best take: 3 ms in turns, {which.phrase}\n" in out
    assert main(["best", "log.json"]) == 0
    assert capsys.readouterr().out.endswith(f"  ({which.value})\n")
    assert sorted(names_in("log.json").values()) == sorted([which.value, "trial 1"])
    failed = ansor.RecordToFile("failed.json")
    failed.callback(None, [other], [ansor.MeasureResult((5e-3,), 0, "", 0.5, 1_700_000_000)])
    failed.baseline(None, which, inp, ansor.MeasureResult((1e10,), 4, "planted", 0.5, 1_700_000_000))
    assert main(["log", "failed.json"]) == 0
    assert f"{which.value}:" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["norm", "norm(1, 4, 4)", '["norm", 1, 4, 4]'])
def test_the_best_of_one_workload(name: str, write: Any, capsys: Any) -> None:
    write("log.json", "matmul", (8, 8, 8), [1e-3])
    write("log.json", "norm", (1, 4, 4), [2e-3])
    assert main(["best", "log.json", "--workload", name]) == 0
    assert capsys.readouterr().out.startswith("norm(1, 4, 4) for c: 2 ms")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["log", "empty.json"], "empty.json: holds no record"),
        (["log", "garbage.json"], "garbage.json: holds no record"),
        (["log", "failed.json", "--workload", "x"], "has no workload 'x'; its workloads are matmul"),
        (["best", "good.json", "--workload", "x"], "good.json: has no workload 'x'; its workloads are matmul"),
        (
            ["log", "good.json", "other.json", "--compare"],
            "have no task in common, A has matmul(8, 8, 8) for c, B norm(",
        ),
    ],
)
def test_what_is_not_there_is_said(command: list[str], text: str, write: Any, refused: Any, caplog: Any) -> None:
    Path("empty.json").write_text("")
    Path("garbage.json").write_text("garbage\n")
    write("failed.json", "matmul", (8, 8, 8), [-7])
    write("good.json", "matmul", (8, 8, 8), [1e-3])
    write("other.json", "norm", (1, 4, 4), [1e-3])
    refused(command, text, 1)
    told = [r.message.partition("; ")[0] for r in caplog.records]
    assert told == ["garbage.json: 1 unreadable line was skipped"] * ("garbage.json" in command), "why is said once"
    assert not list(Path.cwd().glob("*.best.json"))


def test_the_program_of_the_turns_is_named_by_its_trial(
    write: Any, matmul_task: ansor.SearchTask, states: Any, capsys: Any
) -> None:
    first, second = [ansor.MeasureInput(matmul_task, state) for state in states(2)]
    recorder = ansor.RecordToFile("log.json")
    recorder.callback(None, [first, second], [ansor.MeasureResult((c,), 0, "", 0.5, 1_700_000_000) for c in (1.0, 2.0)])
    recorder.confirmed([first, second], [[4e-3], [3e-3]])
    assert main(["log", "log.json"]) == 0
    assert "in turns: 3 ms (3 ms to 3 ms in 1 figure), trial 2\n" in capsys.readouterr().out


def test_the_name_that_tune_takes_stands_for_that_of_its_function(write: Any, capsys: Any) -> None:
    write("log.json", "dense_layer", (2, 3, 4), [1e-3])
    for command in ("best", "log"):
        assert main([command, "log.json", "--workload", "dense"]) == 0
        assert "dense_layer(2, 3, 4)" in capsys.readouterr().out
    assert main(["best", "log.json", "--print", "foo"]) == 2
    assert "--print: of a record for target 'c', schedule or c is printed, got 'foo'" in capsys.readouterr().err


def test_three_logs_are_not_compared(write: Any, capsys: Any) -> None:
    assert main(["log", "a", "b", "c", "--compare"]) == 2
    assert "--compare: two logs are needed, as in ansor log --compare A.json B.json, got [" in capsys.readouterr().err


def test_what_was_skipped_in_a_log_is_said_once_in_a_command(write: Any, caplog: Any) -> None:
    write("log.json", "matmul", (8, 8, 8), [1e-3])
    Path("log.json").write_text("garbage\n" + Path("log.json").read_text())
    for _ in range(2):
        caplog.clear()
        assert main(["log", "log.json", "log.json"]) == 0
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1 and "1 unreadable line was skipped" in said[0]
