"""The process that workers are forked from: it has imported what they need, once, and does nothing else.

`python -m ansor.measure.worker_server FD`: a message on the socket FD asks for a worker; it is the name of a folder for
the worker's temporary files, and brings three descriptors: the worker's channel, its error stream, and its status.  A
guard stands between this process and the worker.  It writes to the status the worker's number, then its exit code, and
keeps the number from being given to another process until the other end of the status says that it has read both, or is
gone: then it ends the worker, whatever that does.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .channel import NUMBER, ChannelClosed, send
from .worker import serve
from .workers import kill_group

DESCRIPTORS = 3
MAX_NAME = 1 << 16


@dataclass(frozen=True)
class Wanted:
    """What is asked for: a worker with this folder and these descriptors."""

    folder: str
    channel: int
    errors: int
    status: int

    def close(self) -> None:
        for descriptor in (self.channel, self.errors, self.status):
            os.close(descriptor)


def forked(control: socket.socket) -> Wanted | None:
    """Fork what is asked for until nobody asks any more; gives a worker its order, and this process None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are not waited for
    while True:
        name, descriptors, _, _ = socket.recv_fds(control, MAX_NAME, DESCRIPTORS)
        if not name:
            return None
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # a program that a worker leaves behind would hide the worker's death
        wanted = Wanted(name.decode(), *descriptors)
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            worker = os.fork()
            if worker == 0:
                os.setsid()
                _be_called("ansor-worker")
                return wanted
            _be_called("ansor-guard")
            _guard(worker, wanted)
        wanted.close()


def _be_called(name: str) -> None:
    """What lists of processes call this one, which has the command line of the one that it was forked from."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _guard(worker: int, wanted: Wanted) -> None:
    """Tell the number and the exit code of a worker; once that is known, let the worker go.  Ends the process."""
    try:
        os.close(wanted.channel)
        os.close(wanted.errors)
        with socket.socket(fileno=wanted.status) as status, suppress(OSError):
            status.sendall(NUMBER.pack(worker))
            heard = threading.Thread(target=_end_when_heard, args=(status, worker))
            heard.start()
            end = os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
            if end is not None:
                status.sendall(NUMBER.pack(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status))
            heard.join()
            os.waitpid(worker, os.WNOHANG)
    finally:
        os._exit(0)


def _end_when_heard(status: socket.socket, worker: int) -> None:
    """Wait until the other end has read all or is gone, and end the worker and what it started, if they are there."""
    with suppress(OSError):
        status.recv(1)
    kill_group(worker)


def main() -> None:
    """Fork workers until the socket that was inherited as file descriptor FD closes; a worker serves its channel."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        os.set_inheritable(control.fileno(), False)
        _be_called("ansor-workers")
        gc.freeze()
        with suppress(ChannelClosed):
            send(control, {"ready": True})
        wanted = forked(control)
    if wanted is None:
        return
    os.environ["TMPDIR"] = wanted.folder
    os.dup2(wanted.errors, sys.stderr.fileno())
    os.close(wanted.errors)
    os.close(wanted.status)
    with socket.socket(fileno=wanted.channel) as channel, suppress(ChannelClosed):
        serve(channel)


if __name__ == "__main__":
    main()
