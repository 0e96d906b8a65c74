"""A session with one device of a fleet: files go there, a network that was built here runs there.

    remote = ansor.request_remote("vta", "127.0.0.1", 9190)
    remote.upload("graphlib.tar")
    network = remote.load_module("graphlib.tar")["default"](remote.ext_dev(0))
    network.run(data=image)
    out = network.get_output(0).numpy()
    remote.close()

The device is the session's own until it is closed.
"""

from __future__ import annotations

import atexit
import io
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.timing import Timing

from ..core.device import nd
from ..core.device.nd import DeviceId
from ..core.errors import MeasureError
from .client import ClientClosed, Fleet, HostLost
from .message import Files, pack, unpack

Array = np.ndarray[Any, np.dtype[Any]]


class RemoteSession:
    """A device that is had, with a folder of files.  Its methods raise MeasureError, in one sentence, when the device
    is lost, refuses, or the session was closed."""

    def __init__(self, fleet: Fleet, key: str, priority: int, timeout: float) -> None:
        self.timeout = timeout
        self._fleet = fleet
        self._held = ExitStack()
        self._held.callback(fleet.close)
        try:
            self._lease = self._held.enter_context(fleet.lease(key, priority, timeout))
        except BaseException:
            self._held.close()
            raise
        self.device = self._lease.label
        atexit.register(self.close)

    def ask(self, op: str, files: Files | None = None, **more: Any) -> tuple[dict[str, Any], Files]:
        """One request to the device's machine, see `HostedSession.answer`."""
        message = pack({"op": op, "lease": self._lease.number, **more}, files)
        try:
            reply, made = unpack(self._fleet.exchange(self._lease, message, "session"))
        except HostLost as error:
            raise MeasureError(f"session: its device is lost, {error}") from error
        except ClientClosed as error:
            raise MeasureError("session: it is closed") from error
        require("refusal" not in reply, MeasureError, self.device, str(reply.get("refusal", "")))
        return reply, made

    def upload(self, data: str, target: str | None = None) -> None:
        """Copy a file of this machine into the session, as `target` or under its own name."""
        path = Path(data)
        require(path.is_file(), MeasureError, "upload", "a file is needed", got=data)
        self.ask("upload", {target or path.name: path.read_bytes()})

    def download(self, path: str) -> bytes:
        """The content of a file of the session."""
        return self.ask("download", name=path)[1][path]

    def remove(self, path: str) -> None:
        """Delete a file of the session."""
        self.ask("remove", name=path)

    def listdir(self) -> list[str]:
        """The names of the session's files."""
        return list(self.ask("list")[0]["names"])

    def load_module(self, path: str) -> RemoteLibrary:
        """A network that was uploaded."""
        require(path in self.listdir(), MeasureError, "session", "there is no such file", got=path)
        return RemoteLibrary(self, path)

    def cpu(self, index: int = 0) -> DeviceId:
        """The processor of the device's machine."""
        return DeviceId("cpu", index)

    def cuda(self, index: int = 0) -> DeviceId:
        """A GPU."""
        return DeviceId("cuda", index)

    def ext_dev(self, index: int = 0) -> DeviceId:
        """An accelerator."""
        return DeviceId("ext_dev", index)

    def close(self) -> None:
        """Give the device back; the files are removed."""
        atexit.unregister(self.close)
        self._held.close()

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()


class RemoteLibrary:
    """A network's file in a session; `library["default"](device)` is the network."""

    def __init__(self, session: RemoteSession, path: str) -> None:
        self.session, self.path = session, path

    def __getitem__(self, name: str) -> Callable[..., RemoteNetwork]:
        """Raises MeasureError for another name than "default"."""
        require(name == "default", MeasureError, "network", "its only module is 'default'", name=name)
        return lambda device=None: RemoteNetwork(self.session, self.path)


class RemoteNetwork:
    """A network that runs in a session, under the names of a graph executor; inputs stay here until it runs."""

    def __init__(self, session: RemoteSession, path: str) -> None:
        self.session, self.path = session, path
        self._inputs: Files = {}
        self._output: Array | None = None

    def set_input(self, key: str | None = None, value: Any = None, **inputs: Any) -> None:
        """Keep arrays for the inputs of these names."""
        given = inputs if key is None else {key: value, **inputs}
        for name, array in given.items():
            text = io.BytesIO()
            np.save(text, np.asarray(array.numpy() if hasattr(array, "numpy") else array), allow_pickle=False)
            self._inputs[f"{name}.npy"] = text.getvalue()

    def run(self, **inputs: Any) -> None:
        """Set `inputs` by name, if there are any, and run the network."""
        self.set_input(**inputs)
        _, made = self._ask(1, 0)
        self._output = np.load(io.BytesIO(made["output.npy"]), allow_pickle=False)

    def get_output(self, index: int = 0) -> Any:
        """The result of the last run, an `nd` array.  Raises MeasureError before it, and for another index than 0."""
        require(index == 0, MeasureError, "network", "there is one output, number 0", got=index)
        require(self._output is not None, MeasureError, "network", "there is no result before run()")
        return nd.array(self._output)

    def time_evaluator(
        self, func_name: str = "run", dev: Any = None, number: int = 10, repeat: int = 1
    ) -> Callable[[], Timing]:
        """A function without arguments that times `run` where it runs: `repeat` figures, each of `number` runs."""
        require(func_name == "run", MeasureError, "time_evaluator", "the function is 'run'", func_name=func_name)
        return lambda: Timing(tuple(self._ask(number, repeat)[0]["times"]))

    def _ask(self, number: int, repeat: int) -> tuple[dict[str, Any], Files]:
        return self.session.ask(
            "run", self._inputs, name=self.path, number=number, repeat=repeat, timeout=self.session.timeout
        )


def request_remote(
    device_key: str, host: str = "127.0.0.1", port: int = 9190, priority: int = 1, timeout: float = 60
) -> RemoteSession:
    """A session with a device that the tracker at `host:port` has under a key; waits until one is free.

    `timeout` bounds every run of a network, in seconds, and the wait for a key that has no devices.
    Raises BackendError when there is no tracker, MeasureError when the key has no devices.
    """
    return RemoteSession(Fleet(host, port), device_key, priority, timeout)
