"""Loop nests as boxes: every loop once, every read, what is kept where; text escaped; refusals."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.sketch import generate_sketches
from ansor.viz.nest import LoopBox, Node, StageBox, Statement, nest_of
from ansor.viz.nest_picture import draw_nest
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.loop_scope import enclosing_loops
from te_lite.computation.text import op_lines
from te_lite.schedule.state import INLINED, State
from tests.ansor.default_programs import default_of
from tests.workloads import matmul

SVG = "{http://www.w3.org/2000/svg}"


def shapes(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def words(svg: str) -> list[str]:
    return [x.text or "" for x in shapes(svg).iter(f"{SVG}text")]


@cache
def task_of(target: str) -> ansor.SearchTask:
    return ansor.SearchTask(matmul, (64, 48, 32), target=target)


@pytest.fixture(scope="module", params=["c", "cuda", "conv"])
def state(request: pytest.FixtureRequest) -> State:
    if request.param != "conv":
        return default_of(task_of(request.param))
    conv = ansor.SearchTask("conv2d_layer", args=(1, 6, 6, 8, 4, 3, 3, (1, 1), (1, 1)), target="cuda")
    return default_of(conv)


def walked(nodes: tuple[Node, ...], loops: tuple[LoopBox, ...] = ()) -> Iterator[tuple[Node, tuple[LoopBox, ...]]]:
    """Every node with the loops around it."""
    for node in nodes:
        yield node, loops
        if not isinstance(node, Statement):
            yield from walked(node.inside, (*loops, node) if isinstance(node, LoopBox) else loops)


def test_every_loop_stands_once_with_its_extent(state: State) -> None:
    stages = infer_bounds(state).state.stages
    found = sorted([(x.name, x.turns) for x, _ in walked(nest_of(state)) if isinstance(x, LoopBox)])
    kept = [s for s in stages if s.where != INLINED and not s.is_placeholder]
    assert found == sorted([(it.name, it.length) for s in kept for it in s.iters if it.length > 1])
    drawn = " ".join(words(draw_nest(state)))
    for name, turns in found:
        assert f"{name} in 0..{turns}" in drawn


def test_statements_stand_in_the_loops_that_are_around_them(state: State) -> None:
    stages = infer_bounds(state).state.stages
    loops = {
        node.lines: [x.name for x in around] for node, around in walked(nest_of(state)) if isinstance(node, Statement)
    }
    assert len(loops) == len([s for s in stages if s.where != INLINED and not s.is_placeholder])
    for k, stage in enumerate(stages):
        lines = tuple(op_lines(stage.op))
        if lines in loops:
            around = [stages[s].vars[uid] for s, uid in enclosing_loops(stages, k)]
            names = [it.name for it in (*around, *stage.iters) if it.length > 1]
            assert sorted(loops[lines]) == sorted(names)
            assert loops[lines][len(loops[lines]) - len([i for i in stage.iters if i.length > 1]) :] == [
                it.name for it in stage.iters if it.length > 1
            ]


def test_what_is_read_where_by_hand() -> None:
    """64 x 48 x 32: a tile of 16 x 8 of C for each block, 4 terms at a time of both inputs in shared memory."""
    a, _b, c = matmul(64, 48, 32)
    s = te.create_schedule(c.op)
    shared = s.cache_read(a, "shared", [c])
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    (bi, i), (bj, j), (ko, k) = s[c].split(i, 16), s[c].split(j, 8), s[c].split(k, 4)
    s[c].reorder(bi, bj, ko, i, j, k)
    s[c].bind(bi, te.thread_axis("blockIdx.x"))
    s[shared].compute_at(s[c], ko)
    (root,) = nest_of(s.state)
    nodes = [node for node, _ in walked((root,))]
    stages = {x.name: (x.storage, x.extents) for x in nodes if isinstance(x, StageBox)}
    assert stages == {"C": ("global", (64, 48)), "A.shared": ("shared", (16, 4))}
    reads = [(r.name, r.storage, r.extents) for x in nodes if isinstance(x, Statement) for r in x.reads]
    assert reads == [("A", "global", (16, 4)), ("A.shared", "shared", (16, 4)), ("B", "global", (32, 48))]
    assert [x.reduces for x in nodes if isinstance(x, LoopBox) and x.name.startswith("k")] == [True, True]


def test_a_sketch_has_open_extents() -> None:
    task = task_of("c")
    sketch = generate_sketches(task.compute_dag, task.target, task.hardware_params)[0]
    found = [x for x, _ in walked(nest_of(sketch)) if isinstance(x, LoopBox)]
    assert len(found) == sum(len(s.iters) for s in sketch.stages if s.where != INLINED)
    assert any(x.turns is None for x in found) and any("in 0..?" in line for line in words(draw_nest(sketch)))


def test_boxes_lie_inside_and_text_has_room() -> None:
    root = shapes(draw_nest(default_of(task_of("cuda")), "a matmul"))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in root.iter(f"{SVG}rect"):
        x, y, w, h = [float(box.get(name, 0)) for name in ("x", "y", "width", "height")]
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
    for line in root.iter(f"{SVG}text"):
        assert float(line.get("x", 0)) + 7.3 * len(line.text or "") <= width and float(line.get("y", 0)) <= height


def test_names_and_titles_are_escaped() -> None:
    a = te.placeholder((4,), name="<script>alert(1)</script>")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b&<b>")
    svg = draw_nest(te.create_schedule(b.op).state, '"<script>" & more')
    assert "<script>" not in svg and '"<script>" & more' in words(svg)


def test_the_command(tmp_path: Path, capsys: Any, refused: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    log = str(Path(__file__).parents[2] / "benchmarks/results/logs/conv2d_layer_h200.json")
    assert main(["draw", "nest", "matmul", "--shape", "64,48,32", "--sketch", "0", "-o", "sketch.svg"]) == 0
    assert main(["draw", "nest", log]) == 0
    assert any("threadIdx.x" in line for line in words(Path("nest.svg").read_text()))
    assert capsys.readouterr().out == "the picture is in sketch.svg\nthe picture is in nest.svg\n"
    Path("notes.txt").write_text("mine")
    for words_, said in (
        (["matmul", "--sketch", "99"], "--sketch: matmul(1024, 1024, 1024) for c has the sketches 0 to "),
        ([log, "--sketch", "1"], "--sketch: a log has programs, a workload has sketches, got 1"),
        ([log, "--target", "c"], "a log knows its shapes and targets; leave the options away, got ['target']"),
        (["matmul", "--workload", "C"], "--workload: names a workload of a log, got 'C'"),
        (["matmull"], "is no workload"),
        (["matmul", "-o", "notes.txt"], "this file is there, and is no picture"),
        (["matmul", "-o", "typo/x.svg"], "there is no folder typo"),
    ):
        refused(["draw", "nest", *words_], said, 2, 3)
    assert Path("notes.txt").read_text() == "mine"
