"""A table of the packages' files, made of the first sentence of every module.

python -m tests.file_table                       prints all of it
python -m tests.file_table te_lite ansor/space   prints these folders, or files
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

from tests.architecture.test_code_rules import PACKAGES

ROOT = Path(__file__).parent.parent


@cache
def idea(path: Path) -> str:
    """The first sentence of a module's docstring, without the section of the specification that it cites."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    sentence = " ".join(paragraph.split()).split(".  ")[0].split(". ")[0]
    return re.sub(r" \((?:spec|design) [^)]*\)", "", sentence).rstrip(".:")


def sources(*places: str) -> list[Path]:
    """The Python files of the packages in these folders, given from the root of the repository; without any, all."""
    for place in places:
        if not (ROOT / place).exists():
            raise SystemExit(f"no such file or folder: {place}")
    found = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    wanted = [ROOT / place for place in places or ("",)]
    return [path for path in found if any(path.is_relative_to(place) for place in wanted)]


def table(paths: list[Path]) -> str:
    """A line for each file: where it is, and its idea."""
    names = [str(path.relative_to(ROOT)) for path in paths]
    width = max(map(len, names), default=0)
    return "\n".join(f"{name:{width}}  {idea(path)}" for name, path in zip(names, paths, strict=True))


if __name__ == "__main__":
    print(table(sources(*[place.rstrip("/") for place in sys.argv[1:]])))
