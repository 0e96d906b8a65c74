"""The notebooks of the chapters, executed whole by Jupyter: what they print is what the chapters show.

python -m tests.teach [NN ...]      all chapters, or those whose names begin so; the notebooks keep what they printed
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.documents import agrees, blocks
from tests.notebooks import CHAPTERS, FOLDER, write

LIMIT = 180
"""Seconds that a chapter may take."""
AT_ONCE = 2
"""Chapters that run side by side, each in a kernel of its own."""


def executed(path: Path) -> Any:
    """A notebook after all its cells have run; the file keeps what they printed.  Raises what a cell raises."""
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    NotebookClient(
        book, timeout=LIMIT, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    nbformat.write(book, path)
    return book


def differences(document: Path, book: Any) -> list[str]:
    """What the cells printed and the chapter does not show, and pictures that are missing."""
    found = []
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    for block, cell in zip(blocks(document.read_text()), cells, strict=True):
        printed = "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stdout")
        drawn = any("image/svg+xml" in out.get("data", {}) for out in cell.outputs)
        if block.output is not None and not agrees(block.output, printed):
            found.append(f"{document.name}, line {block.line}, prints:\n{printed}")
        if block.picture and not drawn:
            found.append(f"{document.name}, line {block.line}, draws nothing")
    return found


def taught(document: Path, path: Path) -> list[str]:
    """Executes the notebook of a chapter and says how long that took; what is wrong with it."""
    start = time.perf_counter()
    found = differences(document, executed(path))
    seconds = time.perf_counter() - start
    print(f"{path.name}: {seconds:.1f} s", flush=True)
    return [*found, *([f"{document.name} took {seconds:.0f} s of {LIMIT}"] if seconds > LIMIT else [])]


def main(wanted: list[str]) -> int:
    """Runs the chapters, the later and longer ones first; the exit status."""
    books = zip(CHAPTERS, write(FOLDER), strict=True)
    chosen = [book for book in books if not wanted or any(book[1].name.startswith(name) for name in wanted)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [sentence for found in pool.map(taught, *zip(*reversed(chosen), strict=True)) for sentence in found]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
