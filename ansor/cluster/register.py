"""The tracker's book: which devices there are under which key, who has one, who waits for one.

Plain data and no network: times are arguments, and whoever waits leaves a function to be called.  A server or a client
that has not been heard of for `patience` seconds is gone: its devices are struck out, what it had is free again.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from te_lite.errors import require

from ..core.errors import MeasureError

NAME = "tracker"
"""What the register is called in the cluster."""
PROTOCOL = 3
PATIENCE = 10.0
Answer = Callable[[dict[str, Any]], None]


@dataclass
class Device:
    """A device; `lease` is the number of the lease that has it, `rests` while its host does not answer."""

    name: str
    label: str
    kind: str
    model: str
    key: str
    server: str
    lease: int = 0
    client: str = ""
    rests: bool = False


@dataclass
class Server:
    """A machine's process that has registered devices; `seen` is when it was last heard of."""

    name: str
    key: str
    address: str
    seen: float
    devices: list[str] = field(default_factory=list)


@dataclass(order=True)
class Ticket:
    """Somebody who waits: high priorities first, then in the order of arrival."""

    order: tuple[int, int]
    client: str = field(compare=False)
    key: str = field(compare=False)
    patience: float = field(compare=False)
    answer: Answer = field(compare=False)


class Register:
    """The book.  Raises MeasureError where a server is refused."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._servers: dict[str, Server] = {}
        self._devices: dict[str, Device] = {}
        self._waiting: dict[str, list[Ticket]] = {}
        self._clients: dict[str, float] = {}
        self._without: dict[str, float] = {}
        self._numbers = itertools.count(1)

    # --------------------------------------------------------------------------------------------------- servers

    def enroll(self, said: dict[str, Any], now: float) -> None:
        """Take in a server and its devices: `{"server", "key", "address", "devices": [{"name", "label", "kind",
        "model"}]}`.

        Raises MeasureError for a device of another model than those that the key has, or of a name that another server
        has.
        """
        key, name, devices = said["key"], said["server"], said["devices"]
        models = [(d.kind, d.model) for d in self._devices.values() if d.key == key and d.server != name]
        models += [(d["kind"], d["model"]) for d in devices]
        law = "all devices under one key must be of one model, or their costs do not compare"
        for other in models:
            require(other == models[0], MeasureError, f"key {key!r}", law, there=models[0][1], new=other[1])
        taken = [d["name"] for d in devices if self._server_of(d["name"]) not in ("", name)]
        require(not taken, MeasureError, f"server {name}", "its devices belong to another server", devices=taken)
        self.leave(name)
        self._servers[name] = Server(name, key, said["address"], now, [d["name"] for d in devices])
        self._devices |= {d["name"]: Device(**d, key=key, server=name) for d in devices}
        self._serve(key)

    def _server_of(self, device: str) -> str:
        return self._devices[device].server if device in self._devices else ""

    def server_beat(self, server: str, awake: list[str], now: float) -> bool:
        """A server lives, and so do the hosts of the devices `awake`; False when it has to enroll anew."""
        if server not in self._servers:
            return False
        self._servers[server].seen = now
        for name in self._servers[server].devices:
            self._devices[name].rests = name not in awake
        self._serve(self._servers[server].key)
        return True

    def leave(self, server: str) -> None:
        """Strike a server and its devices out."""
        gone = self._servers.pop(server, None)
        for name in gone.devices if gone else ():
            del self._devices[name]

    # --------------------------------------------------------------------------------------------------- clients

    def ask(self, key: str, client: str, priority: int, patience: float, answer: Answer, now: float) -> None:
        """Wait for a device of a key.

        `answer` gets `{"device", "label", "kind", "lease"}`, or `{"none": reason}` when the key had no devices for
        `patience` seconds.
        """
        number = next(self._numbers)
        self._clients[client] = now
        heapq.heappush(self._waiting.setdefault(key, []), Ticket((-priority, number), client, key, patience, answer))
        self._serve(key)

    def give_back(self, lease: int, lost: bool = False) -> None:
        """A device is free again; one that was `lost` first after its server says that its host answers."""
        for device in self._devices.values():
            if device.lease == lease:
                device.lease = 0
                device.rests = device.rests or lost
                self._serve(device.key)

    def client_beat(self, client: str, now: float) -> dict[str, Any]:
        """A client lives; `{"totals": devices of each key, "leases": those that the client has}`."""
        self._clients[client] = now
        totals = Counter(d.key for d in self._devices.values())
        leases = [d.lease for d in self._devices.values() if d.lease and d.client == client]
        return {"totals": dict(totals), "leases": leases}

    def depart(self, client: str) -> None:
        """A client is gone: what it had is free, and it waits for nothing any more."""
        self._clients.pop(client, None)
        for key, tickets in self._waiting.items():
            left = [t for t in tickets if t.client == client]
            self._waiting[key] = [t for t in tickets if t.client != client]
            heapq.heapify(self._waiting[key])
            for ticket in left:
                ticket.answer({"none": "the client has left"})
        for device in self._devices.values():
            if device.lease and device.client == client:
                self.give_back(device.lease)

    # ------------------------------------------------------------------------------------------------- book-keeping

    def tidy(self, now: float) -> None:
        """Strike out who was not heard of for too long, and answer those whose key has no devices any more."""
        for server in [s.name for s in self._servers.values() if now - s.seen > self.patience]:
            self.leave(server)
        for client in [c for c, seen in self._clients.items() if now - seen > self.patience]:
            self.depart(client)
        for key, tickets in self._waiting.items():
            since = self._without.setdefault(key, now)
            if self._total(key):
                self._without.pop(key)
            for ticket in [t for t in tickets if key in self._without and now - since > t.patience]:
                tickets.remove(ticket)
                ticket.answer({"none": f"there was no device under the key {key!r} for {ticket.patience:g} s"})
            heapq.heapify(tickets)

    def _total(self, key: str) -> int:
        return sum(d.key == key for d in self._devices.values())

    def _free(self, key: str) -> list[Device]:
        return [d for d in self._devices.values() if d.key == key and not d.lease and not d.rests]

    def _serve(self, key: str) -> None:
        """Give free devices to those who wait; a client gets the one it had last, whose host knows its task."""
        waiting, free = self._waiting.get(key, []), self._free(key)
        while waiting and free:
            ticket = heapq.heappop(waiting)
            device = min(free, key=lambda d: (d.client != ticket.client, d.client != ""))
            free.remove(device)
            device.lease, device.client = next(self._numbers), ticket.client
            facts = {"device": device.name, "label": device.label, "kind": device.kind, "lease": device.lease}
            ticket.answer(facts)

    def summary(self) -> dict[str, Any]:
        """`{"servers": [{"address", "key"}], "queue": {key: {"total", "free", "pending"}}, "devices": [...]}`."""
        servers = sorted([(s.key, s.address) for s in self._servers.values()])
        keys = sorted({d.key for d in self._devices.values()} | {k for k, tickets in self._waiting.items() if tickets})
        return {
            "servers": [{"address": address, "key": key} for key, address in servers],
            "queue": {
                key: {
                    "total": self._total(key),
                    "free": sum(d.key == key and not d.lease for d in self._devices.values()),
                    "pending": len(self._waiting.get(key, [])),
                }
                for key in keys
            },
            "devices": [
                {"key": d.key, "label": d.label, "kind": d.kind, "model": d.model, "busy": d.lease > 0}
                for d in self._devices.values()
            ],
        }
