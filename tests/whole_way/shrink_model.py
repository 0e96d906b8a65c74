"""Smaller ONNX models: fewer outputs, an earlier one, nodes left out or replaced by what they gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .model import DATA, Model, Node, needed
from .model_oracle import evaluate


def smaller(model: Model) -> Iterator[Model]:
    """Models that are simpler by one node or output; some have no meaning."""
    for o in model.outputs:
        rest = tuple([x for x in model.outputs if x != o])
        if rest:
            yield needed(replace(model, outputs=rest))
    if model.level:
        yield replace(model, level=0)
    known = evaluate(model)
    for k, node in enumerate(model.nodes):
        if node[0] in (*DATA, "nothing") or isinstance(known[k], list):
            continue
        yield needed(replace(model, outputs=(k,)))
        yield _with(model, k, _given(known[k].v.shape, known[k].dtype))
        for i in node[1]:
            alike = i >= 0 and not isinstance(known[i], list) and known[i].dtype == known[k].dtype
            if alike and known[i].v.shape == known[k].v.shape:
                yield _with(model, k, ("Identity", (i,), {}))
    for k, node in enumerate(model.nodes):
        if node[0] == "input" and node[2]["values"] not in ("small", "zero"):
            yield _with(model, k, (node[0], (), {**node[2], "values": "small"}))


def _given(shape: tuple[int, ...], dtype: str) -> Node:
    return ("input", (), {"shape": shape, "dtype": dtype, "values": "small"})


def _with(model: Model, k: int, node: Node) -> Model:
    return needed(replace(model, nodes=(*model.nodes[:k], node, *model.nodes[k + 1 :])))


def text_of(model: Model) -> str:
    """One line a node."""
    known, lines = evaluate(model), []
    for k, (op, inputs, attrs) in enumerate(model.nodes):
        if op == "nothing":
            continue
        found = known[k][0] if isinstance(known[k], list) else known[k]
        said = ", ".join([f"{name}={value}" for name, value in attrs.items() if name not in ("shape", "dtype")])
        given = ", ".join([f"%{i}" for i in inputs])
        lines.append(f"    %{k} = {op}({given}) {said} -> {found.dtype}{list(found.v.shape)}")
    outputs = ", ".join([f"%{o}" for o in model.outputs])
    return "\n".join([*lines, f"    -> {outputs}, passes of level {model.level}"])
