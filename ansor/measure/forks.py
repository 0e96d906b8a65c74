"""Workers that are forks of this process, so that they know what it knows: templates and backends as they are.

They answer in JSON over a socket, never in pickles.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..core.errors import MeasureError
from .channel import ChannelClosed, receive, send
from .workers import NEXT_STAGE, Child

Do = Callable[[dict[str, Any], Callable[[], None]], dict[str, Any]]
"""The answer to a job; calls its second argument when it goes on to the next stage."""


class Forks:
    """Starts forks that do `do`; one at a time, so that none inherits the channel of another."""

    def __init__(self, do: Do) -> None:
        self._do = do
        self._lock = threading.Lock()
        self._ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def __call__(self) -> Child:
        with self._lock:
            ours, theirs = socket.socketpair()
            try:
                pid = os.fork()
            except OSError as error:
                raise MeasureError(f"worker: a process cannot be forked: {error.strerror}") from error
            if pid == 0:
                try:
                    for sock in (ours, *self._ours):
                        sock.close()
                    _serve(theirs, self._do)
                finally:
                    os._exit(1)
            theirs.close()
            self._ours.add(ours)
            return Child(ForkedProcess(pid), ours)


def _serve(sock: socket.socket, do: Do) -> None:
    """The worker: do jobs until the channel closes.  Ctrl-C reaches the parent alone; an orphan ends by itself."""
    os.setsid()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(ChannelClosed):
        send(sock, {"ready": True})
        while True:
            job = receive(sock)
            signal.setitimer(signal.ITIMER_REAL, float(job["self_destruct"]))
            answer = do(job, lambda: send(sock, NEXT_STAGE))
            signal.setitimer(signal.ITIMER_REAL, 0)
            send(sock, answer)


class ForkedProcess:
    """A fork under the names of `subprocess.Popen` (see `Process`)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if done else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
            time.sleep(0.005)
        return code
