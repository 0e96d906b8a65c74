"""Worker processes that can be killed: one job in flight each, the time limit enforced from outside.

A worker is a fresh Python process in a session of its own.  It may hang with the interpreter lock held, crash, exit or
be stopped: the parent waits for the answer no longer than the limit, kills the whole process group and starts another.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import MeasureError
from .channel import ChannelClosed, receive, send

START_TIMEOUT = 120.0
STARTS = 4
SELF_DESTRUCT = 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """What became of a job: `data` when the worker answered, else `failure` is "timeout" or "died"."""

    seconds: float
    data: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    message: str = ""


class Workshop:
    """A temporary directory for built programs and worker files; it goes when the owner does."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ansor_"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, str(self.path), ignore_errors=True)

    def new(self, prefix: str) -> Path:
        """A fresh directory."""
        return Path(tempfile.mkdtemp(dir=self.path, prefix=prefix))

    def close(self) -> None:
        self._finalizer()


class Worker:
    """One worker process, started at the first call and again after each crash or timeout.

    `started` counts the processes: callers compare it to tell whether the one they prepared is still there.
    """

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.started = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._complaints = Path()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ensure_started(self) -> None:
        """Start the process unless it runs.  Raises MeasureError when none comes up in `STARTS` attempts."""
        if self._process is not None and self._process.poll() is None:
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
        ours, theirs = socket.socketpair()
        scratch = self.workshop.new("worker_")
        self._complaints = scratch / "stderr"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path), "TMPDIR": str(scratch)}
        with theirs, open(self._complaints, "ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ansor.measure.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints,
                pass_fds=[theirs.fileno()], start_new_session=True, env=env,
            )  # fmt: skip
        self._socket = ours
        self.started += 1
        try:
            receive(ours, time.monotonic() + START_TIMEOUT)
        except (ChannelClosed, TimeoutError) as error:
            message = self._last_words()
            self.kill()
            raise MeasureError(f"worker: the process does not start: {message}") from error
        except BaseException:
            self.kill()
            raise

    def call(self, job: dict[str, Any], timeout: float) -> Reply:
        """Do one job, in `timeout` seconds at most; a worker that fails is killed.

        Raises MeasureError when no process can be started.
        """
        self.ensure_started()
        assert self._socket is not None
        start = time.monotonic()
        deadline = start + timeout
        try:
            send(self._socket, {**job, "self_destruct": timeout + SELF_DESTRUCT}, deadline)
            return Reply(data=receive(self._socket, deadline), seconds=time.monotonic() - start)
        except TimeoutError:
            self.kill()
            return Reply(time.monotonic() - start, failure="timeout", message=f"no answer within {timeout:g} s")
        except ChannelClosed:
            message = self._last_words()
            self.kill()
            return Reply(time.monotonic() - start, failure="died", message=message)
        except BaseException:
            self.kill()
            raise

    def _last_words(self) -> str:
        """How the process ended, and the last line it wrote to its error stream."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        how = "it closed its channel" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {-code}, {signal.strsignal(-code)}"
        words = ""
        with suppress(OSError), open(self._complaints, "rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - 4096))
            lines = f.read().decode(errors="replace").strip().splitlines()
            words = f": {lines[-1][:200]}" if lines else ""
        return f"the worker died ({how}){words}"

    def interrupt(self) -> None:
        """End the process from another thread; the `call` in progress answers that it died."""
        process = self._process
        if process is not None:
            _kill_group(process)

    def kill(self) -> None:
        """End the process and everything it started."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is None:
            return
        _kill_group(process)
        process.wait()
        shutil.rmtree(self._complaints.parent, ignore_errors=True)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class WorkerPool:
    """Several workers behind one queue of jobs."""

    def __init__(self, n: int, workshop: Workshop) -> None:
        self._workers = [Worker(workshop) for _ in range(n)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(n, thread_name_prefix="ansor-worker")
        self._open: set[Future[Any]] = set()
        self._closed = False
        self._finalizer = weakref.finalize(self, _interrupt_all, self._workers)

    def submit(self, job: dict[str, Any], timeout: float, then: Callable[[Reply], T]) -> Future[T]:
        """Queue a job, the future gives `then(reply)`; its time limit starts when a worker takes it."""
        future = self._threads.submit(lambda: then(self._do(job, timeout)))
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def _do(self, job: dict[str, Any], timeout: float) -> Reply:
        worker = self._idle.get()
        try:
            if self._closed:
                return Reply(0.0, failure="died", message="the pool is closed")
            return worker.call(job, timeout)
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
        for worker in self._workers:
            worker.kill()


def _interrupt_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.interrupt()
