"""The engine under the fleet: Ray, which starts processes on other machines, calls them, and notices when they die.

This file and `keeper.py` know how Ray is joined and started; it is imported when somebody asks for a fleet.  A
tracker is the head of a Ray cluster, a server a node of it, everybody else a driver.  Messages are bytes, so Python's
patch releases may differ between machines; Ray itself refuses other minor releases, and other releases of Ray.

Ray runs what it is sent, so its authentication by token is switched on for everybody.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from te_lite.errors import require

from ..core.errors import BackendError
from ..core.host.hints import install
from .token import read_token, token_place

NAMESPACE = "ansor"
PROBE_SECONDS = 5.0
EXPOSE = "allow an address that other machines reach; the network between is not encrypted"
NO_CLUSTER = "11" * 28
LOOPBACK = ("127.0.0.1", "localhost")
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
    "RAY_gcs_server_request_timeout_seconds": "20",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
Engine = Any


def load(module: str = "ray") -> Engine:
    """Ray, or a module of it.  Raises BackendError, in one sentence, when it is not installed."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        law = f"is not installed: {install('cluster')}"
        raise BackendError(f"fleet: the package {error.name} {law}") from error


def use_token() -> None:
    """Let the engine of this process, and of those below it, ask for the token of the fleet and show it.

    Raises BackendError when there is none.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = read_token()
    raylet = load("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def require_exposed(host: str, exposed: bool) -> None:
    """Refuse an address of other machines, unless that was asked for; then warn of what it means."""
    if host in LOOPBACK:
        return
    law = "reaches beyond this machine, where anybody on the way can read the token and all else; allow it by --expose"
    require(exposed, BackendError, f"fleet: {host}", law)
    warning = "what goes over the network, the token too, is not encrypted: use a network of your own"
    print(f"WARNING: fleet: {warning} (docs/security.md)", file=sys.stderr, flush=True)


def reachable(host: str) -> str:
    """The address to call a tracker at that was named `host`: "0.0.0.0" and "localhost" are this machine."""
    return "127.0.0.1" if host in ("0.0.0.0", "localhost", "") else host


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` as two values.  Raises BackendError for anything else."""
    host, _, port = text.rpartition(":")
    ok = bool(host) and port.isdigit() and 0 < int(port) < 1 << 16
    require(ok, BackendError, "tracker", "its address is HOST:PORT", got=text)
    return host, int(port)


def require_answer(host: str, port: int) -> None:
    """Raise BackendError, in one sentence, when nobody listens there."""
    try:
        socket.create_connection((reachable(host), port), PROBE_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendError(f"fleet: no tracker answers at {reachable(host)}:{port} ({reason})") from error


def require_admittance(host: str, port: int) -> None:
    """Raise BackendError, in one sentence, when we have no token, or another one than the tracker."""
    use_token()
    law = f"refuses the token of {token_place()}; it must be that of the tracker"
    require(
        not _refused(f"{reachable(host)}:{port}"), BackendError, f"fleet: the tracker at {reachable(host)}:{port}", law
    )


def _refused(address: str) -> bool:
    """Whether a tracker refuses our token: asked with a cluster that does not exist, for that is answered at once."""
    try:
        load("ray._raylet").GcsClient(address=address, cluster_id=NO_CLUSTER).internal_kv_get(
            b"", timeout=PROBE_SECONDS
        )
    except load("ray.exceptions").RayError as error:
        return "InvalidAuthToken" in str(error)
    return False


@contextmanager
def loopback_kept(host: str) -> Iterator[None]:
    """Ray replaces 127.0.0.1 by the machine's outer address, unless it believes that there are no other machines."""
    constants = load("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = before and host not in LOOPBACK
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def in_one_sentence(subject: str) -> Iterator[None]:
    """What Ray raises while starting or joining, as a BackendError: the innermost reason, on one line."""
    try:
        yield
    except (RuntimeError, ConnectionError, ValueError, OSError, TimeoutError, load("ray.exceptions").RayError) as error:
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        said = " ".join(str(reason).split())
        if said.startswith("No node info found"):
            said = "no machine of the fleet is this one; join it by an rpc_server with --devices=none"
        raise BackendError(f"{subject}: {said}") from error


class Connection:
    """This process as a driver of the cluster at `host:port`, through the node whose files lie in `folder`, if given.

    A process has one connection; whoever opens it again shares it.  Raises BackendError when nobody answers, when no
    node of the cluster runs on this machine, when the versions do not go together, and when this process is the driver
    of another cluster.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _users: ClassVar[dict[str, int]] = {}

    def __init__(self, host: str, port: int, folder: str | None = None) -> None:
        self.address = f"{reachable(host)}:{port}"
        with Connection._lock:
            if not Connection._users.get(self.address):
                require_answer(host, port)
            self.ray = load()
            if not Connection._users.get(self.address):
                law = "this process is already connected to another Ray cluster"
                require(not self.ray.is_initialized(), BackendError, "fleet", law, wanted=self.address)
                require_admittance(host, port)
                with in_one_sentence(f"fleet, joining {self.address}"), loopback_kept(reachable(host)):
                    self.ray.init(
                        address=self.address, namespace=NAMESPACE, log_to_driver=False, _temp_dir=folder,
                        logging_level=logging.ERROR,
                    )  # fmt: skip
            Connection._users[self.address] = Connection._users.get(self.address, 0) + 1
        self.open = True

    def close(self) -> None:
        """Leave the cluster when nobody in this process uses it any more."""
        with Connection._lock:
            if self.open:
                self.open = False
                Connection._users[self.address] -= 1
                if not Connection._users[self.address]:
                    self.ray.shutdown()

    def actor(self, name: str) -> Any:
        """The handle of a named actor.  Raises BackendError when there is none."""
        try:
            return self.ray.get_actor(name, namespace=NAMESPACE)
        except ValueError as error:
            raise BackendError(f"fleet: {self.address} runs no {name}") from error

    def start(self, cls: type, name: str, node_id: str, arguments: tuple[Any, ...], calls: int) -> Any:
        """A named actor on a node; `calls` of its methods run at a time.  It ends with this process.

        Raises ValueError when there is one of this name.
        """
        near = load("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(node_id, soft=False)
        made = self.ray.remote(cls).options(
            name=name, num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=calls,
            scheduling_strategy=near,
        )  # fmt: skip
        return made.remote(*arguments)
