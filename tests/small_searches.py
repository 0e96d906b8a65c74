"""Searches of tests are small, those of scripts that they run in processes of their own, too: they evolve few programs,
build one at a time unless they say how many, and time each for a moment only."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ansor.core.tasks.measure_values import RunOptions
from ansor.measure import local
from ansor.measure.local import LocalRunner
from ansor.policy.sketch_policy import SketchPolicy
from ansor.space import trace

SMALL_POPULATION = 128
"""Programs that evolve in a search of a test which does not say how many: a sixteenth of what a user's search has."""
FEW_GENERATIONS = 2
"""Half as many as a user's search has."""
OFTEN = 8
"""How often a variant comes in a test's search before its numbers are recorded, which pays for thousands of rows."""
MOMENT_MS = 5
"""What a figure lasts at most: a user's lasts 100 ms, and each of the best programs is given five more in the end."""
ITSELF = f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')"


def make_small(put: Callable[[object, str, object], None]) -> None:
    """Make searches small; `put` sets an attribute."""
    put(
        SketchPolicy, "DEFAULT_PARAMS",
        {**SketchPolicy.DEFAULT_PARAMS, "evolutionary_search_population": SMALL_POPULATION,
         "evolutionary_search_num_iters": FEW_GENERATIONS},
    )  # fmt: skip
    put(trace, "COMES_AGAIN", OFTEN)
    put(local, "host_cores", lambda: 1)
    options = LocalRunner.__dict__["options"]

    def briefly(runner: LocalRunner) -> RunOptions:
        whole: RunOptions = options.__get__(runner)
        return replace(whole, min_repeat_ms=min(whole.min_repeat_ms, MOMENT_MS))

    put(LocalRunner, "options", property(briefly))


def command(script: Path, *arguments: str) -> list[str]:
    """What runs a script as `python SCRIPT ARGUMENT ...` does, with small searches."""
    return [sys.executable, "-c", ITSELF, str(script), *arguments]


def main() -> None:
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    make_small(setattr)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
