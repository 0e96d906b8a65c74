"""`python -m ansor.exec.rpc_tracker --host=127.0.0.1 --port=9190`: where the machines of a fleet register.

Ends on Ctrl-C.  Exit codes: 0 stopped; 2 when the port cannot be had or the extra `[cluster]` is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..cluster.engine import EXPOSE
from ..cluster.tracker import track
from ..core.errors import AnsorError

PORT = 9190


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the tracker; the exit code."""
    parser = argparse.ArgumentParser(prog="rpc_tracker", description="Where the machines of a fleet register.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 for all (with --expose)")
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}")
    parser.add_argument("--expose", action="store_true", help=EXPOSE)
    given = parser.parse_args(arguments)
    try:
        track(given.host, given.port, given.expose)
    except AnsorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
