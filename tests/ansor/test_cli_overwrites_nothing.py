"""Commands that write lose nothing that is there: a log, a picture and a folder are written over by their like only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cli.main import main


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of three records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mine", None)
    monkeypatch.delitem(sys.modules, "mine")
    task = ansor.SearchTask("matmul", (8, 8, 8), target="c")
    inp = ansor.MeasureInput(task, task.compute_dag.init_state)
    results = [ansor.MeasureResult((c,), 0, "", 0.5, 1_700_000_000) for c in (3e-3, 1e-3, 2e-3)]
    ansor.RecordToFile("log.json").callback(None, [inp] * 3, results)
    return tmp_path / "log.json"


MINE = "# mine\nimport te_lite as te\ndef f():\n    a = te.placeholder((4,), name='a')\n    return [a, a + 1]\n"


@pytest.mark.parametrize(
    "command",
    [
        ["tune", "mine.py:f", "--trials", "1", "--log", "mine.py"],
        ["tune-network", "mine.py", "--trials", "1", "--log", "mine.py"],
        ["vta", "tune", "--trials", "1", "--log", "mine.py"],
        ["tune", "matmul", "--trials", "1", "--log", "table.json"],
    ],
)
def test_records_are_appended_to_logs_only(command: list[str], log: Path, capsys: Any) -> None:
    files = {"mine.py": MINE, "table.json": '{\n "a": 1\n}\n'}
    for name, text in files.items():
        Path(name).write_text(text)
    assert main(command) == 3
    assert f"{command[-1]}: holds other things than records" in capsys.readouterr().err
    assert files == {name: Path(name).read_text() for name in files}
    with pytest.raises(ansor.core.errors.JournalError, match="holds other things than records"):
        ansor.RecordToFile("mine.py")


@pytest.mark.parametrize("command", [["tune", "matmul"], ["tune-network", "mlp"], ["vta", "tune"]])
def test_a_new_log_under_the_name_of_a_packed_one_is_refused(command: list[str], log: Path, capsys: Any) -> None:
    assert main([*command, "--log", "new.json.gz"]) == 3
    assert capsys.readouterr().err.startswith(
        "ansor: new.json.gz: would be packed by gzip, and records cannot be appended"
    )
    assert not Path("new.json.gz").exists()
    with pytest.raises(ansor.core.errors.JournalError, match=r"name the log new\.json"):
        ansor.records.journal.append_lines("new.json.gz", ["{}"])


def test_a_packed_log_is_refused_before_the_search(log: Path, capsys: Any) -> None:
    ansor.records.journal.replace_file("packed.json.gz", log.read_text().splitlines())
    before = Path("packed.json.gz").read_bytes()
    assert main(["tune", "matmul", "--shape", "8,8,8", "--more", "1", "--log", "packed.json.gz"]) == 3
    said = capsys.readouterr()
    assert said.err.startswith("ansor: packed.json.gz: is packed by gzip, and records cannot be appended; unpack it")
    assert said.out == "" and Path("packed.json.gz").read_bytes() == before


@pytest.mark.parametrize("command", [["tune", "matmul"], ["tune-network", "resnet-18"], ["vta", "tune"]])
def test_folders_are_not_made_by_a_typing_error(command: list[str], log: Path, capsys: Any) -> None:
    assert main([*command, "--trials", "1", "--log", "typo/x.json"]) == 3
    assert capsys.readouterr().err == "ansor: typo/x.json: cannot be written: there is no folder typo\n"
    assert not Path("typo").exists()


def test_a_page_is_written_over_by_a_page_only(log: Path, capsys: Any) -> None:
    os.link(log, "hard")
    Path("notes.txt").write_text("what I found\n")
    before = log.read_bytes()
    for output in ("hard", "notes.txt"):
        assert main(["report", "log.json", "-o", output]) == 2
        assert "this file is there, and is no page; name another one" in capsys.readouterr().err
    assert main(["report", "log.json", "-o", "typo/page.html"]) == 3 and not Path("typo").exists()
    assert [main(["report", "log.json", "-o", "page.html"]) for _ in range(2)] == [0, 0]
    assert log.read_bytes() == before and Path("notes.txt").read_text() == "what I found\n"


def test_a_picture_is_written_over_by_a_picture_only(log: Path, capsys: Any) -> None:
    command = ["vta", "timeline", "14,14,16,16,1,0,1", "-o"]
    assert main([*command, "log.json"]) == 2
    assert "this file is there, and is no picture" in capsys.readouterr().err
    assert [main([*command, "new.svg"]) for _ in range(2)] == [0, 0]
