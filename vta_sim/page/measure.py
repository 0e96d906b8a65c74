"""`autotvm.measure`: sessions on boards, of which there are none."""

from __future__ import annotations

from typing import NoReturn

from ansor.errors import BackendError


def request_remote(device_key: str, host: str = "0.0.0.0", port: int = 9190, timeout: float = 60) -> NoReturn:
    """Raise BackendError: the simulator needs no session, `rpc.LocalSession()` is what it has."""
    raise BackendError(f"request_remote: there is no board {device_key!r} here, use rpc.LocalSession() for simulation")
