"""Pictures of computations: every tensor and every read once, layers that go down, boxes that do not overlap."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor.cli.main import main
from ansor.core.tasks.catalog import CATALOG
from ansor.core.tasks.workloads import workload_key_to_tensors
from ansor.viz.dag_picture import draw_dag
from ansor.viz.layers import layered
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import Load
from te_lite.expr.visit import walk

SVG = "{http://www.w3.org/2000/svg}"


@given(st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda e: e[0] < e[1])))
def test_edges_go_down_one_layer_at_a_time(edges: set[tuple[int, int]]) -> None:
    graph = layered(12, sorted(edges))
    at = {node: depth for depth, layer in enumerate(graph.layers) for node in layer}
    assert sorted(n for layer in graph.layers for n in layer) == list(range(len(at))) and set(range(12)) <= set(at)
    assert {(path[0], path[-1]) for path in graph.paths.values()} == edges
    assert all(at[b] == at[a] + 1 for path in graph.paths.values() for a, b in pairwise(path))
    inside = [point for path in graph.paths.values() for point in path[1:-1]]
    assert len(set(inside)) == len(inside) and all(point >= 12 for point in inside)


def test_a_plain_ladder_has_no_crossing() -> None:
    graph = layered(6, [(0, 3), (1, 2), (2, 5), (3, 4)])
    place = {node: at for layer in graph.layers for at, node in enumerate(layer)}
    assert (place[0] < place[1]) == (place[3] < place[2]) == (place[4] < place[5])


def reads(dag: te.ComputeDAG) -> set[tuple[str, str]]:
    bodies = [(op, body) for op in dag.ops if isinstance(op, ComputeOp) for body in op.body]
    return {(x.tensor.op.name, op.name) for op, body in bodies for x in walk(body) if isinstance(x, Load)}


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_tensor_and_read_of_the_catalogue(name: str) -> None:
    entry = CATALOG[name]
    dag = te.ComputeDAG(workload_key_to_tensors(entry.key(entry.default)))
    root = ElementTree.fromstring(draw_dag(dag, name))
    heads = [x.text for x in root.iter(f"{SVG}text") if x.get("class") == "head"]
    assert sorted(map(str, heads)) == sorted([name, *[op.name for op in dag.ops]])
    kinds = [x.get("class") for x in root.iter(f"{SVG}rect")]
    assert kinds.count("input") == len(dag.inputs) and kinds.count("output") == len(dag.outputs)
    assert sum(x.get("class") == "arrow" for x in root.iter(f"{SVG}path")) == len(reads(dag))
    rectangles = [x for x in root.iter(f"{SVG}rect") if x.get("class") != "ground"]
    boxes = [tuple(float(x.get(n, 0)) for n in ("x", "y", "width", "height")) for x in rectangles]
    for (x, y, w, h), (p, q, v, u) in combinations(boxes, 2):
        assert x + w <= p or p + v <= x or y + h <= q or q + u <= y
    assert all(x >= 0 and x + w <= float(root.get("width", 0)) for x, _, w, _ in boxes)


def test_the_command_escapes(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import te_lite as te\n"
        "def f(n):\n"
        "    a = te.placeholder((n,), name='<script>')\n"
        "    return [a, te.compute((n,), lambda i: a[i] + 1.0, name='b')]\n"
    )
    assert main(["draw", "dag", "mine.py:f", "--args", "4"]) == 0
    text = Path("dag.svg").read_text()
    assert "<script>" not in text and "&lt;script&gt;" in text
