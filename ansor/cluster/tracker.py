"""The tracker: the register as an actor of the cluster's head, and the process that keeps it there."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
import time
from typing import Any

from te_lite.errors import require

from ..core.errors import BackendError, MeasureError
from .engine import Connection, load, require_exposed, split_address
from .member import Member
from .register import NAME, PROTOCOL, Register
from .token import ensure_token, token_place

CALLS = 10_000
TIDY_SECONDS = 1.0
logger = logging.getLogger("RPCTracker")


class TrackerActor:
    """The register on the network; what goes in and out is JSON.  One thread serves everybody, in turns."""

    def __init__(self) -> None:
        self._register = Register()
        self._tidying: asyncio.Task[None] | None = None

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            self._register.tidy(time.monotonic())

    async def hello(self) -> str:
        """What the tracker is: `{"protocol"}`."""
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().create_task(self._tidy())
        return json.dumps({"protocol": PROTOCOL})

    async def enroll(self, facts: str) -> str:
        """`Register.enroll`; gives `{}`, or `{"refusal": sentence}`."""
        try:
            self._register.enroll(json.loads(facts), time.monotonic())
        except MeasureError as error:
            return json.dumps({"refusal": str(error)})
        return json.dumps({})

    async def server_beat(self, server: str, awake: str) -> bool:
        """`Register.server_beat`."""
        return self._register.server_beat(server, json.loads(awake), time.monotonic())

    async def leave(self, server: str) -> None:
        """`Register.leave`."""
        self._register.leave(server)

    async def ask(self, key: str, client: str, priority: int, patience: float) -> str:
        """Wait for a device; the answer is that of `Register.ask`."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._register.ask(key, client, priority, patience, answer.set_result, time.monotonic())
        return json.dumps(await answer)

    async def give_back(self, lease: int, lost: bool) -> None:
        """`Register.give_back`."""
        self._register.give_back(lease, lost)

    async def client_beat(self, client: str) -> str:
        """`Register.client_beat`, as JSON."""
        return json.dumps(self._register.client_beat(client, time.monotonic()))

    async def depart(self, client: str) -> None:
        """`Register.depart`."""
        self._register.depart(client)

    async def summary(self) -> str:
        """`Register.summary`."""
        return json.dumps(self._register.summary())


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set, to be called after the engine has been started."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def track(host: str, port: int, exposed: bool) -> None:
    """Be the tracker until SIGINT or SIGTERM; makes the token of the fleet if there is none.

    Raises BackendError when the port is taken, and for an address of other machines unless `exposed`.
    """
    load()
    require_exposed(host, exposed)
    ensure_token()
    _require_free(host, port)
    member = Member(host, port, head=True)
    try:
        connection = Connection(*split_address(member.address), folder=member.folder)
        actor = connection.start(TrackerActor, NAME, member.node_id, (), calls=CALLS)
        connection.ray.get(actor.hello.remote())
        stop = stop_on_signals()
        print(f"INFO:RPCTracker:token in {token_place()}", flush=True)
        print(f"INFO:RPCTracker:bind to {host}:{port}", flush=True)
        while not stop.wait(1.0):
            dead = member.dead()
            require(not dead, BackendError, "tracker", "the engine's processes must run", ended=dead)
        connection.close()
    finally:
        member.close()


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BackendError(f"tracker: {host}:{port} cannot be had ({error.strerror})") from error
