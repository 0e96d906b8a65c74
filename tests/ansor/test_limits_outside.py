"""Nothing outside may hang a run, fill its memory, or stay behind: locks, pipes, compilers, error streams, folders."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ansor
import codegen_c
from ansor.core.files.private_files import scratch_folder, sweep
from ansor.core.host import command
from ansor.core.host.command import Unfinished, run_command
from ansor.records import journal
from ansor.records.journal import append_lines, ensure_writable, scan_lines
from codegen_c import compile as c_compile


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_lock_that_another_process_keeps_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "LOCK_SECONDS", 0.2)
    log = tmp_path / "log"
    with open(log, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        start = time.monotonic()
        with pytest.raises(ansor.JournalError, match=r"another process has kept it locked for 0\.2 s"):
            append_lines(log, ["{}"])
        assert time.monotonic() - start < 2
    append_lines(log, ["{}"])
    assert log.read_text() == "{}\n"


def test_what_is_no_file_is_no_log(tmp_path):
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path, words in ((pipe, "a pipe"), (folder, "directory"), (Path("/dev/zero"), "a device")):
        with pytest.raises(ansor.JournalError, match=f"{path}: .*{words}"):
            list(scan_lines(path))
        for write in (lambda p: append_lines(p, ["{}"]), ensure_writable):
            if not path.is_char_device():
                with pytest.raises(ansor.JournalError, match=f"{path}: .*{words}"):
                    write(path)


def test_a_program_that_hangs_is_ended_with_all_its_processes(tmp_path):
    pids = tmp_path / "pids"
    hang = script(tmp_path / "hang", f"sleep 1000 & echo $! > {pids}; sleep 1001")
    start = time.monotonic()
    with pytest.raises(Unfinished, match=r"took longer than 0\.5 s"):
        run_command([str(hang)], 0.5)
    assert time.monotonic() - start < 3
    time.sleep(0.1)
    state = Path(f"/proc/{pids.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize("stream", [1, 2])
def test_a_program_that_writes_without_end_is_ended(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "MOST_OUTPUT", 4 << 20)
    with pytest.raises(Unfinished, match="wrote more than 4 MiB"):
        run_command([str(script(tmp_path / "spam", f"cat /dev/zero >&{stream}"))], 20)


def test_a_program_that_ends_is_heard(tmp_path):
    done = run_command([str(script(tmp_path / "fine", "echo out; echo err >&2; exit 3"))], 20)
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(Unfinished, match="cannot be started: No such file"):
        run_command([str(tmp_path / "none")], 1)


@pytest.mark.parametrize("text", ["sleep 1000", "cat /dev/zero"])
def test_a_compiler_that_does_not_answer_is_refused_in_a_sentence(text, tmp_path, monkeypatch):
    monkeypatch.setattr(c_compile, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(command, "MOST_OUTPUT", 4 << 20)
    monkeypatch.setenv("CC", str(script(tmp_path / "cc", text)))
    with pytest.raises(codegen_c.CompileError, match=r"--version (took longer than 0\.5 s|wrote more than 4 MiB)"):
        c_compile.library_path("int one(void) { return 1; }")


SPAM = """
import os, sys
from ansor.measure import worker_server
from ansor.measure.jobs import Workbench
def do(self, job):
    for _ in range(300):
        os.write(2, b"x" * 99_999 + b"\\n")
    if job["op"] == "die":
        os.write(2, b"the last words\\n")
        os._exit(5)
    return {"error_no": 0}
Workbench.do = do
worker_server.main()
"""


def test_an_error_stream_costs_no_disk_and_keeps_its_last_words(tmp_path, monkeypatch):
    from ansor.measure import fresh_processes, workers

    start = subprocess.Popen
    monkeypatch.setenv("SPAM", "a server of its own")
    monkeypatch.setattr(
        fresh_processes.subprocess, "Popen",
        lambda words, **options: start([words[0], "-c", SPAM, words[-1]], **options),
    )  # fmt: skip
    workshop = workers.Workshop()
    worker = workers.Worker(fresh_processes.FreshProcesses(workshop))
    try:
        assert worker.call({"op": "spam"}, 20.0).data == {"error_no": 0}
        written = sum(f.stat().st_size for f in workshop.path.rglob("*") if f.is_file())
        assert written < 100_000
        reply = worker.call({"op": "die"}, 20.0)
        assert reply.failure == "died" and reply.message == "the worker died (exit code 5): the last words"
    finally:
        worker.kill()
        workshop.close()


LEAVE = """
import sys, time
from ansor.core.files.private_files import scratch_folder
held = scratch_folder("left")
print(held.name, flush=True)
time.sleep(1000)
"""


@pytest.mark.long
def test_the_folders_of_dead_runs_are_swept_and_no_others(tmp_path, monkeypatch):
    """85 folders were left after 52 kills."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runs = [
        subprocess.Popen([sys.executable, "-c", LEAVE], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    dead, alive = [Path(run.stdout.readline().strip()) for run in runs]  # type: ignore[union-attr]
    try:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        mine = scratch_folder("mine")
        foreign = tmp_path / "ansor-work-of-somebody-else"
        foreign.mkdir()
        assert dead.parent == tmp_path and sweep(tmp_path) == 0
        runs[0].send_signal(signal.SIGKILL)
        runs[0].wait()
        assert sweep(tmp_path) == 1
        assert not dead.exists() and alive.exists() and foreign.exists() and Path(mine.name).exists()
    finally:
        for run in runs:
            run.kill()
            run.wait()
    mine.cleanup()
    assert not Path(mine.name).exists() and sweep(tmp_path) == 1
