"""Runs of one searcher in a process of its own, printed as JSON lines, which `ansor bench-search` reads.

    python -m ansor.cli.contest_process SEARCHER FILE ... --seeds FIRST END --trials T --batch B

Such a process may be given one thread for linear algebra, which is what small matrices want.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from te_lite.errors import TeError

from ..core.errors import AnsorError
from ..offline.contest import candidates_of, contest
from ..offline.matrix import load_matrix
from .searchers import searcher_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the seconds of every run, task by task and seed by seed; the exit code."""
    parser = argparse.ArgumentParser(prog="ansor.cli.contest_process", description="Runs of one searcher.")
    parser.add_argument("searcher")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FIRST", "END"))
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    given = parser.parse_args(arguments)
    try:
        make = searcher_of(given.searcher)
        for k, file in enumerate(given.files):
            matrix = load_matrix(file)
            known = candidates_of(matrix)
            for seed in range(*given.seeds):
                run = contest(make, matrix, known, seed, given.trials, given.batch)
                print(json.dumps({"task": k, "seed": seed, "seconds": run.seconds.tolist(), "best": run.best}))
    except TeError as error:
        print(error, file=sys.stderr)
        return error.exit_code if isinstance(error, AnsorError) else AnsorError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
