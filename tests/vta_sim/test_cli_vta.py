"""`ansor vta`: tuning a network and drawing a program, as a user would."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansor.autotvm import MeasureInput, MeasureResult, Refusal, Task, apply_history_best
from ansor.autotvm.record import save
from ansor.autotvm.task import create
from ansor.cli.main import main
from ansor.core.target.target import Target
from vta_sim.backend import Trials
from vta_sim.cli.timeline_command import _workload
from vta_sim.cli.tune_command import _recorded
from vta_sim.core.config import Config
from vta_sim.tuning.layer_times import layers


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["vta", *args])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.long
def test_tune_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Small pictures, few trials; a second run of the command has nothing left to measure."""
    log = tmp_path / "vta.log"
    small = ("tune", "--image-size", "32", "--trials", "20", "--tuner", "random", "--seed", "3", "--log", str(log))
    code, out, err = run(capsys, *small)
    assert code == 0, err
    notes = [line for line in log.read_text().splitlines() if line.startswith("#")]
    assert out.count(" Done.\n") == 10 and len(log.read_text().splitlines()) - len(notes) == 20
    assert [line.split()[1] for line in notes] == ["run", *["workload"] * 10]
    assert all('"text": "arg0 = PLACEHOLDER' in line for line in notes[1:])
    assert main(["log", str(log)]) == 0 and "\n1x1x512 -> 512, 3x3/1 for vta\n" in capsys.readouterr().out
    assert "output: equals the int8 reference bit for bit" in out
    rows = re.findall(
        r"^\d+x\d+x\d+ -> \d+, \dx\d/\d +(\d) +2 +([\d.]+) +[\d.]+ +([\d.]+) +[\d.]+ +([\d.]+) +[\d.]+$", out, re.M
    )
    assert len(rows) == 10 and sum(int(n) for n, *_ in rows) == 19
    total = re.search(r"^all convolutions +19 +20 +([\d.]+) +[\d.]+ +([\d.]+) +[\d.]+ +([\d.]+) ", out, re.M)
    assert total is not None
    for k in (1, 2, 3):
        assert float(total[k]) == pytest.approx(sum(int(row[0]) * float(row[k]) for row in rows), abs=0.02)
    assert all(float(tuned) <= float(default) <= float(fallback) for _, fallback, default, tuned in rows)
    code, again, _ = run(capsys, *small)
    assert code == 0 and "Done." not in again and len(log.read_text().splitlines()) == 31
    assert again.split("Run and check")[1].split("inference")[0] == out.split("Run and check")[1].split("inference")[0]


def test_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best published tiles of C2, and a picture."""
    path = tmp_path / "c2.svg"
    code, out, _ = run(capsys, "timeline", "C2", "--knobs", "8,56,1,2,2,1", "-o", str(path))
    assert code == 0
    assert "270 instructions, 566753 cycles, 5.668 ms; busy: load 26%, compute 96%, store 5%" in out
    assert path.read_text().startswith("<svg") and path.read_text().count("<title>") > 200
    code, default, _ = run(capsys, "timeline", "7,9,32,48,3,1,2")
    assert code == 0 and re.search(r"^compute .*G", default, re.M)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("timeline", "C1"), "layer: 7 numbers with commas between them are needed; known layers are C2, .*'C1'"),
        (("timeline", "7,7,20,16,3,1,1"), r"layer: channels must be multiples of 16, got \(20, 16\)"),
        (("timeline", "C2", "--knobs", "1,2"), "--knobs: 6 numbers with commas between them are needed"),
        (("timeline", "C2", "--knobs", "8,55,1,2,2,1"), "conv2d_packed: tile_w must divide 56, got 55"),
        (("timeline", "C2", "--knobs", "56,56,4,4,1,1"), "the tile in INP must fit its 2048 elements, got 13456"),
        (("timeline", "C11", "--log", "none.log"), "none.log"),
        (("timeline", "C11", "--config", "none.json"), "none.json: no configuration can be read from it"),
        (("tune", "--trials", "-1"), "--trials: a number of at least 0 is needed, got -1"),
        (("tune", "--image-size", "20", "--log", "x.log"), "32"),
        (
            ("tune", "--image-size", "32", "--tuner", "best", "--log", "x.log"),
            "tuner: it must be one of xgb, ga, random",
        ),
    ],
)
def test_one_sentence(
    args: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *args)
    assert code in (2, 3) and re.search(said, err), err
    assert len(err.splitlines()) == 1 and err.startswith("ansor: ") and "Traceback" not in out + err


def test_impossible_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration file that no machine can have, and one with a memory too small for a layer."""
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps({**Config().to_json(), "LOG_INP_BUFF_SIZE": 99}))
    code, _, err = run(capsys, "timeline", "C2", "--config", str(path))
    assert code == 2 and "LOG_INP_BUFF_SIZE: must be a whole number from 0 to 30, got found=99" in err
    code, _, err = run(capsys, "timeline", "4,4,16,16,4,0,1", "--knobs", "1,1,1,1,3,1")
    assert code == 2 and "oc_nthread must divide the 1 tiles, got 3" in err


