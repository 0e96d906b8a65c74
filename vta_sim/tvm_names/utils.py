"""`tvm.contrib.utils`: temporary folders."""

from __future__ import annotations

from pathlib import Path

from ansor.core.files.private_files import scratch_folder


class TempDirectory:
    """A folder that is gone when this object is."""

    def __init__(self) -> None:
        self._folder = scratch_folder("vta")

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return str(Path(self._folder.name) / name)


def tempdir() -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory()
