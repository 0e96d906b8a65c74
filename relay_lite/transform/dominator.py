"""Where the results of a node meet again: the post-dominator tree of a graph.

Nodes are numbered, arguments before readers.  A node's parent in the tree is the first node that every path from it
to a result passes through.  Whatever lies between a node and its parent is read there and nowhere else, so the two
can become one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from ..ir.nodes import Call, Constant, Expr, Function, Tuple, TupleGetItem, children, tensor_type
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import post_order

INLINED_DTYPES = ("int32", "int64", "float32", "float64", "bool")


@dataclass(frozen=True)
class Edge:
    """A node reads another one; `pattern` is how."""

    reader: int
    pattern: OpPattern


@dataclass(frozen=True)
class FlowGraph:
    """The nodes of a function in order, their patterns and readers; `result` is what the function returns."""

    nodes: tuple[Expr, ...]
    patterns: tuple[OpPattern, ...]
    readers: tuple[tuple[Edge, ...], ...]
    result: int

    @cached_property
    def numbers(self) -> Mapping[Expr, int]:
        """The number of every node."""
        return {node: k for k, node in enumerate(self.nodes)}


@dataclass(frozen=True)
class Dominator:
    """A node of the tree: its parent (None for a result), and the widest pattern on the way there."""

    parent: int | None
    depth: int
    pattern: OpPattern


def is_inlined(node: Expr) -> TypeGuard[Constant]:
    """Whether a node is a scalar that is written into the kernels which use it."""
    return isinstance(node, Constant) and node.value.ndim == 0 and str(node.value.dtype) in INLINED_DTYPES


def flow_graph(function: Function) -> FlowGraph:
    """Number the nodes of a function and note who reads whom."""
    nodes: list[Expr] = list(dict.fromkeys([*function.params, *post_order(function.body)]))
    index = {id(node): k for k, node in enumerate(nodes)}
    readers: list[list[Edge]] = [[] for _ in nodes]
    for k, node in enumerate(nodes):
        for child in children(node):
            readers[index[id(child)]].append(Edge(k, _edge_pattern(node, child)))
    return FlowGraph(tuple(nodes), tuple(map(_pattern, nodes)), tuple(map(tuple, readers)), index[id(function.body)])


def _pattern(node: Expr) -> OpPattern:
    match node:
        case Call(op=op, args=args):
            views = op.name == "reshape" and any([tensor_type(x).is_open for x in (node, *args)])
            return OpPattern.OPAQUE if views else op.pattern  # such a kernel would divide indices by sizes
        case Tuple():
            return OpPattern.TUPLE
        case TupleGetItem():
            return OpPattern.INJECTIVE
        case _:
            return OpPattern.ELEMWISE if is_inlined(node) else OpPattern.OPAQUE


def _edge_pattern(reader: Expr, read: Expr) -> OpPattern:
    """A broadcast that does not enlarge its argument is elementwise to it."""
    if isinstance(reader, Tuple | TupleGetItem):
        return OpPattern.INJECTIVE
    match _pattern(reader), reader.type, read.type:
        case OpPattern.BROADCAST, TensorType(shape=to), TensorType(shape=shape) if to == shape:
            return OpPattern.ELEMWISE
        case pattern, _, _:
            return pattern


def post_dominators(graph: FlowGraph) -> list[Dominator]:
    """The tree, by node number, in one sweep from the result to the inputs."""
    tree: dict[int, Dominator] = {}
    for k in reversed(range(len(graph.nodes))):
        edges = graph.readers[k]
        if k == graph.result or not edges:
            tree[k] = Dominator(None, 1, OpPattern.OPAQUE)
            continue
        meeting: int | None = edges[0].reader
        patterns = [edge.pattern for edge in edges]
        for edge in edges[1:]:
            meeting = _common_ancestor(tree, meeting, edge.reader, patterns)
        depth = 1 if meeting is None else tree[meeting].depth + 1
        tree[k] = Dominator(meeting, depth, max(patterns))
    return [tree[k] for k in range(len(graph.nodes))]


def _common_ancestor(tree: dict[int, Dominator], a: int | None, b: int | None, walked: list[OpPattern]) -> int | None:
    """The deepest node above both; the patterns of the nodes that are left behind are added to `walked`."""
    while a != b:
        if a is None or b is None:
            return None
        deeper = max(tree[a].depth, tree[b].depth)
        at_a, at_b = tree[a], tree[b]
        if at_a.depth == deeper:
            walked.append(at_a.pattern)
            a = at_a.parent
        if at_b.depth == deeper:
            walked.append(at_b.pattern)
            b = at_b.parent
    return a


def between(graph: FlowGraph, start: int, end: int) -> Sequence[int]:
    """Every node on a path from `start` to its dominator `end`; `start` itself is left out, `end` is the last."""
    seen: dict[int, None] = {}
    stack = [start]
    while stack:
        for edge in graph.readers[stack.pop()]:
            if edge.reader != end and edge.reader not in seen:
                seen[edge.reader] = None
                stack.append(edge.reader)
    return [*seen, end]
