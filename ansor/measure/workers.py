"""Worker processes that can be killed: one job in flight each, the time limit enforced from outside.

A worker is a process in a session of its own: one that knows nothing of this process (fresh_processes.py), or a fork
of this one (forks.py).  It may hang with the interpreter lock held, crash, exit or be stopped: the parent waits for the
answer no longer than the limit, kills the whole process group and starts another.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from ..core.errors import MeasureError
from ..core.files.private_files import scratch_folder
from .channel import ChannelClosed, receive, send

START_TIMEOUT = 120.0
STARTS = 4
SELF_DESTRUCT = 30.0
T = TypeVar("T")


NEXT_STAGE = {"next_stage": True}
"""What a worker says when it goes on to the next stage of a job, which has a time limit of its own."""


@dataclass(frozen=True)
class Reply:
    """What became of a job: `data` when the worker answered, else `failure` is "timeout" or "died", in `stage`."""

    seconds: float
    data: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    message: str = ""
    stage: int = 0


class Process(Protocol):
    """A process that this one started, as `subprocess.Popen` knows it; `returncode` is that of the last `poll`."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Its exit code, minus the number of the signal that ended it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.  Raises subprocess.TimeoutExpired."""


class LastWords:
    """The end of what a process writes to its error stream, however much that is; the rest is let go."""

    KEPT = 4096

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._reader = threading.Thread(target=self._read, args=(stream,), name="ansor-complaints", daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream, suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), 1 << 16):
                self._kept = (self._kept + data)[-self.KEPT :]

    def forget(self) -> None:
        """A new job begins."""
        self._kept = b""

    def last_line(self) -> str:
        """The last line, at most 200 characters of it; waits a moment for the end of the stream."""
        self._reader.join(1.0)
        lines = self._kept.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


@dataclass(frozen=True)
class Child:
    """A process that was started, our end of its channel, and what it says on its error stream."""

    process: Process
    socket: socket.socket
    complaints: LastWords | None = None
    scratch: Path | None = None


Launch = Callable[[], Child]
"""Starts a process that says `{"ready": true}`, then answers jobs until its channel closes."""


class Workshop:
    """A temporary directory for built programs and worker files; it goes when the owner does."""

    def __init__(self) -> None:
        self._folder = scratch_folder("work")
        self.path = Path(self._folder.name)

    def new(self, prefix: str) -> Path:
        """A fresh directory."""
        return Path(tempfile.mkdtemp(dir=self.path, prefix=prefix))

    def close(self) -> None:
        self._folder.cleanup()


class Worker:
    """One worker process, started at the first call and again after each crash or timeout.

    `started` counts the processes: callers compare it to tell whether the one they prepared is still there.
    """

    def __init__(self, launch: Launch) -> None:
        self.started = 0
        self._launch = launch
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.process.pid if self._child is not None else None

    def ensure_started(self) -> None:
        """Start the process unless it runs.  Raises MeasureError when none comes up in `STARTS` attempts."""
        if self._child is not None and self._child.process.poll() is None:
            return
        for left in reversed(range(STARTS)):
            try:
                self._start()
                return
            except MeasureError:
                if left == 0:
                    raise

    def _start(self) -> None:
        self.kill()
        self._child = child = self._launch()
        self.started += 1
        try:
            receive(child.socket, time.monotonic() + START_TIMEOUT)
        except (ChannelClosed, TimeoutError) as error:
            message = last_words(child)
            self.kill()
            raise MeasureError(f"worker: the process does not start: {message}") from error
        except BaseException:
            self.kill()
            raise

    def call(self, job: dict[str, Any], *limits: float) -> Reply:
        """Do one job; a worker that fails is killed.  `limits` are the seconds of each of its stages.

        Raises MeasureError when no process can be started.
        """
        self.ensure_started()
        assert self._child is not None
        child, start, stage = self._child, time.monotonic(), 0
        deadline = start + limits[0]
        if child.complaints is not None:
            child.complaints.forget()
        try:
            send(child.socket, {**job, "self_destruct": sum(limits) + SELF_DESTRUCT}, deadline)
            while (data := receive(child.socket, deadline)) == NEXT_STAGE:
                stage += 1
                deadline = time.monotonic() + limits[stage]
            return Reply(time.monotonic() - start, data, stage=stage)
        except TimeoutError:
            return self._failed(start, stage, "timeout", f"no answer within {limits[stage]:g} s")
        except ChannelClosed:
            return self._failed(start, stage, "died", last_words(child))
        except BaseException:
            self.kill()
            raise

    def _failed(self, start: float, stage: int, failure: str, message: str) -> Reply:
        self.kill()
        return Reply(time.monotonic() - start, {}, failure, message, stage)

    def interrupt(self) -> None:
        """End the process from another thread; the `call` in progress answers that it died."""
        child = self._child
        if child is not None:
            _kill_group(child.process)

    def kill(self) -> None:
        """End the process and everything it started."""
        child, self._child = self._child, None
        if child is None:
            return
        child.socket.close()
        _kill_group(child.process)
        child.process.wait()
        if child.scratch is not None:
            shutil.rmtree(child.scratch, ignore_errors=True)


def last_words(child: Child) -> str:
    """How a process ended, and the last line it wrote to its error stream."""
    with suppress(subprocess.TimeoutExpired):
        child.process.wait(1.0)
    code = child.process.returncode
    how = "it closed its channel" if code is None else f"exit code {code}"
    if code is not None and code < 0:
        how = f"signal {-code}, {signal.strsignal(-code)}"
    words = child.complaints.last_line() if child.complaints is not None else ""
    return f"the worker died ({how}){words and f': {words}'}"


def kill_group(pid: int) -> None:
    """End the worker of this number, and what it started, as far as they are there."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _kill_group(process: Process) -> None:
    if process.returncode is None:
        kill_group(process.pid)


class WorkerPool:
    """Several workers behind one queue of jobs; who had the last job has the next one, so none starts without need."""

    def __init__(self, n: int, launch: Launch) -> None:
        self._workers = [Worker(launch) for _ in range(n)]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(n, thread_name_prefix="ansor-worker")
        self._open: set[Future[Any]] = set()
        self._closed = False
        self._finalizer = weakref.finalize(self, _end_all, self._workers)

    def start(self) -> None:
        """Start the processes that do not run yet, in this thread.  Raises MeasureError as `Worker` does."""
        for worker in self._workers:
            worker.ensure_started()

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def submit(self, job: dict[str, Any], limits: Sequence[float], then: Callable[[Reply], T]) -> Future[T]:
        """Queue a job, the future gives `then(reply)`; the first of its time limits starts when a worker takes it."""
        future = self._threads.submit(lambda: then(self._do(job, limits)))
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def _do(self, job: dict[str, Any], limits: Sequence[float]) -> Reply:
        worker = self._idle.get()
        try:
            if self._closed:
                return Reply(0.0, failure="died", message="the pool is closed")
            return worker.call(job, *limits)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Drop queued jobs and kill the workers."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._open:
            _interrupt_all(self._workers)
            wait(list(self._open), timeout=0.05)
        self._threads.shutdown(wait=True)
        _end_all(self._workers)


def _interrupt_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.interrupt()


def _end_all(workers: list[Worker]) -> None:
    _interrupt_all(workers)
    for worker in workers:
        worker.kill()
