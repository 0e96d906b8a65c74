"""`python -m ansor.cluster.keeper`: the process that starts a machine's part of the engine, and ends it.

It leads a session of its own.  It reads one line of JSON, `{"host", "port", "head", "folder", "engine", "temporary"}`:
`engine` and `temporary` are folders in `folder`, for the engine and for what runs below it.  It answers with one line,
`{"node_id", "address"}` or `{"refusal": sentence}`.  When its input is closed, it ends everything that it started,
removes the folder, and ends; the kernel closes the input when the process that started the keeper is killed.  A line
`{"ended": what}` says that a part of the engine has ended before.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ..core.errors import BackendError
from .engine import LOOPBACK, in_one_sentence, load, loopback_kept, reachable
from .processes import end, tree_of

OBJECT_STORE_BYTES = 80_000_000
LOOK_SECONDS = 0.5
LEAVE_SECONDS = 1.0


def _start(host: str, port: int, head: bool, folder: str) -> Any:
    """The engine's processes.  Raises BackendError."""
    node, parameter = load("ray._private.node"), load("ray._private.parameter")
    address = f"{reachable(host)}:{port}"
    own = "127.0.0.1" if host in LOOPBACK else host if head and host != "0.0.0.0" else None
    place = {"gcs_server_port": port, "include_dashboard": False} if head else {"gcs_address": address}
    params = parameter.RayParams(
        **place, node_ip_address=own, num_cpus=0, num_gpus=0, object_store_memory=OBJECT_STORE_BYTES,
        min_worker_port=0, max_worker_port=0, include_log_monitor=False, no_monitor=True,
        temp_dir=folder,
    )  # fmt: skip
    with in_one_sentence("tracker" if head else f"server, joining {address}"), loopback_kept(host):
        return node.Node(params, head=head, shutdown_at_exit=False, spawn_reaper=False)


def _watch(node: Any) -> list[str]:
    """Wait until the input is closed, or parts of the engine have ended: which."""
    while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        ended = [str(kind) for kind, _ in node.dead_processes()]
        if ended:
            return ended
    return []


@contextmanager
def _answers() -> Iterator[TextIO]:
    """Standard output for our own lines; what the engine prints goes to the error stream."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        yield answers


def _clear(folder: Path) -> None:
    """End everything, the youngest too, and remove the files."""
    end(tree_of(os.getpid()), LEAVE_SECONDS)
    end(tree_of(os.getpid()), 0.0)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Keep a member until the input is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    given = json.loads(sys.stdin.readline())
    folder = Path(given["folder"])
    Path(given["temporary"]).mkdir(mode=0o700)
    os.environ["TMPDIR"] = given["temporary"]
    with _answers() as answers:

        def answer(**facts: Any) -> None:
            print(json.dumps(facts), file=answers, flush=True)

        try:
            node = _start(given["host"], given["port"], given["head"], given["engine"])
            own = f"{node.node_ip_address}:{given['port']}"
            answer(node_id=str(node.node_id), address=own)
            ended = _watch(node)
            if ended:
                answer(ended=", ".join(ended))
            else:
                node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
        except BackendError as error:
            answer(refusal=str(error))
        finally:
            _clear(folder)


if __name__ == "__main__":
    main()
