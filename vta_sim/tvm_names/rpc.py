"""`tvm.rpc`: a session with the simulator, which is in this process; what is uploaded goes into a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from ansor.core.device.nd import DeviceId
from ansor.core.files.private_files import scratch_folder
from relay_lite.ir.errors import GraphError
from te_lite.errors import require

from ..network.library import VtaLibrary, load_library


class LocalSession:
    """The folder lives as long as the session."""

    def __init__(self) -> None:
        self._folder = scratch_folder("session")

    def upload(self, data: str, target: str | None = None) -> None:
        """Copy a file into the session, as `target` or under its own name.  Raises GraphError when there is none."""
        require(Path(data).is_file(), GraphError, "upload", "a file is needed", got=data)
        shutil.copyfile(data, self._place(target or Path(data).name))

    def load_module(self, path: str) -> VtaLibrary:
        """A library that was uploaded.  Raises GraphError for a file that is none."""
        return load_library(self._place(path))

    def ext_dev(self, index: int = 0) -> DeviceId:
        """The accelerator."""
        return DeviceId("ext_dev", index)

    def cpu(self, index: int = 0) -> DeviceId:
        """The processor."""
        return DeviceId("cpu", index)

    def _place(self, name: str) -> Path:
        require(Path(name).name == name, GraphError, "session", "a file name without folders is needed", got=name)
        return Path(self._folder.name) / name
