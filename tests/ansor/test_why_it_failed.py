"""Why programs failed is said where a search ends, by the log, and where a program is asked for that is not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ansor
import ansor.cli.main as cli_main
import te_lite as te
from ansor.cli.main import main
from ansor.policy import task_actions
from ansor.records.noted_records import MOST_REASON, failure_line, read_failure
from ansor.records.summary import summary_of

MINE = """
import te_lite as te

def outside(n):
    a = te.placeholder((n,), name="A")
    return [a, te.compute((n,), lambda i: a[i + 1], name="B")]

def missing(n):
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="Bias")
    return [a, te.compute((n,), lambda i: a[i] + b[i], name="C")]
"""
REASON = "REFUSED: UnsafeError: B: in_bounds: index 16 of dimension 0 in `A["


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setitem(sys.modules, "mine", None)
    monkeypatch.delitem(sys.modules, "mine")
    return tmp_path


@pytest.mark.long
def test_a_workload_whose_programs_are_all_refused(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads outside, which is refused at the door, too; nobody stands there."""
    for door in (task_actions, cli_main):
        monkeypatch.setattr(door, "require_reads_inside", lambda dag: None)
    command = ["tune", "mine.py:outside", "--args", "16", "--seed", "0", "--log", "log.json"]
    for options, place in ((["--trials", "2"], "out"), (["--trials", "3", "--verbose", "0"], "err"), ([], "err")):
        assert main([*command, *(options or ["--trials", "3"])]) == 1
        said = capsys.readouterr()
        assert getattr(said, place).count(f"the first that failed: {REASON}") == 1
        assert "no valid program was found for outside(16)" in said.err
    assert main(["log", "log.json"]) == 0
    out = capsys.readouterr().out
    assert "no valid program; failed: 3 REFUSED\n" in out
    assert out.count(f"  {REASON.replace(':', ', the first:', 1)}") == 1
    task = ansor.SearchTask(workload_key='["outside", 16]', target="c")
    with pytest.raises(RuntimeError, match=r"Cannot find any valid .*; the first that failed: REFUSED"):
        task.build_best("log.json")
    assert len(list(ansor.load_records("log.json"))) == 3


def test_a_workload_that_lacks_an_input(capsys: Any) -> None:
    assert main(["tune", "mine.py:missing", "--args", "16", "--trials", "2", "--log", "log.json"]) == 2
    law = "its list of tensors lacks inputs that it reads, so no program can be given them; add them"
    assert capsys.readouterr().err == f"ansor: missing(16): {law}, got missing='Bias'\n"
    assert not Path("log.json").exists()
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    for tensors in ([a, a + b], [a + b]):
        with pytest.raises(ansor.TaskError, match=f"{law}, got missing="):
            ansor.SearchTask(compute_dag=tensors, target="c")


def result(error_no: int, reason: str) -> ansor.MeasureResult:
    return ansor.MeasureResult((1e10,), error_no, reason, 0.5, 0)


def test_each_reason_once() -> None:
    task = ansor.SearchTask("matmul", (8, 8, 8), target="c")
    inp = ansor.MeasureInput(task, task.compute_dag.init_state)
    given = [(4, "fell\nover"), (9, ""), (9, "a"), (9, "b"), (4, "x"), (0, "")]
    results = [result(n, reason) if n else ansor.MeasureResult((1e-3,), 0, "", 0.5, 0) for n, reason in given]
    ansor.RecordToFile("log.json").callback(None, [inp] * 6, results)
    (one,) = summary_of("log.json").tasks.values()
    assert one.reasons == {"RUNTIME_DEVICE": "fell over", "REFUSED": "a"}
    assert [res.error_no for _, res in ansor.load_records("log.json")] == [n for n, _ in given]


@pytest.mark.parametrize("reason", ["\x1b[2J boo", "\u202e", "z" * (1 << 21), 3, None, ["x"]])
def test_a_reason_from_elsewhere_is_data(reason: Any) -> None:
    task = ansor.SearchTask("matmul", (8, 8, 8), target="c")
    line = failure_line(ansor.MeasureInput(task, task.compute_dag.init_state), result(4, "fell over"))
    assert line is not None
    kind, _, data = line.partition("{")
    found = read_failure((kind + json.dumps({**json.loads("{" + data), "reason": reason})).encode())
    assert found is None or (found[1].isprintable() and len(found[1]) <= MOST_REASON)
    assert read_failure(line.encode().replace(b'"reason"', b'"raisin"')) is None
    assert read_failure(line.encode()[:-30]) is None
