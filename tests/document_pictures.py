"""The pictures of the documents, drawn of what the code in them makes.

python -m tests.document_pictures      draws docs/pictures anew
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import te_lite as te
from ansor.policy.default_schedule import default_state
from ansor.viz.banks_picture import draw_banks
from ansor.viz.dag_picture import draw_dag
from ansor.viz.fragment_picture import draw_fragments
from ansor.viz.nest_picture import draw_nest
from ansor.viz.swizzle_picture import draw_swizzle
from ansor.viz.tile import tile_of
from ansor.viz.tile_picture import draw_tile
from te_lite.mma import mma
from tests.test_docs import ROOT, blocks
from vta_sim.sim import picture, spans

FOLDER = ROOT / "docs" / "pictures"


def names_of(document: str, until: str) -> dict[str, Any]:
    """What the code of a document has defined after its first block with the text `until`."""
    names: dict[str, Any] = {}
    for block in blocks((ROOT / "docs" / document).read_text()):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block.code, document, "exec"), names)
        if until in block.code:
            return names
    raise LookupError(f"{document}: no block has {until!r}")


def _dag() -> str:
    return draw_dag(names_of("01_from_expression_to_c.md", "dag = ")["dag"], "a product and a relu")


def _nest() -> str:
    state = names_of("01_from_expression_to_c.md", "print(s.state)")["s"].state
    return draw_nest(state, "the schedule by hand")


def _sketch() -> str:
    return draw_nest(names_of("02_from_a_sketch_to_a_search.md", "print(sketches[0])")["sketches"][0], "a sketch")


def _tile() -> str:
    task = names_of("02_from_a_sketch_to_a_search.md", "print(sketches[0])")["task"]
    state = default_state(task)
    assert state is not None
    return draw_tile(tile_of(state), "the default schedule of the task")


def _layer() -> str:
    task = names_of("03_a_whole_network.md", "ansor.extract_tasks(")["tasks"][0]
    return draw_dag(task.compute_dag, task.desc)


def _kernel() -> te.LoweredFunc:
    func: te.LoweredFunc = names_of("05_tensor_cores.md", "func = te.lower(s, [A, B, C])")["func"]
    return func


def _timeline() -> str:
    launch = names_of("vta.md", "text(spans(launch")["launch"]
    return picture(spans(launch.columns, launch.timing()), "the program of this page")


DRAWN: dict[str, Callable[[], str]] = {
    "dag_product": _dag,
    "nest_by_hand": _nest,
    "nest_sketch": _sketch,
    "tile_product": _tile,
    "dag_layer": _layer,
    "fragment_f16": lambda: draw_fragments(mma("m16n8k16_f16_f32")),
    "swizzle_64": lambda: draw_swizzle(64),
    "banks_tensor_core": lambda: draw_banks(_kernel(), "the schedule of this page"),
    "vta_timeline": _timeline,
}
"""The pictures by the names of their files."""


def path_of(name: str) -> Path:
    """The file of a picture."""
    return FOLDER / f"{name}.svg"


if __name__ == "__main__":
    for name, drawn in DRAWN.items():
        path_of(name).write_text(drawn())
