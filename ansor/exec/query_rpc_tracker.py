"""`python -m ansor.exec.query_rpc_tracker --host=127.0.0.1 --port=9190`: what is registered, what is free, who waits.

Without options, TVM_TRACKER_HOST and TVM_TRACKER_PORT say where the tracker is.  Runs on any machine of the fleet.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from te_lite import environment

from ..cluster.client import Fleet
from ..cluster.table import report
from ..core.errors import AnsorError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; the exit code."""
    parser = argparse.ArgumentParser(prog="query_rpc_tracker", description="What the machines of a fleet do.")
    parser.add_argument("--host", default=environment.TVM_TRACKER_HOST.text)
    parser.add_argument("--port", type=int, default=environment.TVM_TRACKER_PORT.text)
    given = parser.parse_args(arguments)
    try:
        fleet = Fleet(given.host, given.port)
        print(report(fleet.address, fleet.summary()))
        fleet.close()
    except AnsorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
