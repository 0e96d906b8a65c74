"""Workers that know nothing of this process: each is forked from a process that has only imported what workers need.

That process is what a new one would be: it is asked as long as the environment, the folder, the path of modules, the
cores, the priority and the limits are those that it was started with.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import MeasureError
from .channel import NUMBER, ChannelClosed, receive
from .workers import START_TIMEOUT, Child, LastWords, Workshop, last_words

KEPT = 2
"""Servers that are there at a time, those that were asked last."""


@dataclass(frozen=True)
class Surroundings:
    """What a process that is started now inherits, but the umask, which cannot be read without changing it.

    `parent` is the number of this process, `cores` those that this thread may use (none where no system tells them),
    `limits` the soft and the hard limit of each resource.
    """

    parent: int
    folder: str
    environment: tuple[tuple[str, str], ...]
    cores: frozenset[int]
    priority: int
    limits: tuple[tuple[int, int], ...]


def _surroundings() -> Surroundings:
    folder = os.getcwd()
    path = os.pathsep.join(p or folder for p in sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    resources = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]
    return Surroundings(
        parent=os.getpid(),
        folder=folder,
        environment=tuple(sorted(environment.items())),
        cores=frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()),
        priority=os.getpriority(os.PRIO_PROCESS, 0),
        limits=tuple(resource.getrlimit(number) for number in resources),
    )


class FreshProcesses:
    """Starts workers whose files are in the workshop; `__call__` raises MeasureError when that fails."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop

    def __call__(self) -> Child:
        try:
            scratch = self._workshop.new("worker_")
        except OSError as error:
            raise MeasureError(f"worker: no folder for its files can be made: {error}") from error
        surroundings = _surroundings()
        with _LOCK:
            server = _SERVERS.pop(surroundings, None) or WorkerServer(surroundings)
            child = server.fork(scratch)
            _SERVERS[surroundings] = server
            while len(_SERVERS) > KEPT:
                _SERVERS.pop(next(iter(_SERVERS))).close()
        return child


class WorkerServer:
    """The process that workers are forked from (worker_server.py); it ends with this object.

    Raises MeasureError when it does not start.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "ansor.measure.worker_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()], start_new_session=True, env=dict(surroundings.environment),
            )  # fmt: skip
        assert process.stderr is not None
        self._child = Child(process, ours, LastWords(process.stderr))
        self.close = weakref.finalize(self, _end, process, ours, surroundings.parent)
        try:
            receive(ours, time.monotonic() + START_TIMEOUT)
        except (ChannelClosed, TimeoutError) as error:
            raise self._failed("the process does not start") from error

    def fork(self, scratch: Path) -> Child:
        """A worker with this folder.  Raises MeasureError when there is none; this server is of no more use then."""
        ours, theirs = socket.socketpair()
        status, told = socket.socketpair()
        heard, errors = os.pipe()
        try:
            complaints = LastWords(os.fdopen(heard, "rb", buffering=0))
            with theirs, told:
                descriptors = [theirs.fileno(), errors, told.fileno()]
                socket.send_fds(self._child.socket, [str(scratch).encode()], descriptors)
            return Child(ServedProcess(status), ours, complaints, scratch)
        except (OSError, ChannelClosed) as error:
            ours.close()
            status.close()
            raise self._failed("no process can be forked") from error
        finally:
            os.close(errors)

    def _failed(self, what: str) -> MeasureError:
        words = last_words(self._child)
        self.close()
        return MeasureError(f"worker: {what}: {words}")


def _end(server: subprocess.Popen[bytes], control: socket.socket, parent: int) -> None:
    """End a server, unless this process is a fork of the one that started it; its workers live on."""
    control.close()
    if os.getpid() == parent:
        server.kill()
        server.wait()


class ServedProcess:
    """A worker that a server forked, under the names of `subprocess.Popen` (see `Process`).

    Its guard tells its number, then its exit code, on `status`.  Raises ChannelClosed and TimeoutError when there is no
    worker.
    """

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        status.settimeout(START_TIMEOUT)
        self.pid = self._told()
        self.returncode: int | None = None

    def _told(self) -> int:
        data = self._status.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            raise ChannelClosed
        number: int = NUMBER.unpack(data)[0]
        return number

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = self._told()
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0.0) from error
            except (ChannelClosed, OSError):
                self.returncode = -signal.SIGKILL  # who could tell how it ended is gone, too
            with self._status, suppress(OSError):
                self._status.settimeout(1.0)
                self._status.shutdown(socket.SHUT_WR)
                self._status.recv(1)  # until nothing of it is left
        return self.returncode


_LOCK = threading.Lock()
_SERVERS: dict[Surroundings, WorkerServer] = {}
