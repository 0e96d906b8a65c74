"""What is told of several devices: in records, in the log, on the screen, and by the commands."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ansor
from ansor.cli.main import main
from ansor.core.tasks.measure_values import DeviceUse
from ansor.measure import MeasureResult
from ansor.measure.devices import list_devices
from ansor.measure.live_display import LiveDisplay
from ansor.measure.progress import PlainDisplay, SilentDisplay, use_lines
from te_lite.errors import RecordError
from tests.ansor.fake_measure import CostRunner, ReadyBuilder

USES = [DeviceUse("c 0 (fast)", 30, 9.0, 10.0, 0), DeviceUse("c 1 (fast)", 10, 4.0, 10.0, 2)]


class TwoDevices(CostRunner):
    """Says what two devices did."""

    def usage(self) -> Sequence[DeviceUse]:
        return USES


# ------------------------------------------------------------------------------------------------- records


def test_the_device_of_a_record_survives_and_others_stay_as_they_are(record: Any) -> None:
    inp, res = record()
    line = ansor.dump_record_to_string(inp, res)
    assert '"d"' not in line and json.loads(line)["v"] == "v0.6"
    there = ansor.dump_record_to_string(inp, replace(res, device="cuda 3 (NVIDIA H200)"))
    assert json.loads(there) == {**json.loads(line), "d": "cuda 3 (NVIDIA H200)", "v": "ansor-v1"}
    assert ansor.load_record_from_string(there)[1] == replace(ansor.load_record_from_string(line)[1],
                                                              device="cuda 3 (NVIDIA H200)")  # fmt: skip


@pytest.mark.parametrize("device", [3, None, ["cuda"], {"name": "cuda"}, "x" * 201])
def test_a_device_that_is_no_short_text_is_refused(record: Any, device: Any) -> None:
    line = json.loads(ansor.dump_record_to_string(*record()))
    with pytest.raises(RecordError, match="the name of a device is a short text"):
        ansor.load_record_from_string(json.dumps({**line, "d": device}))


def test_a_long_name_is_cut_and_can_be_read(record: Any) -> None:
    inp, res = record()
    line = ansor.dump_record_to_string(inp, replace(res, device="x" * 500))
    assert ansor.load_record_from_string(line)[1].device == "x" * 200


def test_the_log_says_after_every_round_what_the_devices_did(tmp_path: Path, matmul_task: Any, states: Any) -> None:
    log = tmp_path / "log.json"
    runner = TwoDevices(lambda k: 1e-3)
    measurer = ansor.ProgramMeasurer(ReadyBuilder(), runner, [ansor.RecordToFile(log)], verbose=0)
    for _ in range(2):
        measurer.measure(matmul_task, None, [ansor.MeasureInput(matmul_task, s) for s in states(3)])
    notes = [line for line in log.read_text().splitlines() if line.startswith("# devices ")]
    assert len(notes) == 2
    first = {"device": "c 0 (fast)", "trials": 30, "busy_s": 9.0, "seconds": 10.0, "lost_workers": 0}
    assert json.loads(notes[0].removeprefix("# devices "))[0] == first
    reader = ansor.RecordReader(log)
    assert len(list(reader)) == 6 and reader.num_bad == 0


def test_nothing_is_noted_where_devices_are_not_told_apart(tmp_path: Path, matmul_task: Any, states: Any) -> None:
    log = tmp_path / "log.json"
    for runner in (CostRunner(lambda k: 1e-3), ansor.LocalRunner()):
        runner.run = CostRunner(lambda k: 1e-3).run
        measurer = ansor.ProgramMeasurer(ReadyBuilder(), runner, [ansor.RecordToFile(log)], verbose=0)
        measurer.measure(matmul_task, None, [ansor.MeasureInput(matmul_task, s) for s in states(2)])
    assert "# devices" not in log.read_text() and len(list(ansor.load_records(log))) == 4


# ------------------------------------------------------------------------------------------------- displays


def test_lines_of_devices() -> None:
    assert use_lines(USES) == [
        "c 0 (fast): 30 programs, 3 programs/s, 90% busy",
        "c 1 (fast): 10 programs, 1 programs/s, 40% busy, 2 workers lost",
    ]
    assert use_lines([]) == []
    assert use_lines(USES * 50) == ["100 devices: 2000 programs, 200 programs/s, 65% busy, 100 workers lost"]
    (new,) = use_lines([DeviceUse("c 0 (fast)", 0, 0.0, 0.0, 0)])
    assert new == "c 0 (fast): 0 programs, 0 programs/s, 0% busy"


def test_plain_text_tells_at_the_end_and_a_terminal_all_the_time(matmul_task: Any, states: Any) -> None:
    inputs = [ansor.MeasureInput(matmul_task, s) for s in states(2)]
    plain, live = io.StringIO(), io.StringIO()
    for display in (PlainDisplay(plain), LiveDisplay(Console(file=live, force_terminal=True, width=120))):
        measurer = ansor.ProgramMeasurer(ReadyBuilder(), TwoDevices(lambda k: 1e-3), verbose=0)
        measurer.display = display
        display.devices(measurer.usage)
        with display.run(matmul_task, 2):
            measurer.measure(matmul_task, None, inputs)
            assert "programs/s" not in plain.getvalue() or isinstance(display, LiveDisplay)
    assert plain.getvalue().endswith("\n".join(use_lines(USES)) + "\n")
    assert "c 0 (fast): 30 programs, 3 programs/s, 90% busy" in live.getvalue()


def test_a_measurer_tells_its_display_whom_to_ask() -> None:
    measurer = ansor.ProgramMeasurer(ReadyBuilder(), TwoDevices(lambda k: 1e-3), verbose=2)
    assert isinstance(measurer.display, PlainDisplay) and measurer.display.usage() == USES
    silent = ansor.ProgramMeasurer(ReadyBuilder(), CostRunner(lambda k: 1e-3), verbose=0)
    assert isinstance(silent.display, SilentDisplay) and silent.usage() == []


# ------------------------------------------------------------------------------------------------- commands


def test_devices_lists_what_is_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver, the line of CUDA is one sentence."""
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    (cpu,) = list_devices("c")
    rows = [line.split(maxsplit=2) for line in out.splitlines()]
    assert ["c", "0", f"{cpu.model}  ({cpu.detail})"] in rows
    (cuda,) = [text for kind, _, text in rows if kind == "cuda"]
    assert cuda.startswith("target 'cuda' needs an NVIDIA GPU with its driver and PyCUDA") and "Traceback" not in out
    boards = [text for kind, _, text in rows if kind == "vta"]
    assert len(boards) == len(list_devices("vta")) == 7 and "simulator of pynq" in boards[2]


