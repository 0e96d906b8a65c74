"""The table of files in docs/files.md, made of the first sentence of every module.

python -m tests.file_table      writes the table anew
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.architecture.test_house import PACKAGES
from tests.marked_table import replaced

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "files.md"
BEGIN = "<!-- begin: table of files, written by `python -m tests.file_table` -->\n"
END = "<!-- end: table of files -->\n"


@cache
def idea(path: Path) -> str:
    """The first sentence of a module's docstring, without the section of the specification that it cites."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    sentence = " ".join(paragraph.split()).split(".  ")[0].split(". ")[0]
    return re.sub(r" \((?:spec|design) [^)]*\)", "", sentence).rstrip(".:").replace("|", "\\|")


def sources() -> list[Path]:
    """Every Python file of the packages."""
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def table() -> str:
    """A heading and a table per package."""
    parts = []
    for package in PACKAGES:
        rows = [
            f"| [{path.relative_to(ROOT / package)}](../{path.relative_to(ROOT)}) | {idea(path)} |"
            for path in sources()
            if path.is_relative_to(ROOT / package)
        ]
        parts.append("\n".join([f"### {package}", "", "| file | idea |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def with_table(text: str) -> str:
    """A document with the table between its two marks replaced."""
    return replaced(text, BEGIN, table(), END)


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
