"""A worker: answers build and run jobs one after the other, until its channel closes.

It knows nothing of the search: a job carries the computation and the steps as JSON and the name of the backend
module.  A stage that fails answers with the error number of that stage.
"""

from __future__ import annotations

import signal
import socket
from contextlib import suppress
from pathlib import Path

from .channel import receive, send
from .jobs import JobFailure, Workbench


def serve(sock: socket.socket) -> None:
    """Announce readiness, then answer jobs until the channel closes."""
    _offer_to_die_first()
    bench = Workbench()
    send(sock, {"ready": True})
    while True:
        job = receive(sock)
        _prepare_to_die(float(job["self_destruct"]))
        try:
            answer = bench.do(job)
        except JobFailure as failure:
            answer = {"error_no": int(failure.error_no), "message": failure.message}
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(sock, answer)


def _offer_to_die_first() -> None:
    """When memory runs out, the kernel shall end this process and not the search."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _prepare_to_die(seconds: float) -> None:
    """Let the kernel end this process when nobody does."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
