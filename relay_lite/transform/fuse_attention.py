"""Attention as one kernel: softmax(Q K^T, scaled and masked) V, where tensor cores multiply.

    batch_matmul, multiply     softmax, cast     batch_matmul, cast          three groups, which become one

On a GPU the scores then never leave the registers (ansor_ext/README.md, rule `attention`).  The first product
must be read by the softmax alone, and this, along its last axis, by the second product alone, as its first operand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

from ansor.core.target.target import HALVES

from ..ir.nodes import Call, Expr
from ..ir.types import TensorType
from ..ir.visit import is_op
from .dominator import FlowGraph

PRODUCT, SOFTMAX = "nn.batch_matmul", "nn.softmax"
DTYPES = tuple(HALVES.values())
"""What tensor cores multiply whatever the precision; of floats it must be asked for."""
LEAST = 16
"""Rows, columns and terms of a product on tensor cores (`ansor_ext/analysis/product_roles.py`)."""
Groups = Mapping[int, Sequence[int]]


def fuse_attention(
    graph: FlowGraph, roots: Sequence[int], max_depth: int, dtypes: Collection[str] = DTYPES
) -> list[int]:
    """The partition `roots` (the number of the last node of its group, for every node) with attention in one group.

    `max_depth` bounds the nodes of a group; `dtypes` are those that tensor cores multiply.
    """
    members: dict[int, list[int]] = {}
    for k, root in enumerate(roots):
        members.setdefault(root, []).append(k)
    joined: dict[int, int] = {}
    for root, group in members.items():
        if not _is_softmax(graph, group):
            continue
        end, scores = _product_after(graph, roots, root, dtypes), _product_before(graph, members, group, dtypes)
        taken = {*joined, *joined.values()}
        if end is not None and scores is not None and not taken & {scores, end}:
            size = sum([len(members[r]) for r in (scores, root, end)])
            joined |= {scores: end, root: end} if size <= max_depth else {}
    return [joined.get(root, root) for root in roots]


def _is_softmax(graph: FlowGraph, group: Sequence[int]) -> bool:
    """Whether a group has one softmax, along its last axis."""
    found = [node for k in group for node in [graph.nodes[k]] if isinstance(node, Call) and node.op.name == SOFTMAX]
    return len(found) == 1 and int(found[0].attrs["axis"]) in (-1, len(found[0].shape) - 1)


def _is_product(node: Expr, dtypes: Collection[str]) -> TypeGuard[Call]:
    """Whether a node is a product on tensor cores, in batches of matrices that fill an instruction but for their rows:
    those are queries, of which attention takes any number."""
    if not isinstance(node, Call) or not is_op(node, PRODUCT):
        return False
    types = [a.type for a in node.args if isinstance(a.type, TensorType)]
    wide = all(t.dtype in dtypes for t in types) and len(types) == len(node.args)
    return wide and min(types[0].shape[-1], *types[1].shape[-2:]) >= LEAST


def _product_after(graph: FlowGraph, roots: Sequence[int], root: int, dtypes: Collection[str]) -> int | None:
    """The group of the product whose first operand the group of `root` is, if nothing else reads that."""
    readers = {edge.reader for edge in graph.readers[root]}
    if root == graph.result or len(readers) != 1:
        return None
    (reader,) = readers
    node, made = graph.nodes[reader], graph.nodes[root]
    if not _is_product(node, dtypes) or node.attrs["transpose_a"]:
        return None
    return roots[reader] if node.args[0] is made and node.args[1] is not made else None


def _product_before(graph: FlowGraph, members: Groups, group: Sequence[int], dtypes: Collection[str]) -> int | None:
    """The group of the only product whose result `group` reads, if nothing else reads that."""
    found, inside = [], set(group)
    for root, others in members.items():
        readers = {edge.reader for edge in graph.readers[root]}
        if root not in inside and root != graph.result and readers and readers <= inside:
            found += [root] if any(_is_product(graph.nodes[k], dtypes) for k in others) else []
    return found[0] if len(found) == 1 else None
