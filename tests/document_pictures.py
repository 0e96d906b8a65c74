"""The pictures of the documents, drawn by the code in them or of what it makes.

python -m tests.document_pictures [NAME ...]     draws docs/pictures anew, or only those of documents of such names
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import te_lite as te
from ansor.viz.banks_picture import draw_banks
from ansor_ext.tensor_core.fragment_picture import draw_fragments
from ansor_ext.tensor_core.mma import mma
from ansor_ext.tensor_core.swizzle_picture import draw_swizzle
from tests.documents import DOCUMENTS, PICTURES, ROOT, blocks, run


def _kernel() -> te.LoweredFunc:
    """The kernel of docs/tensor_cores.md."""
    names: dict[str, Any] = {}
    for block in blocks((ROOT / "docs" / "tensor_cores.md").read_text()):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block.code, "tensor_cores.md", "exec"), names)
        if "func = te.lower(s, [A, B, C])" in block.code:
            break
    func: te.LoweredFunc = names["func"]
    return func


DRAWN: dict[str, Callable[[], str]] = {
    "fragment_f16": lambda: draw_fragments(mma("m16n8k16_f16_f32")),
    "swizzle_64": lambda: draw_swizzle(64),
    "banks_tensor_core": lambda: draw_banks(_kernel(), "the schedule of this page"),
}
"""The pictures that no block draws, by the names of their files."""


def drawn_by_blocks() -> dict[Path, list[str]]:
    """The documents whose blocks draw, with the names of their pictures."""
    named = {path: [block.picture for block in blocks(path.read_text()) if block.picture] for path in DOCUMENTS}
    return {path: names for path, names in named.items() if names}


def redraw(document: Path, names: list[str]) -> None:
    """Runs a document and keeps its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        run(document, Path(folder) / "run")
        for name in names:
            shutil.copyfile(Path(folder) / "run" / f"{name}.svg", PICTURES / f"{name}.svg")


if __name__ == "__main__":
    for document, names in drawn_by_blocks().items():
        if not sys.argv[1:] or document.name in sys.argv[1:]:
            redraw(document, names)
    for name, drawn in DRAWN.items() if not sys.argv[1:] else ():
        (PICTURES / f"{name}.svg").write_text(drawn())