def test_tune_on_all_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, refused: Any, matmul_task: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text("good")
    monkeypatch.setenv("FAULTS", str(tmp_path))
    monkeypatch.setenv("MODELS", "fast,fast")
    before = ansor.register_backend("c", "tests.ansor.fake_devices")
    command = ["tune", "matmul", "--shape", "13,11,7", "--trials", "6", "--seed", "3", "--log", "log.json"]
    try:
        assert main([*command, "--devices", "all"]) == 0
        out = capsys.readouterr().out
        assert "c 0 (fast): " in out and "c 1 (fast): " in out and "% busy" in out
        _, results = ansor.RecordReader("log.json").read_lines()
        assert len(results) == 6 and {r.device for r in results} <= {"c 0 (fast)", "c 1 (fast)"}
        monkeypatch.setenv("MODELS", "fast,slow")
        refused([*command, "--more", "6", "--devices", "0,1"], "must be of one model", 4)
    finally:
        ansor.register_backend("c", before or "codegen_c.backend")
    assert main(["best", "log.json"]) == 0
    assert main([*command, "--devices", "first"]) == 2
    assert "--devices: all, or numbers separated by commas are needed, got 'first'" in capsys.readouterr().err


def test_results_of_equal_figures_differ_by_their_device() -> None:
    one = MeasureResult((1.0,), 0, "", 0.0, 0, "c 0 (fast)")
    assert one != replace(one, device="") and replace(one, device="") == MeasureResult((1.0,), 0, "", 0.0, 0)
