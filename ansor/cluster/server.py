"""A machine of the fleet: join the cluster, start a host for each device, register them, and stay with them.

Every second the server asks its hosts whether they answer and tells the tracker which do.  A host that has died, or has
not answered for `SILENCE` seconds, is replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from te_lite import environment
from te_lite.errors import require

from ..core.device.backend import backend
from ..core.errors import BackendError, MeasureError
from ..core.target.registry import register_backend
from ..core.tasks.measure_values import DeviceInfo
from ..measure.devices import choose_devices, list_devices
from .engine import Connection, load, require_admittance, require_answer, require_exposed
from .host import DeviceHost
from .member import Member
from .register import NAME, PROTOCOL
from .tracker import stop_on_signals

BEAT_SECONDS = 1.0
SILENCE = 20.0
DROWSY = 3.0
HOST_CALLS = 4


def find_devices(wanted: str | None) -> list[DeviceInfo]:
    """The devices that `--devices` names: `cuda` (all of a kind), `cuda:0,2`, `none`; without it the GPUs, else `c`.

    Raises MeasureError for a number that is not there or devices of several models, the backend's error when a kind
    cannot be had here, or its programs are compiled where they run and that cannot be done.
    """
    if wanted == "none":
        return []
    found = _found(wanted)
    device = backend(found[0].kind)
    if device.host_files:
        device.check(found[0].kind)
    return found


def _found(wanted: str | None) -> list[DeviceInfo]:
    if wanted is None:
        try:
            return choose_devices("cuda", "all")
        except BackendError:
            return list_devices("c")
    kind, _, numbers = wanted.partition(":")
    ok = all(n.isdigit() for n in numbers.split(",")) if numbers else True
    require(ok, MeasureError, "--devices", "it is KIND or KIND:NUMBER,NUMBER", got=wanted)
    return choose_devices(kind, tuple([int(n) for n in numbers.split(",")]) if numbers else "all")


class _Host:
    """A device's host, which is started by `start`, as the server sees it."""

    def __init__(self, ray: Any, name: str, start: Callable[[], Any]) -> None:
        self.ray, self.name, self.start = ray, name, start
        self.actor: Any = None
        self._begin()

    def _begin(self) -> None:
        """A new actor; while the old one still has the name, the next round tries again."""
        self.heard = time.monotonic()
        with suppress(ValueError):
            self.actor = self.start()
        self._ping = self.actor.ping.remote()

    def awake(self) -> bool:
        """Whether it answered the question of last time; asks the next one."""
        done, _ = self.ray.wait([self._ping], timeout=0)
        silent = time.monotonic() - self.heard
        if not done and silent > SILENCE:
            self.ray.kill(self.actor)
            self._begin()
        if not done:
            return silent < DROWSY
        try:
            self.ray.get(self._ping)
        except self.ray.exceptions.RayError:
            self._begin()
            return False
        self.heard = time.monotonic()
        self._ping = self.actor.ping.remote()
        return True


class Server:
    """Joins the tracker's cluster and registers devices under a key.

    Raises BackendError when nobody answers or the versions do not go together, MeasureError when the key has devices of
    another model.
    """

    def __init__(
        self, tracker: tuple[str, int], key: str, devices: Sequence[DeviceInfo], backends: Mapping[str, str]
    ) -> None:
        load()
        require_answer(*tracker)
        require_admittance(*tracker)
        self.key = key
        self.member = Member(*tracker, head=False)
        try:
            self.connection = Connection(*tracker, folder=self.member.folder)
            self.address = self._own_address()
            self.name = f"{self.address}/{self.member.node_id[:8]}"
            self._tracker = self.connection.actor(NAME)
            self._check_protocol()
            self._hosts = [self._start_host(d, backends) for d in devices]
            self._devices = list(devices)
            self.enroll()
        except BaseException:
            self.member.close()
            raise

    def _own_address(self) -> str:
        """IP address and port of this machine's node."""
        for node in self.connection.ray.nodes():
            if node["NodeID"] == self.member.node_id:
                return f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        raise BackendError("server: the cluster does not know this machine")

    def _check_protocol(self) -> None:
        said = json.loads(self.connection.ray.get(self._tracker.hello.remote()))
        law = f"its protocol must be number {PROTOCOL}, install one release of ansor everywhere"
        require(said.get("protocol") == PROTOCOL, BackendError, "tracker", law, got=said.get("protocol"))

    def _start_host(self, device: DeviceInfo, backends: Mapping[str, str]) -> _Host:
        name = f"{self.name}/{device.kind}:{device.index}"
        facts = {
            "label": self._label(device), "kind": device.kind, "index": device.index, "backends": dict(backends),
            "threads": environment.OMP_NUM_THREADS.text or None,
        }  # fmt: skip
        start = partial(
            self.connection.start, DeviceHost, name, self.member.node_id, (json.dumps(facts),), calls=HOST_CALLS
        )
        return _Host(self.connection.ray, name, start)

    def _label(self, device: DeviceInfo) -> str:
        return f"{self.address} {device.label}"

    def enroll(self) -> None:
        """Tell the tracker what there is.  Raises MeasureError when it refuses."""
        listed = [
            {"name": h.name, "label": self._label(d), "kind": d.kind, "model": d.model}
            for h, d in zip(self._hosts, self._devices, strict=True)
        ]
        facts = {"server": self.name, "key": self.key, "address": self.address, "devices": listed}
        said = json.loads(self.connection.ray.get(self._tracker.enroll.remote(json.dumps(facts))))
        if "refusal" in said:
            raise MeasureError(f"server: the tracker refuses it: {said['refusal']}")

    def beat(self) -> None:
        """One round: ask the hosts, tell the tracker.  Raises BackendError when the cluster is gone."""
        dead = self.member.dead()
        require(not dead, BackendError, "server", "the engine's processes must run", ended=dead)
        awake = [h.name for h in self._hosts if h.awake()]
        ray = self.connection.ray
        try:
            if not ray.get(self._tracker.server_beat.remote(self.name, json.dumps(awake)), timeout=SILENCE):
                self.enroll()
        except ray.exceptions.RayError as error:
            raise BackendError("server: the tracker is gone") from error

    def close(self) -> None:
        """Leave: strike the devices out, end the hosts and this machine's part of the engine."""
        ray = self.connection.ray
        try:
            ray.get(self._tracker.leave.remote(self.name), timeout=2.0)
            ray.get([h.actor.close.remote() for h in self._hosts], timeout=2.0)
        except ray.exceptions.RayError:
            pass
        self.connection.close()
        self.member.close()


def serve(tracker: tuple[str, int], key: str, devices: str | None, backends: Mapping[str, str], exposed: bool) -> None:
    """Be a server until SIGINT or SIGTERM.

    Raises as `Server`, and BackendError for a tracker on another machine unless `exposed`.
    """
    require_exposed(tracker[0], exposed)
    for kind, module in backends.items():
        register_backend(kind, module)
    server = Server(tracker, key, find_devices(devices), backends)
    stop = stop_on_signals()
    try:
        print(f"INFO:RPCServer:bind to {server.address}", flush=True)
        for d in server._devices:
            print(f"INFO:RPCServer:{key}: {d.label}", flush=True)
        while not stop.wait(BEAT_SECONDS):
            server.beat()
    finally:
        server.close()
