"""Products that read their operands where they lie: what only moves elements is no kernel before a product.

    queries = transpose(reshape(strided_slice(packed)))    batch_matmul(queries, keys)    two kernels fewer

On a GPU a product copies tiles of its operands into shared memory, and can copy them from anywhere.  So a group of
operators that only move elements joins the product that alone reads it.  `TurnProducts` comes before: where the operand
is transposed so that its rows lie scattered, the product takes it the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.visit import is_op, rewrite
from .dominator import FlowGraph
from .sequential import Pass
from .simplify_expr import MOVES, PRODUCTS, RESHAPES, TRANSPOSITIONS, permutation

TURNED = "transpose_a", "transpose_b"


def TurnProducts() -> Pass:
    """Let products read transposed operands along the axis along which those lie in memory."""
    return Pass("TurnProducts", 0, (), lambda function: rewrite(function, _turn))


def _turn(node: Expr) -> Expr:
    if not is_op(node, *PRODUCTS[:2]):
        return node
    found = [_other_way_round(a) for a in node.args]
    if all(turned is None for turned in found):
        return node
    args = [a if turned is None else turned for a, turned in zip(node.args, found, strict=True)]
    flags = {name: bool(node.attrs[name]) != (turned is not None) for name, turned in zip(TURNED, found, strict=True)}
    return call(node.op.name, *args, **{**node.attrs, **flags})


def _other_way_round(matrix: Expr) -> Expr | None:
    """A matrix with its last axes exchanged, where that makes its rows lie together and now they do not."""
    if is_op(matrix, *RESHAPES):
        (inner,) = matrix.args
        turned = _other_way_round(inner) if inner.shape[-2:] == matrix.shape[-2:] else None
        shape = (*matrix.shape[:-2], *matrix.shape[:-3:-1])
        return None if turned is None else call("reshape", turned, newshape=shape)
    if not is_op(matrix, *TRANSPOSITIONS):
        return None
    axes = permutation(matrix)
    last = len(axes) - 1
    if axes[-2] != last:
        return None
    order = (*axes[:-2], axes[-1], axes[-2])
    (source,) = matrix.args
    return source if order == tuple(range(len(axes))) else call("transpose", source, axes=order)


def fuse_moves(graph: FlowGraph, roots: Sequence[int], max_depth: int) -> list[int]:
    """The partition `roots` (the number of the last node of its group, for every node), moves with their products.

    `max_depth` bounds the nodes of a group.
    """
    members: dict[int, list[int]] = {}
    for k, root in enumerate(roots):
        members.setdefault(root, []).append(k)
    joined, sizes = dict[int, int](), {root: len(group) for root, group in members.items()}
    for root, group in members.items():
        readers = {edge.reader for edge in graph.readers[root]}
        if root != graph.result and len(readers) == 1 and _only_moves([graph.nodes[k] for k in group]):
            (reader,) = readers
            end = roots[reader]
            if is_op(graph.nodes[reader], *PRODUCTS) and sizes[root] + sizes[end] <= max_depth:
                joined[root] = end
                sizes[end] += sizes[root]
    return [joined.get(root, root) for root in roots]


def _only_moves(nodes: Sequence[Expr]) -> bool:
    """Whether a group moves elements, and computes nothing; reshapes alone are no kernel anyway."""
    moves = all(isinstance(node, Call) and node.op.name in MOVES for node in nodes)
    return moves and not all(is_op(node, *RESHAPES) for node in nodes)
