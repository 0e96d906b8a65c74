"""A random ONNX model as plain data, and the model that is made of it.

    ("input" | "const", (), {"shape", "dtype", "values"})       filled from the seed of the model (random_inputs.py), or
                                                                with the number or bool that `values` is
    ("list", (), {"values", "dtype"})                           a constant that is written down: axes, shapes, indices
    ("item", (k,), {"index"})                                   one of the results of node k
    (operator, (numbers of nodes ...), attributes)              ONNX's names; -1 is an input that is left out

A node's number is its place.  An attribute `body` (of Loop and Scan), `then_branch` or `else_branch` (of If) is a
`Body`: nodes whose numbers go on behind those around it, of which `outputs` are its results and the first `given` what
it is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .bounded import Array
from .description import Input
from .random_inputs import filled

OPSET, IR_VERSION = 23, 11
DATA = ("input", "const", "list", "given")
Node = tuple[str, tuple[int, ...], dict[str, Any]]


@dataclass(frozen=True)
class Model:
    """Nodes, the numbers of the outputs, the seed of the inputs and weights, and the level of the passes."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    seed: int
    level: int = 3


@dataclass(frozen=True)
class Body:
    """The graph of a Loop, Scan or If: `given` nodes stand for what it is given, with shapes and dtypes."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]


def to_json(model: Model) -> str:
    """One line."""
    return json.dumps(asdict(model))


def from_json(text: str) -> Model:
    """The model in `to_json`'s text."""
    data = json.loads(text)
    return Model(tuple(map(_node, data["nodes"])), tuple(data["outputs"]), data["seed"], data["level"])


def _node(data: Sequence[Any]) -> Node:
    op, inputs, attrs = data
    return op, tuple(inputs), {name: _value(x) for name, x in attrs.items()}


def _value(x: Any) -> Any:
    if isinstance(x, dict):
        return Body(tuple(map(_node, x["nodes"])), tuple(x["outputs"]))
    return tuple(map(_value, x)) if isinstance(x, list) else x


def reads(node: Node) -> list[int]:
    """The nodes that a node reads, those of its bodies too."""
    found = [i for i in node[1] if i >= 0]
    for body in node[2].values():
        if isinstance(body, Body):
            found += [i for inner in body.nodes for i in reads(inner)] + list(body.outputs)
    return found


def needed(model: Model) -> Model:
    """`model` whose nodes that no output needs are nothing: numbers stay as they are."""
    keep, todo = set(), list(model.outputs)
    while todo:
        k = todo.pop()
        if k not in keep and k < len(model.nodes):
            keep.add(k)
            todo += reads(model.nodes[k])
    nothing: Node = ("nothing", (), {})
    nodes = [node if k in keep else nothing for k, node in enumerate(model.nodes)]
    return Model(tuple(nodes), model.outputs, model.seed, model.level)


def array_of(node: Node, k: int, seed: int) -> Array:
    """The values of an input or a constant."""
    attrs = node[2]
    if node[0] == "list" or not isinstance(attrs["values"], str):
        return np.array(attrs["values"], attrs["dtype"])
    given = Input("", tuple(attrs["shape"]), attrs["dtype"], attrs["values"])
    return filled(given, np.random.default_rng([seed, k, 5]))


def arrays(model: Model) -> dict[int, Array]:
    """The values of the inputs, by the numbers of their nodes."""
    return {k: array_of(n, k, model.seed) for k, n in enumerate(model.nodes) if n[0] == "input"}


# ------------------------------------------------------------------------------------------------- as ONNX


def onnx_of(model: Model) -> onnx.ModelProto:
    """The ONNX model: inputs `n0` ..., outputs by the numbers of their nodes."""
    writer = _Writer(model)
    nodes = writer.nodes(model.nodes, 0)
    inputs = [_info(f"n{k}", n[2]) for k, n in enumerate(model.nodes) if n[0] == "input"]
    outputs = [onnx.ValueInfoProto(name=f"out{k}") for k in range(len(model.outputs))]
    last = [helper.make_node("Identity", [writer.name(o)], [f"out{k}"]) for k, o in enumerate(model.outputs)]
    graph = helper.make_graph([*nodes, *last], "drawn", inputs, outputs, writer.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _info(name: str, attrs: Mapping[str, Any]) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(attrs["dtype"]))
    return helper.make_tensor_value_info(name, kind, list(attrs["shape"]))


class _Writer:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.constants: list[onnx.TensorProto] = []
        self.items: dict[int, str] = {}

    def name(self, k: int) -> str:
        return "" if k < 0 else self.items.get(k, f"n{k}")

    def nodes(self, nodes: Sequence[Node], first: int) -> list[onnx.NodeProto]:
        """The nodes; constants, those of bodies too, are initializers of the whole graph."""
        return [made for k, node in enumerate(nodes, first) for made in self._node(node, k)]

    def _node(self, node: Node, k: int) -> list[onnx.NodeProto]:
        op, inputs, attrs = node
        if op in ("const", "list"):
            self.constants.append(numpy_helper.from_array(array_of(node, k, self.model.seed), f"n{k}"))
        elif op == "item":
            self.items[k] = f"n{inputs[0]}_{attrs['index']}"
        if op in (*DATA, "item", "nothing"):
            return []
        results = attrs.get("results", 1)
        outputs = [f"n{k}"] if results == 1 else [f"n{k}_{i}" for i in range(results)]
        own = {name: self._attribute(name, x, op) for name, x in attrs.items() if name != "results"}
        return [helper.make_node(op, [self.name(i) for i in inputs], outputs, name=f"{op}_{k}", **own)]

    def _attribute(self, name: str, x: Any, op: str) -> Any:
        if isinstance(x, Body):
            return self._graph(x)
        if name in ("to", "dtype"):
            return helper.np_dtype_to_tensor_dtype(np.dtype(x))
        return list(x) if isinstance(x, tuple) else x

    def _graph(self, body: Body) -> onnx.GraphProto:
        first = body.nodes[0][2]["number"]
        inputs = [_info(f"n{first + k}", n[2]) for k, n in enumerate(body.nodes) if n[0] == "given" and "shape" in n[2]]
        nodes = self.nodes(body.nodes, first)
        names = [f"n{first}_out{k}" for k in range(len(body.outputs))]
        last = [helper.make_node("Identity", [self.name(o)], [n]) for o, n in zip(body.outputs, names, strict=True)]
        return helper.make_graph([*nodes, *last], f"body{first}", inputs, [onnx.ValueInfoProto(name=n) for n in names])
