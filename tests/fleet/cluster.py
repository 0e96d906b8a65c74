"""A fleet on this machine, from the programs that people start: a tracker and servers, each a process of its own."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 120.0
# a background job is started with Ctrl-C ignored, and its children inherit that
HEED_CTRL_C = "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
STACKS = "import faulthandler; faulthandler.register(signal.SIGUSR1); "
RUN = HEED_CTRL_C + STACKS + "sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Program:
    """A program of the fleet; its output goes to a pipe, its processes all carry `mark` in their environment."""

    def __init__(self, module: str, *arguments: str, mark: str, env: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLEET_TEST": mark, **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, f"ansor.exec.{module}", *arguments], cwd=ROOT, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.printed = ""

    def wait_for(self, text: str) -> None:
        """Read until the program prints `text`."""
        assert self.process.stdout is not None
        end = time.monotonic() + START_SECONDS
        while text not in self.printed:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            assert data, f"no {text!r} in:\n{self.printed}"
            self.printed += data.decode(errors="replace")

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the end; the exit code.  Fails with the stacks of one that does not end."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        try:
            said, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            self.process.kill()
            said, _ = self.process.communicate()
            raise AssertionError(f"signal {number} does not end it:\n{self.printed}{said.decode()}") from None
        self.printed += said.decode(errors="replace")
        return self.process.returncode


class Cluster:
    """A tracker with servers."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.port = free_port()
        self.tracker = Program("rpc_tracker", f"--port={self.port}", mark=mark)
        self.servers: list[Program] = []
        self.tracker.wait_for(f"INFO:RPCTracker:bind to 127.0.0.1:{self.port}\n")

    def begin_server(self, key: str, devices: str, env: Mapping[str, str] | None = None, *more: str) -> Program:
        """Start a server and do not wait for it."""
        tracker = f"--tracker=127.0.0.1:{self.port}"
        made = Program("rpc_server", tracker, f"--key={key}", f"--devices={devices}", *more, mark=self.mark, env=env)
        self.servers.append(made)
        return made

    def query(self) -> str:
        """What the query tool prints."""
        tool = Program("query_rpc_tracker", f"--port={self.port}", mark=self.mark)
        assert tool.process.stdout is not None
        printed = tool.process.stdout.read().decode()
        assert tool.process.wait(60) == 0, printed
        return printed

    def close(self) -> None:
        """Ctrl-C for everybody, servers first."""
        for server in self.servers:
            if server.process.poll() is None:
                server.stop()
        if self.tracker.process.poll() is None:
            self.tracker.stop()

    def left(self) -> list[str]:
        """The processes of this fleet that still run."""
        return marked(self.mark)


def marked(mark: str) -> list[str]:
    """`PID NAME COMMAND` of every process that was started with this mark in its environment."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                words = (place / "environ").read_bytes().split(b"\0")
                if f"FLEET_TEST={mark}".encode() in words:
                    name = (place / "comm").read_text().strip()
                    command = (place / "cmdline").read_bytes().replace(bytes(1), b" ")[:120]
                    found.append(f"{place.name} {name} {command!r}")
    return found


def wait_until_none(mark: str, seconds: float) -> list[str]:
    """What is left of a fleet after at most `seconds`."""
    end = time.monotonic() + seconds
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return marked(mark)
