"""`python -m ansor.exec.rpc_server --tracker=HOST:PORT --key=KEY`: lend the devices of this machine to a fleet.

Ends on Ctrl-C.  Exit codes: 0 stopped; 2 when the tracker or the devices cannot be had; 4 when the tracker refuses the
devices, because those of the key are of another model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from te_lite.errors import require

from ..cluster.engine import EXPOSE, split_address
from ..cluster.server import serve
from ..core.errors import AnsorError, BackendError


def _backend(text: str) -> tuple[str, str]:
    kind, _, module = text.partition("=")
    require(kind and module, BackendError, "--backend", "it is KIND=MODULE", got=text)
    return kind, module


def main(arguments: Sequence[str] | None = None) -> int:
    """Be a server; the exit code."""
    parser = argparse.ArgumentParser(prog="rpc_server", description="Lend the devices of this machine to a fleet.")
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT", help="where the tracker listens")
    parser.add_argument("--key", required=True, help="the name under which clients ask for these devices")
    what = "cuda, c, vta, or some of a kind, cuda:0,2; none to join without any (default: the GPUs, else the processor)"
    parser.add_argument("--devices", metavar="KIND[:NUMBERS]", help=what)
    more = "a Python module that serves a target kind here instead of the usual one; may be repeated"
    parser.add_argument("--backend", action="append", default=[], metavar="KIND=MODULE", help=more)
    parser.add_argument("--expose", action="store_true", help=EXPOSE)
    given = parser.parse_args(arguments)
    try:
        backends = dict(map(_backend, given.backend))
        serve(split_address(given.tracker), given.key, given.devices, backends, given.expose)
    except AnsorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
