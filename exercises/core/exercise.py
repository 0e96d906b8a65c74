"""An exercise, and the catalogue of all: what they ask is the docstring of their starters, and nothing is run.

The first line of a starter's docstring is `Chapter 3, 15 minutes: what it is about.`
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
HEAD = re.compile(r"Chapter (\d+), (\d+) minutes: (.+)\.")


@dataclass(frozen=True)
class Exercise:
    """One exercise: its name is that of its files in `starters`, `checks` and `solutions`."""

    name: str
    chapter: int
    minutes: int
    title: str
    statement: str

    @property
    def starter(self) -> Path:
        """The file with the hole."""
        return HOME / "starters" / f"{self.name}.py"

    @property
    def solution(self) -> Path:
        """A file that passes."""
        return HOME / "solutions" / f"{self.name}.py"


def read_exercise(starter: Path) -> Exercise:
    """The exercise of a starter.  Raises ValueError when its docstring does not begin as it must."""
    text = ast.get_docstring(ast.parse(starter.read_text())) or ""
    head, _, statement = text.partition("\n\n")
    found = HEAD.fullmatch(" ".join(head.split()))
    if found is None:
        raise ValueError(f"{starter}: the docstring must begin with `Chapter N, M minutes: title.`, got {head!r}")
    return Exercise(starter.stem, int(found[1]), int(found[2]), found[3], statement)


def catalogue() -> dict[str, Exercise]:
    """All exercises by name, in the order of the chapters, short ones first."""
    found = [read_exercise(path) for path in (HOME / "starters").glob("*.py")]
    return {e.name: e for e in sorted(found, key=lambda e: (e.chapter, e.minutes, e.name))}
