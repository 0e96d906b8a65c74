"""The fleet as a driver sees it: ask the tracker for a device, send its host messages, give it back.

A device is had for one candidate at a time, so several drivers share a fleet by priority and in turns.  Every second
the client tells the tracker that it lives; what a client has that died is free again some seconds later.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..core.errors import BackendError, MeasureError
from .engine import Connection
from .register import NAME

BEAT_SECONDS = 1.0
GLANCE_SECONDS = 0.2
SILENCE = 20.0
LEAVE_SECONDS = 5.0


class HostLost(Exception):
    """The host of a device, or its machine, is gone; says which."""


class ClientClosed(Exception):
    """The client was closed while something was waited for."""


@dataclass(frozen=True)
class Lease:
    """A device that is had: the name of its host, its label and target kind, the number of the lease and its begin."""

    device: str
    label: str
    kind: str
    number: int
    since: float


class Fleet:
    """A connection to the tracker at `host:port`; any number of threads may use it.

    Raises BackendError, in one sentence, when there is no tracker or the engine is not installed.
    """

    def __init__(self, host: str, port: int) -> None:
        self._connection = Connection(host, port)
        self._closed = threading.Event()
        self._at_rest = threading.Condition()
        self._inside = 0
        self._orphaned = False
        try:
            self.address = self._connection.address
            self.client = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
            self._tracker = self._connection.actor(NAME)
            self._hosts: dict[str, Any] = {}
            self._totals: dict[str, int] = {}
            self._held: tuple[float, set[int]] = (0.0, set())
            self._beat_once()
        except BaseException:
            self._connection.close()
            raise
        self._beating = threading.Thread(target=self._beat, name="ansor-fleet-beat", daemon=True)
        self._beating.start()
        atexit.register(self.close)

    # -------------------------------------------------------------------------------------------------- the tracker

    def total(self, key: str) -> int:
        """How many devices the key has, as of a second ago."""
        return self._totals.get(key, 0)

    def keys(self) -> list[str]:
        """The keys that have devices, as of a second ago."""
        return sorted(self._totals)

    def summary(self) -> dict[str, Any]:
        """See `Register.summary`."""
        found: dict[str, Any] = json.loads(self._of_tracker(self._tracker.summary.remote()))
        return found

    @contextmanager
    def lease(self, key: str, priority: int, patience: float) -> Iterator[Lease]:
        """Have a device of a key; waits for it.

        A HostLost that comes out of the block marks the device as lost.  Raises MeasureError when the key had no
        devices for `patience` seconds, ClientClosed.
        """
        with self._busy():
            facts = json.loads(self._of_tracker(self._tracker.ask.remote(key, self.client, priority, patience)))
            if "none" in facts:
                raise MeasureError(f"fleet: {facts['none']}")
            lease = Lease(facts["device"], facts["label"], facts["kind"], int(facts["lease"]), time.monotonic())
            lost = False
            try:
                yield lease
            except HostLost:
                lost = True
                raise
            finally:
                if self._connection.open:
                    self._tracker.give_back.remote(lease.number, lost)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Somebody has a device or waits for one: `close` leaves the cluster after them."""
        with self._at_rest:
            if self._closed.is_set():
                raise self._left()
            self._inside += 1
        try:
            yield
        finally:
            with self._at_rest:
                self._inside -= 1
                self._at_rest.notify_all()

    def _of_tracker(self, reference: Any, seconds: float = math.inf) -> Any:
        try:
            return self._wait(reference, seconds)
        except (self._connection.ray.exceptions.RayError, TimeoutError) as error:
            raise self._gone() from error

    def _gone(self) -> MeasureError:
        return MeasureError(f"fleet: the tracker at {self.address} is gone")

    def _left(self) -> Exception:
        """Why this client takes part no more."""
        return self._gone() if self._orphaned else ClientClosed()

    def _wait(self, reference: Any, seconds: float = math.inf, lease: Lease | None = None) -> Any:
        """The value of a call.

        Raises TimeoutError after `seconds` or when the lease has ended, for its machine is not heard of any more;
        ClientClosed soon after `close`; MeasureError without tracker.
        """
        ray = self._connection.ray
        end = time.monotonic() + seconds
        while not self._closed.is_set():
            done, _ = ray.wait([reference], timeout=GLANCE_SECONDS)
            if done:
                return ray.get(reference)
            asked, held = self._held
            if time.monotonic() > end or (lease and lease.since < asked and lease.number not in held):
                raise TimeoutError
        raise self._left()

    def _beat_once(self) -> None:
        now = time.monotonic()
        said = json.loads(self._of_tracker(self._tracker.client_beat.remote(self.client), SILENCE))
        self._totals, self._held = said["totals"], (now, set(said["leases"]))

    def _beat(self) -> None:
        """Tell the tracker that this client lives; without tracker, leave before the engine ends this process."""
        while not self._closed.wait(BEAT_SECONDS):
            try:
                self._beat_once()
            except ClientClosed:
                return
            except MeasureError:
                self._orphaned = True
                if self._stop():
                    self._connection.close()

    # ---------------------------------------------------------------------------------------------------- the hosts

    def exchange(self, lease: Lease, message: bytes, method: str = "measure") -> bytes:
        """Send a message to the host of a device and wait for the answer.  Raises HostLost, ClientClosed."""
        host = self._host(lease)
        try:
            answer: bytes = self._wait(getattr(host, method).remote(message), lease=lease)
        except ClientClosed:
            host.interrupt.remote(lease.number)
            raise
        except (self._connection.ray.exceptions.RayError, TimeoutError) as error:
            self._hosts.pop(lease.device, None)
            raise HostLost(lease.label) from error
        return answer

    def _host(self, lease: Lease) -> Any:
        """The host of a device.  Raises HostLost, ClientClosed, MeasureError without tracker."""
        found: Future[Any] = Future()
        if lease.device in self._hosts:
            found.set_result(self._hosts[lease.device])
        else:
            threading.Thread(target=self._look_up, args=(lease.device, found), daemon=True).start()
        while not self._closed.is_set():
            if wait([found], GLANCE_SECONDS).done:
                try:
                    self._hosts[lease.device] = found.result()
                except BackendError as error:
                    raise HostLost(lease.label) from error
                return self._hosts[lease.device]
        raise self._left()

    def _look_up(self, name: str, found: Future[Any]) -> None:
        """Find an actor; the engine sets itself no time limit, so this has a thread of its own."""
        try:
            found.set_result(self._connection.actor(name))
        except BackendError as error:
            found.set_exception(error)

    def close(self) -> None:
        """Interrupt what is under way, give everything back, and leave."""
        atexit.unregister(self.close)
        if self._stop():
            self._beating.join()
            ray = self._connection.ray
            with suppress(ray.exceptions.RayError):
                ray.get(self._tracker.depart.remote(self.client), timeout=LEAVE_SECONDS)
            self._connection.close()

    def _stop(self) -> bool:
        """Wake everybody who waits, and wait until they are out; False when that was done before."""
        with self._at_rest:
            if self._closed.is_set():
                return False
            self._closed.set()
            self._at_rest.wait_for(lambda: self._inside == 0, timeout=LEAVE_SECONDS)
            return True
