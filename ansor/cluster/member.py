"""This machine as part of a cluster: its processes live below a keeper (`keeper.py`), and end with this process.

Everything of a member lies in one folder that nobody else can enter, named after its keeper: a folder whose keeper is
dead is swept by the next member that starts, with what the keeper left running.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.errors import BackendError
from .engine import load, reachable, use_token
from .processes import end, start_of, tree_of

PLACE = Path("/tmp")
"""Short, for the engine has sockets in there, whose names may not be long."""
ENGINE, TEMPORARY = "ray", "tmp"
"""Folders in the folder of a member: the engine makes its own writable for everybody, which nobody can reach there."""
STOP_SECONDS = 30.0
_NAME = re.compile(r"ansor_fleet_(\d+)_(\d+)_\w+")


class Member:
    """The processes that make this machine the head (`head`) or a node of a cluster; they end with this process.

    `host` is the address to listen on for a head ("0.0.0.0": every one), the address of the tracker for a node.
    Raises BackendError when a port is taken, nobody answers, the token is wrong, or the versions do not go together.
    """

    def __init__(self, host: str, port: int, head: bool) -> None:
        use_token()
        sweep()
        self._keeper = self._launch()
        try:
            self._private = self._own_folder()
            place = {"folder": self._private, "engine": self._private / ENGINE, "temporary": self._private / TEMPORARY}
            self._say({"host": host, "port": port, "head": head, **{name: str(path) for name, path in place.items()}})
            load()
            said = self._answer()
            if "node_id" not in said:
                raise BackendError(str(said.get("refusal", f"fleet: its keeper ended, code {self._keeper.wait()}")))
        except BaseException:
            self.close()
            raise
        self.node_id = str(said["node_id"])
        self.address = str(said["address"]) if head else f"{reachable(host)}:{port}"

    def _launch(self) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        return subprocess.Popen(
            [sys.executable, "-m", "ansor.cluster.keeper"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True, env=env, text=True,
        )  # fmt: skip

    def _own_folder(self) -> Path:
        pid = self._keeper.pid
        return Path(tempfile.mkdtemp(prefix=f"ansor_fleet_{pid}_{start_of(pid)}_", dir=PLACE))

    def _say(self, message: dict[str, Any]) -> None:
        assert self._keeper.stdin is not None
        with suppress(BrokenPipeError):
            self._keeper.stdin.write(json.dumps(message) + "\n")
            self._keeper.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        """The next line of the keeper; nothing when it has ended."""
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        return dict(json.loads(line)) if line else {}

    @property
    def folder(self) -> str:
        """Where the engine has its files."""
        return str(self._private / ENGINE)

    def dead(self) -> str:
        """Which of the processes have ended; the empty text while all run."""
        if self._keeper.poll() is None:
            return ""
        return str(self._answer().get("ended", "the keeper"))

    def close(self) -> None:
        """End the processes and remove their files."""
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        with suppress(BrokenPipeError):
            self._keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(STOP_SECONDS)
        self._keeper.kill()
        self._keeper.wait()
        self._keeper.stdout.close()
        sweep()


def sweep() -> None:
    """End what dead keepers of this user left running, and remove their folders."""
    for folder in PLACE.glob("ansor_fleet_*"):
        found = _NAME.fullmatch(folder.name)
        with suppress(OSError):
            if found and folder.lstat().st_uid == os.geteuid() and start_of(int(found[1])) != found[2]:
                if start_of(int(found[1])) is None:
                    end(tree_of(int(found[1])), 0.0)
                shutil.rmtree(folder, ignore_errors=True)
