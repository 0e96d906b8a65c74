"""Messages between the search and its workers: JSON with a length in front, over a socket, never a pickle."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

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
