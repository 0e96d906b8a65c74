"""Workers that are forks of this process, so that they know what it knows: templates and backends as they are.

They answer in JSON over a socket, never in pickles.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..core.errors import MeasureError
from .channel import ChannelClosed, receive, send
from .workers import NEXT_STAGE, Child

Do = Callable[[dict[str, Any], Callable[[], None]], dict[str, Any]]
"""The answer to a job; calls its second argument when it goes on to the next stage."""


class Forks:
    """Starts forks that do `do`; what this process has open is open in none of them, but for the standard streams."""

    def __init__(self, do: Do) -> None:
        self._do = do

    def __call__(self) -> Child:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:
            raise MeasureError(f"worker: a process cannot be forked: {error.strerror}") from error
        if pid == 0:
            try:
                _close_all_but(theirs.fileno())
                _serve(theirs, self._do)
            finally:
                os._exit(1)
        theirs.close()
        return Child(ForkedProcess(pid), ours)


def _close_all_but(kept: int) -> None:
    """Close what was inherited, but `kept` and the standard streams: others wait for the end of those channels.

    Objects that own a descriptor may close it later, when another file could have its number: so each stays taken, and
    stands for nothing from now on.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(name) for name in os.listdir("/dev/fd")]:
        if descriptor > 2 and descriptor not in (kept, nothing):
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


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