def test_a_log_without_the_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "empty.log"
    log.write_text("")
    code, _, err = run(capsys, "timeline", "C2", "--log", str(log))
    assert code == 2 and err == f"ansor: {log}: holds no valid record of this layer on sim_1x16_i8w8a32_15_15_18_17\n"


def test_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the weights on the chip and half the accumulators: templates and compiler go by the file's sizes."""
    path, config = tmp_path / "vta_config.json", Config(log_wgt_buff_size=19, log_acc_buff_size=16)
    path.write_text(json.dumps(config.to_json()))
    many_weights = ("timeline", "7,7,16,2048,3,1,1", "--knobs", "1,7,1,128,1,1")
    code, _, err = run(capsys, *many_weights)
    assert code == 2 and "the tile in WGT must fit its 1024 elements, got 1152" in err
    code, _, err = run(capsys, *many_weights, "--config", str(path))
    assert code == 0, err
    data, kernel = ("TENSOR", (1, 1, 7, 7, 1, 16), "int8"), ("TENSOR", (128, 1, 3, 3, 16, 16), "int8")
    task = Task("conv2d_packed.vta", (data, kernel, (1, 1), (1, 1), (1, 1), "NCHW1n16c", "int32"), "vta")
    chosen = task.config_space.get(task.config_space.knob2point([0, 0, 1, 0, 7, 0, 0]))
    assert isinstance(Trials().build(task, chosen), Refusal)
    assert not isinstance(Trials(config).build(task, chosen), Refusal)


@pytest.mark.long
@pytest.mark.parametrize(
    ("network", "trials"), [("resnet-18", 24), pytest.param("mobilenet", 30, marks=pytest.mark.slow)]
)
def test_tune_by_sketches(network: str, trials: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every kernel of small pictures, from its sketches: right, and in few launches."""
    log = tmp_path / "vta.json"
    small = ("--image-size", "32", "--trials", str(trials), "--seed", "3", "--log", str(log))
    code, out, err = run(capsys, "tune", "--search", "sketch", "--network", network, *small)
    assert code == 0, err
    assert "output: equals the int8 reference bit for bit" in out
    launches = re.findall(r"modelled accelerator, in (\d+) launches", out)
    assert len(launches) == 1 and int(launches[0]) < 4
    assert sum(line.startswith("{") for line in log.read_text().splitlines()) == trials


def test_records_of_another_machine_are_left_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same convolution on a machine with other memories is another task: counted, applied and shown apart."""
    mine, other = Config(), Config(log_uop_buff_size=14)
    log, work = tmp_path / "vta.log", _workload("4,4,16,16,1,0,1", mine)
    tasks = {c: create(work[0], work[1:], f"vta -device=vta -model={c.model}") for c in (mine, other)}
    knobs = {mine: 1, other: 2}
    for c, cost in ((mine, 2e-3), (other, 1e-3)):
        inp = MeasureInput(tasks[c].target_text, tasks[c], tasks[c].config_space.get(knobs[c]))
        save(log, [inp], [MeasureResult((cost,), 0, "", 0.1, 7)])
    for c, task in tasks.items():
        assert _recorded(log, [task], Target(c.target_text)) == 1
        assert capsys.readouterr().out.count("are left aside, the target here is vta -model=") == 1
        with apply_history_best(log) as context:
            assert context.query(c.target_text, work).index == knobs[c]
        assert layers([task], {work: 1}, log, c)[0].trials == 1


def test_timeline_of_sketches(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "timeline", "C10", "--search", "sketch")
    assert code == 0, err
    assert "C10: the sketches' program of the fewest cycles" in out and "74 instructions, 87238 cycles" in out
    code, _, err = run(capsys, "timeline", "C10", "--search", "sketch", "--knobs", "7,7,1,16,2,1")
    assert code != 0 and "those of templates" in err


def test_templates_know_one_network(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "tune", "--network", "mobilenet")
    assert code != 0 and "use --search sketch" in err
