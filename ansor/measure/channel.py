"""Messages between the search and its workers, as JSON with a length in front, over a socket, never a pickle."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import time
from functools import lru_cache
from typing import Any

from te_lite.printing.dag_json import dag_to_json

from ..core.errors import MeasureError
from ..core.target.registry import backend_module
from ..core.tasks.measure_values import MeasureResult
from ..core.tasks.task import SearchTask

MAX_MESSAGE = 1 << 28
_HEAD = struct.Struct(">I")
NUMBER = struct.Struct(">i")
"""How the number of a process, and its exit code, are told on a socket of their own."""


class ChannelClosed(Exception):
    """The other side is gone."""


def _set_deadline(sock: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        sock.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


def packed(message: dict[str, Any]) -> bytes:
    """A message as it is sent."""
    data = json.dumps(message).encode()
    return _HEAD.pack(len(data)) + data


def send(sock: socket.socket, message: dict[str, Any], deadline: float | None = None) -> None:
    """Send one message.  Raises TimeoutError after `deadline` (monotonic seconds), ChannelClosed when nobody reads."""
    data = packed(message)
    _set_deadline(sock, deadline)
    try:
        sock.sendall(data)
    except TimeoutError:
        raise
    except OSError as error:
        raise ChannelClosed from error


def receive(sock: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Wait for one message.  Raises TimeoutError after `deadline`, ChannelClosed at the end of the stream."""
    (size,) = _HEAD.unpack(_exactly(sock, _HEAD.size, deadline))
    if size > MAX_MESSAGE:
        raise ChannelClosed
    message: dict[str, Any] = json.loads(_exactly(sock, size, deadline))
    return message


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        _set_deadline(sock, deadline)
        try:
            part = sock.recv(min(size - len(parts), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed from error
        if not part:
            raise ChannelClosed
        parts += part
    return bytes(parts)


# -------------------------------------------------------------------------------------------------------- what they say


@lru_cache(maxsize=8)
def task_payload(task: SearchTask) -> dict[str, Any]:
    """What every job of a task carries: the computation, the target and the backend module."""
    dag = dag_to_json(task.compute_dag)
    kind = task.target.kind.name
    digest = hashlib.sha256(f"{task.target.results} {json.dumps(dag)}".encode())
    for name, array in sorted(task.task_inputs.items()):
        digest.update(name.encode() + array.tobytes())
    return {
        "task": digest.hexdigest()[:24], "dag": dag, "kind": kind, "backend": backend_module(kind),
        "target": str(task.target), "precision": task.target.precision, "layout": int(task.layout_rewrite_option),
    }  # fmt: skip


def result_to_json(result: MeasureResult) -> list[Any]:
    """A result as a list."""
    return [
        list(result.costs), int(result.error_no), result.error_msg, result.all_cost, result.timestamp, result.device,
    ]  # fmt: skip


def result_from_json(data: Any) -> MeasureResult:
    """The result of `result_to_json`.  Raises MeasureError for anything else."""
    try:
        costs, error_no, message, seconds, timestamp, device = data
        return MeasureResult(
            tuple(float(c) for c in costs), int(error_no), str(message), float(seconds), int(timestamp), str(device)
        )
    except (TypeError, ValueError) as error:
        raise MeasureError(f"message: no result can be read from it, got {data!r:.80}") from error
