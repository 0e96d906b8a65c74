"""The lowest versions of dependencies that the project allows, as requirements of pip.

    python -m tests.architecture.lowest > lowest.txt

Tests run with them beside the newest ones (`make test-lowest`): a bound that is too low lets models and files be read
wrongly without a word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import requires

LOWEST = ("", "onnx", "report", "dev")
"""The extras whose packages are taken at their lowest version; the empty one is the project itself."""
TOOLS = ("hypothesis", "import-linter", "jinja2", "mypy", "nvidia", "pytest", "ray", "ruff", "scipy", "types")
"""Beginnings of the names of packages that read no files of the project; tests run with the newest ones."""
_LINE = re.compile(r"([\w.-]+)[^;]*?>=([\d.]+)[^;]*(?:;.*extra == ['\"](\w+)['\"])?")


def lowest(lines: Iterable[str]) -> dict[str, str]:
    """The lowest version of each package, by its name, from the lines of the project's metadata."""
    found = [m.groups() for m in map(_LINE.match, lines) if m is not None]
    return {n: v for n, v, extra in found if (extra or "") in LOWEST and not n.lower().startswith(TOOLS)}


def requirements() -> Iterator[str]:
    """One line a package."""
    yield from sorted([f"{name}=={version}" for name, version in lowest(requires("ansor") or ()).items()])
    yield from ("hypothesis", "jinja2", "pytest", "pytest-timeout", "pytest-xdist", "scipy")


if __name__ == "__main__":
    sys.stdout.writelines([f"{line}\n" for line in requirements()])
