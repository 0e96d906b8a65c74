"""The command line: what it prints, and its exit codes."""

import os
import signal
import subprocess
import sys
import time

import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.core.device.backend import backend
from ansor.core.host import hints
from ansor.core.tasks.catalog import CATALOG
from te_lite.printing.dag_json import dag_from_json, dag_to_json
from tests.ansor.conftest import HEED_CTRL_C


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
def test_tune_best_distill(here, faults, capsys):
    faults(["good"])
    command = ["tune", "matmul", "--shape", "13,11,7", "--trials", "5", "--seed", "3", "--log", "log.json"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "tuning matmul(13, 11, 7) for c: 5 trials" in out and "best of log.json" in out
    assert out.endswith(f"see it with: {hints.ansor('best', 'log.json', '--print', 'schedule')}\n")
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "log.json holds 5 trials already, all that --trials asks for; --more N measures N more" in out
    assert "tuning" not in out and "best of log.json" in out
    assert main([*command, "--more", "5"]) == 0
    assert "loaded 5 measured programs" in (out := capsys.readouterr().out) and "5 trials in" in out
    inputs, _ = ansor.RecordReader("log.json").read_lines()
    assert len({str(i.task.compute_dag.infer_bound_from_state(i.state)) for i in inputs}) == len(inputs) == 10
    assert main(["best", "log.json", "--print", "schedule"]) == 0
    assert "matmul(13, 11, 7) for c: 1 ms" in (out := capsys.readouterr().out) and "s[C].reorder(" in out
    assert main(["best", "log.json", "--print", "c"]) == 0
    assert "/* default_function for c */" in capsys.readouterr().out


@pytest.mark.long
def test_no_valid_program_is_exit_code_1(here, faults, capsys):
    faults(["wrong"])
    assert main(["tune", "matmul", "--shape", "13,11,7", "--trials", "2", "--log", "log.json"]) == 1
    assert "no valid program was found" in capsys.readouterr().err
    assert main(["best", "log.json"]) == 1


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["tune", "matmul", "--shape", "13,11"], 2, "--shape: 3 numbers are needed (N,M,K), got 2"),
        (["tune", "matmul", "--shape", "13,a,7"], 2, "numbers separated by commas are needed"),
        (["tune", "matmul", "--shape=-3,5,5"], 2, "none below 0, got '-3,"),
        (["tune", "matmul", "--shape", "N=5,N=6"], 2, "--shape: N is given twice, got 'N=5,N=6'"),
        (["tune", "matmul", "--shape", "999999999,999999999,99999"], 2, "of this machine's memory"),
        (["tune", "matmul", "--shape", "13,\u00b2,7"], 2, "numbers separated by commas are needed"),
        (["tune", "matmul", "--seed", "-1"], 2, "--seed: the seed must be an integer of at least 0, got seed=-1"),
        (["tune", "matmul", "--shape", "13,0,7"], 2, "every dimension must be a positive integer"),
        (["tune", "matmul", "--target", "abacus"], 2, "target 'abacus': unknown"),
        (["tune", "matmul", "--log", "/dev/full/x"], 3, "cannot be written"),
        (["best", "nothing.json"], 3, "nothing.json: cannot be read: No such file"),
        (["best", "garbage.json"], 1, "garbage.json: holds no valid record"),
    ],
)
def test_errors_are_one_sentence(here, refused, command, code, text):
    (here / "garbage.json").write_text("garbage\n")
    refused(command, text, code)


def test_a_disk_that_fills_up_during_the_search_stops_it(here, faults, capsys):
    faults(["good"])
    assert main(["tune", "matmul", "--shape", "13,11,7", "--trials", "5", "--log", "/dev/full"]) == 3
    assert capsys.readouterr().err == "ansor: /dev/full: cannot be written: No space left on device\n"


def test_cuda_without_a_gpu_is_one_sentence(here, refused):
    try:
        ansor.nd.empty((3,), device=ansor.gpu())
    except te.TeError as error:
        assert "target 'cuda' needs" in str(error) and "use target 'c'" in str(error) and "\n" not in str(error)
    else:
        pytest.skip("there is a GPU")
    words = ["tune", "matmul", "--shape", "8,8,8", "--target", "cuda", "--trials", "1"]
    err = refused(words, "target 'cuda' needs")
    assert "by estimates" in err and "in an emulator" in err


def test_doctor(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("Python", "numpy", "xgboost", "C compiler", "target cuda", "processor"):
        assert word in out
    try:
        there = backend("cuda").check("cuda") is None
    except te.TeError:
        there = False
    assert ("ok       target cuda   is there" in out) == there and (
        "absent   target cuda   target 'cuda' needs" in out
    ) != there


def test_ctrl_c(here, tmp_path):
    (tmp_path / "script").write_text("slow")
    code = (
        "import ansor, sys; ansor.register_backend('c', 'tests.ansor.faulty_backend'); from ansor.cli.main import main;"
        "sys.exit(main(['tune', 'matmul', '--shape', '13,11,7', '--trials', '100', '--log', 'log.json']))"
    )
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {**os.environ, "FAULTS": str(tmp_path), "PYTHONPATH": path}
    process = subprocess.Popen(
        [sys.executable, "-c", HEED_CTRL_C + code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and not ((here / "log.json").exists() and (here / "log.json").stat().st_size > 0):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == b"stopped; everything measured is in log.json\n" and b"trials in" in out


def test_the_catalog_builds_and_travels():
    for entry in CATALOG.values():
        task = ansor.SearchTask(workload_key=entry.key(entry.default), target="c")
        copy = dag_from_json(dag_to_json(task.compute_dag))
        assert str(copy) == str(task.compute_dag)
        assert copy.workload_key() == task.compute_dag.workload_key() and copy.flop_ct == task.compute_dag.flop_ct
