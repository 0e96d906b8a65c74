"""A graph in a file: nodes as JSON in execution order, constants as arrays beside them.

[{"var": "data", "shape": [1, 3, 224, 224], "dtype": "float32"}, {"constant": 0},
 {"op": "nn.conv2d", "args": [0, 1], "attrs": {"strides": [2, 2], ...}}, {"tuple": [2, 3]}, {"item": 1, "of": 4}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Array, Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, children, tensor_type
from relay_lite.ir.op_registry import get
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import post_order
from te_lite.errors import TeError


def graph_to_json(function: Function) -> tuple[dict[str, Any], list[Array]]:
    """The nodes of a function, and its constants.  Raises GraphError for a graph with fused groups."""
    nodes = post_order(function.body)
    used = set(nodes)
    nodes = [*[p for p in function.params if p not in used], *nodes]
    number = {node: k for k, node in enumerate(nodes)}
    constants: list[Array] = []
    lines: list[dict[str, Any]] = []
    for node in nodes:
        if isinstance(node, Constant):
            lines.append({"constant": len(constants)})
            constants.append(node.value)
        else:
            lines.append(_line(node, [number[c] for c in children(node)]))
    params = [number[p] for p in function.params]
    graph = {"nodes": lines, "params": params, "body": number[function.body], "attrs": dict(function.attrs)}
    return graph, constants


def _line(node: Expr, below: list[int]) -> dict[str, Any]:
    """A node that is no constant; `below` are the numbers of what it reads."""
    match node:
        case Var(name=name):
            return {"var": name, "shape": list(tensor_type(node).shape), "dtype": node.dtype}
        case Call(op=op, attrs=attrs):
            return {"op": op.name, "args": below, "attrs": dict(attrs)}
        case Tuple():
            return {"tuple": below}
        case TupleGetItem(index=index):
            return {"item": index, "of": below[0]}
        case _:
            raise GraphError(f"graph file: a {type(node).__name__} cannot be written")


def graph_from_json(data: Mapping[str, Any], constants: Sequence[Array], subject: str = "graph file") -> Function:
    """The function again.  Raises GraphError, in one sentence, for nodes that are no graph."""
    made: list[Expr] = []
    try:
        for line in data["nodes"]:
            made.append(_node(line, made, constants))
        params = [made[k] for k in data["params"]]
        return Function(tuple([p for p in params if isinstance(p, Var)]), made[data["body"]], dict(data["attrs"]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        law = "is no node of a graph"
        raise GraphError(f"{subject}: node {len(made)} {law} ({type(error).__name__} {error})") from error
    except TeError as error:
        raise GraphError(f"{subject}: node {len(made)}: {error}") from error


def _node(line: Mapping[str, Any], made: Sequence[Expr], constants: Sequence[Array]) -> Expr:
    if "var" in line:
        return Var(str(line["var"]), TensorType(tuple(line["shape"]), str(line["dtype"])))
    if "constant" in line:
        return Constant(constants[line["constant"]])
    if "tuple" in line:
        return Tuple(tuple([made[k] for k in line["tuple"]]))
    if "item" in line:
        return TupleGetItem(made[line["of"]], line["item"])
    return Call(get(line["op"]), tuple([made[k] for k in line["args"]]), dict(line["attrs"]))
