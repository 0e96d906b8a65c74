"""What a remote session has on the device's machine: a folder of files, and networks that run in a worker process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansor.measure.fresh_processes import FreshProcesses
from ansor.measure.workers import Worker, Workshop
from te_lite.errors import require

from ..core.errors import MeasureError
from ..core.target.registry import backend_module
from .message import Files
from .request import part

Answer = tuple[dict[str, Any], Files]


class HostedSession:
    """The files of one session at a time, on device `index` of target `kind`.  Raises MeasureError for what is asked
    wrongly."""

    def __init__(self, workshop: Workshop, kind: str, index: int) -> None:
        self.workshop = workshop
        self.kind, self.index = kind, index
        self._owner = 0
        self._folder = Path()
        self._worker = Worker(FreshProcesses(workshop))

    def answer(self, header: dict[str, Any], files: Files) -> Answer:
        """What a session asks for: `{"lease", "op": "upload" | "download" | "remove" | "list" | "run", ...}`."""
        lease, op = part(header, "lease", int), part(header, "op", str)
        if lease != self._owner:
            self.clear()
            self._owner, self._folder = lease, self.workshop.new("session_")
        match op:
            case "upload":
                for name, data in files.items():
                    self._path(name).write_bytes(data)
                return {}, {}
            case "download":
                name = part(header, "name", str)
                return {}, {name: self._there(name).read_bytes()}
            case "remove":
                self._there(part(header, "name", str)).unlink()
                return {}, {}
            case "list":
                return {"names": sorted(p.name for p in self._folder.iterdir())}, {}
            case "run":
                return self._run(header, files)
        raise MeasureError(f"session: unknown request {op!r}")

    def _run(self, header: dict[str, Any], files: Files) -> Answer:
        """Run the network in file `name`: the inputs are files NAME.npy, its output is `output.npy`."""
        network, timeout = self._there(part(header, "name", str)), part(header, "timeout", float)
        number, repeat = part(header, "number", int), part(header, "repeat", int)
        folder = self.workshop.new("network_")
        for name, data in files.items():
            (folder / _plain(name)).write_bytes(data)
        job = {
            "op": "network", "kind": self.kind, "backend": backend_module(self.kind), "device": self.index,
            "file": str(network), "inputs": str(folder), "number": number, "repeat": repeat,
        }  # fmt: skip
        reply = self._worker.call(job, timeout)
        said = reply.message or str(reply.data.get("message", ""))
        output = folder / "output.npy"
        made = {"output.npy": output.read_bytes()} if output.exists() else {}
        shutil.rmtree(folder, ignore_errors=True)
        require(not said, MeasureError, "network", f"it does not run: {said}")
        return {"times": reply.data["times"]}, made

    def _path(self, name: str) -> Path:
        return self._folder / _plain(name)

    def _there(self, name: str) -> Path:
        path = self._path(name)
        require(path.is_file(), MeasureError, "session", "there is no such file", got=name)
        return path

    def interrupt(self) -> None:
        """End what runs, from another thread."""
        self._worker.interrupt()

    def clear(self) -> None:
        """End the session: nobody's files are left."""
        if self._owner:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._worker.kill()
            self._owner = 0


def _plain(name: str) -> str:
    ok = name not in ("", ".", "..") and Path(name).name == name
    require(ok, MeasureError, "session", "a file name without folders is needed", got=name)
    return name
