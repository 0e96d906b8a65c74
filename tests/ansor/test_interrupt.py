"""Ctrl-C and SIGKILL in the middle of a search: every measured record is kept, no process is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid

import pytest

import ansor
from tests.ansor.conftest import HEED_CTRL_C

SCRIPT = textwrap.dedent("""
    import sys
    import ansor
    from tests.ansor.conftest import matmul
    ansor.register_backend("c", "tests.ansor.faulty_backend")
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    options = ansor.TuningOptions(
        num_measure_trials=200, verbose=0, builder=ansor.LocalBuilder(n_parallel=2),
        measure_callbacks=[ansor.RecordToFile(sys.argv[1])],
    )
    try:
        task.tune(options, ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
""")


def processes(mark):
    """The processes that carry `mark` in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                if mark.encode() in f.read():
                    found.append(int(name))
        except OSError:
            continue
    return found


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture
def search(tmp_path):
    """A search in another process, under way: `(process, log, mark)`."""
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / "script").write_text("slow")
    mark, log = f"mark-{uuid.uuid4()}", tmp_path / "log.json"
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {**os.environ, "FAULTS": str(faults), "TEST_MARK": mark, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HEED_CTRL_C + SCRIPT, log], env=env, stdout=subprocess.PIPE, text=True
    )
    yield process, log, mark
    process.kill()
    process.wait()


def lines(log):
    """How many whole lines a file has, without comments."""
    found = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
    return sum(not line.startswith(b"#") for line in found)


@pytest.mark.long
def test_ctrl_c_keeps_the_records_and_leaves_no_process(search, tmp_path):
    process, log, mark = search
    assert wait_until(lambda: lines(log) >= 4, 60)
    before = lines(log)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert process.stdout.read() == "interrupted\n"
    assert wait_until(lambda: not processes(mark), 5)
    reader = ansor.RecordReader(log)
    assert len(list(reader)) >= before and reader.num_bad == 0
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("ansor_")]


@pytest.mark.long
def test_a_killed_search_loses_no_acknowledged_record_and_its_workers_go(search):
    process, log, mark = search
    assert wait_until(lambda: lines(log) >= 2, 60)
    before = lines(log)
    process.kill()
    process.wait()
    reader = ansor.RecordReader(log)
    assert len(list(reader)) >= before and reader.num_bad == 0
    assert wait_until(lambda: not processes(mark), 10)
