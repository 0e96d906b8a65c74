"""Worker processes for trials: forks of this process, so that they know its templates and backends as they are.

Each does one trial at a time and answers in JSON over a socket, never in pickles: when it has built the program, and
when it is done.  The parent enforces the time limits: a worker that is late, or dies, costs one candidate and is forked
anew.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ansor.measure.channel import ChannelClosed, receive, send

from ..core.errors import MeasureError
from ..core.measure_values import MeasureErrorNo, MeasureResult
from .measure import failed

GRACE = 30.0
Work = Callable[[int, Callable[[], None]], MeasureResult]


@dataclass
class Running:
    """A trial under way: which one, since when, and until when its stage may last."""

    number: int
    start: float
    deadline: float
    error_no: MeasureErrorNo


class ForkedPool:
    """`n` workers that do `work(job, built)`; `limits` are the seconds of building and of running."""

    def __init__(self, n: int, work: Work, limits: tuple[float, float]) -> None:
        self.work = work
        self.limits = limits
        self._pids: dict[socket.socket, int] = {}
        self._n = n
        self._finalizer = weakref.finalize(self, _end_all, self._pids)

    def map(self, jobs: Sequence[int]) -> list[MeasureResult]:
        """The results of the jobs, in their order.  Raises MeasureError when no process can be forked."""
        results: dict[int, MeasureResult] = {}
        running: dict[socket.socket, Running] = {}
        waiting = list(enumerate(jobs))
        try:
            while waiting or running:
                while waiting and len(running) < self._n:
                    number, job = waiting.pop(0)
                    running[self._begin(job, running)] = self._running(number)
                for sock, result in self._answers(running):
                    results[running.pop(sock).number] = result
        except BaseException:
            self.close()
            raise
        return [results[k] for k in range(len(jobs))]

    def _running(self, number: int) -> Running:
        now = time.monotonic()
        return Running(number, now, now + self.limits[0], MeasureErrorNo.BUILD_TIMEOUT)

    def _begin(self, job: int, running: dict[socket.socket, Running]) -> socket.socket:
        """Give a job to an idle worker, a new one when there is none."""
        for sock in [s for s in self._pids if s not in running]:
            try:
                send(sock, {"job": job}, time.monotonic() + GRACE)
                return sock
            except (ChannelClosed, TimeoutError):
                self._drop(sock)
        sock = self._fork()
        send(sock, {"job": job}, time.monotonic() + GRACE)
        return sock

    def _answers(self, running: dict[socket.socket, Running]) -> list[tuple[socket.socket, MeasureResult]]:
        """Wait for a message or a deadline; the trials that are done."""
        now = time.monotonic()
        least = min(r.deadline for r in running.values())
        ready, _, _ = select.select(list(running), [], [], max(0.0, least - now))
        done = []
        for sock in ready:
            result = self._message(sock, running[sock])
            if result is not None:
                done.append((sock, result))
        now = time.monotonic()
        for sock, state in running.items():
            if sock not in ready and state.deadline <= now:
                self._drop(sock)
                limit = self.limits[0 if state.error_no == MeasureErrorNo.BUILD_TIMEOUT else 1]
                done.append((sock, _failed(state, state.error_no, f"no answer within {limit:g} s")))
        return done

    def _message(self, sock: socket.socket, state: Running) -> MeasureResult | None:
        """The result, or None when a worker says that it goes on to run."""
        try:
            answer = receive(sock, time.monotonic() + GRACE)
        except (ChannelClosed, TimeoutError):
            how = self._drop(sock, patience=1.0)
            running = state.error_no == MeasureErrorNo.RUN_TIMEOUT
            error_no = MeasureErrorNo.RUNTIME_DEVICE if running else MeasureErrorNo.COMPILE_HOST
            return _failed(state, error_no, f"the worker died ({how})")
        if "costs" not in answer:
            state.deadline, state.error_no = time.monotonic() + self.limits[1], MeasureErrorNo.RUN_TIMEOUT
            return None
        costs, error_no, message, seconds, timestamp = (answer[k] for k in RESULT_KEYS)
        return MeasureResult(tuple(costs), error_no, message, seconds, timestamp)

    def _fork(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:
            raise MeasureError(f"worker: a process cannot be forked: {error.strerror}") from error
        if pid == 0:
            try:
                ours.close()
                for sock in self._pids:
                    sock.close()
                _serve(theirs, self.work, sum(self.limits) + GRACE)
            finally:
                os._exit(1)
        theirs.close()
        self._pids[ours] = pid
        return ours

    def _drop(self, sock: socket.socket, patience: float = 0.0) -> str:
        """End a worker; how it ended."""
        pid = self._pids.pop(sock)
        sock.close()
        return _end(pid, patience)

    def close(self) -> None:
        """End all workers; the next `map` forks new ones."""
        _end_all(self._pids)


RESULT_KEYS = ("costs", "error_no", "message", "seconds", "timestamp")


def _failed(state: Running, error_no: MeasureErrorNo, message: str) -> MeasureResult:
    return failed(error_no, message, time.monotonic() - state.start, int(time.time()))


def _serve(sock: socket.socket, work: Work, self_destruct: float) -> None:
    """The worker: do jobs until the channel closes.  Ctrl-C reaches the parent alone; an orphan ends by itself."""
    os.setsid()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(ChannelClosed):
        while True:
            job = int(receive(sock)["job"])
            signal.setitimer(signal.ITIMER_REAL, self_destruct)
            r = work(job, lambda: send(sock, {"built": True}))
            answer: list[Any] = [list(r.costs), int(r.error_no), r.error_msg, r.all_cost, r.timestamp]
            signal.setitimer(signal.ITIMER_REAL, 0)
            send(sock, dict(zip(RESULT_KEYS, answer, strict=True)))


def _end(pid: int, patience: float = 0.0) -> str:
    """End a process that does not end by itself within `patience` seconds; how it ended."""
    deadline = time.monotonic() + patience
    done, status = os.waitpid(pid, os.WNOHANG)
    while done == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
        done, status = os.waitpid(pid, os.WNOHANG)
    if done == 0:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"


def _end_all(pids: dict[socket.socket, int]) -> None:
    while pids:
        sock, pid = pids.popitem()
        sock.close()
        _end(pid)
