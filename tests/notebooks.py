"""The chapters as notebooks: text, code, and what the code prints and draws.

python -m tests.notebooks [FOLDER]      writes notebooks/NN_name.ipynb for each docs/chapters/NN_name.md
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from tests.documents import PICTURES, ROOT, Block, parts

CHAPTERS = sorted((ROOT / "docs" / "chapters").glob("[0-9]*.md"))
FOLDER = ROOT / "notebooks"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(document: Path, folder: Path) -> dict[str, Any]:
    """A chapter in Jupyter's format 4.5; links of its text lead from `folder` to the other notebooks and the files."""
    cells = []
    for part in parts(document.read_text()):
        if isinstance(part, Block):
            cells.append(code_cell(part))
        elif part.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": linked(part.strip(), document, folder)})
    named = [{"id": f"cell-{k}", **cell} for k, cell in enumerate(cells)]
    return {"cells": named, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}


def code_cell(block: Block) -> dict[str, Any]:
    """A cell of code with the results that the chapter shows."""
    outputs: list[dict[str, Any]] = []
    if block.output is not None:
        outputs.append({"output_type": "stream", "name": "stdout", "text": block.output})
    if block.picture:
        data = {"image/svg+xml": (PICTURES / f"{block.picture}.svg").read_text()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    source = block.whole.rstrip("\n")
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "source": source, "outputs": outputs}


def linked(text: str, document: Path, folder: Path) -> str:
    """Text of a document whose links lead on from another folder."""

    def moved(match: re.Match[str]) -> str:
        if "://" in match[1]:
            return match[1]
        path = (document.parent / match[1]).resolve()
        return f"{path.stem}.ipynb" if path in CHAPTERS else os.path.relpath(path, folder.resolve())

    return LINK.sub(moved, text)


def write(folder: Path) -> list[Path]:
    """Writes all notebooks, and gives their files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for document in CHAPTERS:
        written.append(folder / f"{document.stem}.ipynb")
        written[-1].write_text(json.dumps(notebook(document, folder), indent=1) + "\n")
    return written


if __name__ == "__main__":
    for path in write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(path)
