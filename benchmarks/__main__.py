"""Run a benchmark from any folder: `python PATH/benchmarks NAME ...` is `python -m benchmarks.NAME ...` in its root."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def names() -> list[str]:
    """The benchmarks: the modules here that are run by their names."""
    return sorted(path.stem for path in HERE.glob("[a-z]*.py") if '__name__ == "__main__"' in path.read_text())


def main() -> None:
    """Run the benchmark that the first word names; what it starts finds the packages, too."""
    if len(sys.argv) < 2 or sys.argv[1] not in names():
        sys.exit(f"usage: python {sys.argv[0]} NAME ...; the names are {', '.join(names())}")
    root = str(HERE.parent)
    sys.path[0] = root
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(":")
    del sys.argv[0]
    runpy.run_module(f"benchmarks.{sys.argv[0]}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
