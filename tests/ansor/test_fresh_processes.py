"""Workers are forked from a process that was started in their surroundings, and need it no more once they run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansor.core.errors import MeasureError
from ansor.measure import fresh_processes
from ansor.measure.fresh_processes import FreshProcesses, WorkerServer
from ansor.measure.workers import Worker, Workshop
from tests.ansor.test_interrupt import wait_until


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are started from now on."""
    started: list[subprocess.Popen[bytes]] = []

    def counted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*args, **options))
        return started[-1]

    start = subprocess.Popen
    monkeypatch.setattr(fresh_processes.subprocess, "Popen", counted)
    return started


def answers(worker: Worker) -> bool:
    return "unknown job" in worker.call({"op": "nothing"}, 20.0).data["message"]


def inherited(pid: int | None) -> list[str]:
    """What the programs that a process starts find open: the kinds of files behind its descriptors, in their order."""
    found = {}
    for place in Path(f"/proc/{pid}/fdinfo").iterdir():
        flags = next(line.split()[1] for line in place.read_text().splitlines() if line.startswith("flags:"))
        if not int(flags, 8) & os.O_CLOEXEC:
            found[int(place.name)] = os.readlink(f"/proc/{pid}/fd/{place.name}").partition(":")[0]
    return [found[number] for number in sorted(found)]


@pytest.mark.long
def test_workers_share_a_server_until_it_dies(
    servers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = Workshop()
    workers = [Worker(FreshProcesses(workshop)) for _ in range(3)]
    try:
        monkeypatch.setenv("SURROUNDINGS", "a server of its own")
        assert answers(workers[0]) and answers(workers[1]) and len(servers) == 1
        assert len({workers[0].pid, workers[1].pid, servers[0].pid}) == 3
        assert os.getsid(workers[0].pid or 0) == workers[0].pid != os.getsid(servers[0].pid)
        assert inherited(workers[0].pid) == ["/dev/null", "/dev/null", "pipe"]
        servers[0].send_signal(signal.SIGKILL)
        servers[0].wait()
        first = workers[0].pid
        assert answers(workers[2]) and len(servers) == 2
        assert answers(workers[0]) and workers[0].pid == first
        os.kill(workers[0].pid or 0, signal.SIGSTOP)
        assert workers[0].call({"op": "nothing"}, 0.1).failure == "timeout"
        assert answers(workers[0]) and len(servers) == 2
    finally:
        for worker in workers:
            worker.kill()
        workshop.close()


def test_a_server_that_does_not_start_says_why() -> None:
    surroundings = fresh_processes._surroundings()
    environment = {**dict(surroundings.environment), "PYTHONPATH": "", "PYTHONHOME": "/nowhere"}
    with pytest.raises(MeasureError, match="worker: the process does not start: the worker died"):
        WorkerServer(replace(surroundings, environment=tuple(environment.items())))


READY = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as control:
    control.sendall(bytes([0, 0, 0, 2]) + b"{}")
    control.recv(1)
"""


def test_a_workshop_that_is_gone_costs_no_server_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt left two descriptors and a thread that read one of them for ever."""

    def started(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-I", "-S", "-c", READY, words[-1]], **options)

    start, surroundings, workshop = subprocess.Popen, fresh_processes._surroundings(), Workshop()
    monkeypatch.setattr(fresh_processes.subprocess, "Popen", started)
    server = WorkerServer(surroundings)
    monkeypatch.setattr(fresh_processes, "_SERVERS", {surroundings: server})
    workshop.close()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    try:
        for _ in range(3):
            with pytest.raises(MeasureError, match=r"worker: no folder for its files can be made: .*No such file"):
                FreshProcesses(workshop)()
        assert list(fresh_processes._SERVERS.values()) == [server]
        assert len(os.listdir("/proc/self/fd")) <= files and threading.active_count() <= threads
    finally:
        server.close()


def test_other_cores_another_priority_and_other_limits_are_other_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of a process that was pinned after its first search ran on all of the cores that it had before."""
    seen = {fresh_processes._surroundings()}
    assert fresh_processes._surroundings() in seen
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(1000)})
    seen.add(fresh_processes._surroundings())
    monkeypatch.setattr(os, "getpriority", lambda which, who: 21)
    seen.add(fresh_processes._surroundings())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        seen.add(fresh_processes._surroundings())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(seen) == 4


KEEPER = """
import os, signal, time
from ansor.measure.fresh_processes import FreshProcesses
from ansor.measure.workers import Worker, Workshop
worker = Worker(FreshProcesses(Workshop()))
worker.ensure_started()
os.kill(worker.pid, signal.SIGSTOP)
print(worker.pid, flush=True)
time.sleep(100)
"""


@pytest.mark.long
def test_a_worker_ends_with_the_process_that_started_it_whatever_it_does(tmp_path: Path) -> None:
    """Even one that is stopped, which hears of nothing."""
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", KEEPER], env=env, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        pid = int(keeper.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        keeper.kill()
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10)
