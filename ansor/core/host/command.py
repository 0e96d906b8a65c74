"""Other programs, run within limits: one that hangs, or writes without end, costs its caller no more than that."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ANSWER_SECONDS = 30.0
"""What a program has to say its version, or to translate a few addresses."""
WORK_SECONDS = 900.0
"""What a compiler has where nobody sets a limit."""
MOST_OUTPUT = 64 << 20
"""Bytes that a program may write to its two streams together."""


class Unfinished(Exception):
    """A program that did not start or did not come to its end; the text says why, without its name."""


@dataclass(frozen=True)
class Finished:
    """The exit code of a program, and what it wrote."""

    code: int
    stdout: str
    stderr: str


def run_command(command: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Finished:
    """Run a program to its end, without input.

    Raises Unfinished after `timeout` seconds, or `MOST_OUTPUT` bytes of output, with all its processes killed; and when
    it cannot be started.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
    except OSError as error:
        raise Unfinished(f"cannot be started: {error.strerror}") from error
    with process:
        deadline = time.monotonic() + timeout
        try:
            out, err = _read(process, deadline, timeout)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise Unfinished(f"took longer than {timeout:g} s") from error
        except BaseException:
            _kill(process)
            raise
    return Finished(code, out.decode(errors="replace"), err.decode(errors="replace"))


def _read(process: subprocess.Popen[bytes], deadline: float, timeout: float) -> tuple[bytes, bytes]:
    """What a process writes until it closes both streams."""
    assert process.stdout is not None and process.stderr is not None
    parts = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for fd in parts:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(max(0.0, left)) if left > 0 else []
            if not ready:
                raise subprocess.TimeoutExpired(process.args, timeout)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                parts[key.fd] += data
            if sum(map(len, parts.values())) > MOST_OUTPUT:
                raise Unfinished(f"wrote more than {MOST_OUTPUT >> 20} MiB")
    out, err = parts.values()
    return bytes(out), bytes(err)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started; it stays in the group of this one, so that they end together."""
    for pid in [*_descendants(process.pid), process.pid]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that they have."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *_descendants(child)]
    return found
