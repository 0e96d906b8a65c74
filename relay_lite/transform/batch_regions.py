"""Regions of a graph that can be computed slice by slice of a batch, each around a product.

layout_transform   winograd   relu   max_pool2d   layout_transform
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

import numpy as np

from ..ir.nodes import Call, Expr
from ..ir.visit import is_op
from ..op.winograd import CONV as WINOGRAD
from .batchwise import CONVOLUTIONS, PRODUCT, SOFTMAX, common_extent, sliced_axes
from .dominator import Dominator, FlowGraph, between
from .fuse_attention import LEAST
from .live_bytes import bytes_of
from .simplify_expr import MOVES, RESHAPES, TRANSPOSITIONS

WINOGRAD_TAPS = 9
Numbers = Collection[int]


@dataclass(frozen=True)
class Region:
    """Operators by number; only the result of the last one is read elsewhere.

    `batch` is what the number of slices must divide; `extra` are the bytes that it holds besides what the same
    operators hold elsewhere: transformed tiles, copies in other layouts, and what a transposed convolution has before
    zeros are put between its elements; `scores` are the members that give the scores of attention, `apart` those that
    give such elements: they are stored nowhere else.
    """

    graph: FlowGraph
    members: tuple[int, ...]
    end: int
    batch: int
    extra: int = 0
    scores: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Its operators in order."""
        return tuple([node for k in sorted(self.members) for node in [self.graph.nodes[k]] if isinstance(node, Call)])

    @cached_property
    def inputs(self) -> tuple[Expr, ...]:
        """What it takes slices of."""
        inside = set(self.calls)
        cut = [a for n in self.calls for a, k in zip(n.args, sliced_axes(n) or (), strict=True) if k is not None]
        return tuple(dict.fromkeys([a for a in cut if a not in inside]))

    @cached_property
    def second(self) -> int:
        """What the number of slices of a part of the batch of 1 along the second axis must divide; 1 if there is none.

        Nothing that is inside is then needed whole.
        """
        inside = set(self.calls)
        whole = [a for n in self.calls for a, k in zip(n.args, sliced_axes(n, 1) or (), strict=False) if k is None]
        ones = all(n.shape[0] == self.calls[0].shape[0] for n in self.calls) and not inside & set(whole)
        return gcd(*[common_extent(n, 1) for n in self.calls]) if ones else 1

    @property
    def of_convolution(self) -> bool:
        return is_op(self.graph.nodes[self.members[0]], *CONVOLUTIONS)


def region_of(
    graph: FlowGraph, tree: Sequence[Dominator], first: int, taken: Numbers, dtypes: Collection[str]
) -> Region | None:
    """A product, number `first`, with what follows it up to the last operator that needs more memory, and on as long as
    the batch stays.  What only moves its operands is inside, too.  None for another operator.

    None of its members is `taken`.  Attention of `dtypes` becomes one kernel, which stores no scores.
    """
    node = graph.nodes[first]
    if first in taken or not multiply_adds(node) or sliced_axes(node) is None or not isinstance(node, Call):
        return None
    found = [Region(graph, (first,), first, common_extent(node), scratch_of(node))]
    while (end := tree[found[-1].end].parent) is not None:
        grown = _grown(found[-1], end, taken, dtypes)
        if grown is None:
            break
        found.append(grown)
    core = next(k for k, r in enumerate(found) if (r.extra, r.scores) == (found[-1].extra, found[-1].scores))
    kept = next(r for r in reversed(found[core:]) if r.batch == found[core].batch)
    return _with_moves(kept, taken)


def _grown(region: Region, end: int, taken: Numbers, dtypes: Collection[str]) -> Region | None:
    """A region with all up to the dominator `end` of its result; None where that cannot be sliced."""
    nodes, path = region.graph.nodes, sorted(between(region.graph, region.end, end))
    inside = {nodes[k] for k in (*region.members, *path)}
    batch, extra, scores, apart = region.batch, region.extra, region.scores, region.apart
    for k in path:
        node, axes = nodes[k], sliced_axes(nodes[k])
        if axes is None or not isinstance(node, Call) or k in taken:
            return None
        if any(a in inside and axis is None for a, axis in zip(node.args, axes, strict=True)):
            return None
        if multiply_adds(node):
            if len(path) > 1 or not _has_scores(region, node):
                return None
            fused = node.args[0].dtype in dtypes and node.args[0].shape[-1] >= LEAST
            extra += 0 if fused else 2 * bytes_of(node.args[0])  # before and after the softmax
            scores = region.members
        batch = gcd(batch, common_extent(node))
        extra += bytes_of(node) if is_op(node, *TRANSPOSITIONS) and region.of_convolution else 0
        if _spreads(region, node):
            extra, apart = extra + bytes_of(node.args[0]), region.members
    able = batch > 1 or all(nodes[k].shape[0] == 1 for k in path)  # one image, whose channels may be cut
    return Region(region.graph, (*region.members, *path), end, batch, extra, scores, apart) if able else None


def _spreads(region: Region, node: Call) -> bool:
    """Whether a node puts zeros between the results of a convolution, along an axis that those do not have."""
    result = region.graph.nodes[region.members[0]]
    return region.of_convolution and is_op(node, "nn.pad") and len(node.shape) > len(result.shape)


def _has_scores(region: Region, product: Call) -> bool:
    """Whether a region ends in scores of attention, which a product reads as its first operand."""
    softmax = any(is_op(node, SOFTMAX) for node in region.calls) and not (region.scores or region.of_convolution)
    return softmax and is_op(product, PRODUCT) and product.args[0] is region.graph.nodes[region.end]


def _with_moves(region: Region, taken: Numbers) -> Region:
    """A region with what only moves its operands and is read nowhere else; operands of a convolution are then copies.

    Reshapes alone, which cost nothing, stay outside.
    """
    graph, numbers = region.graph, region.graph.numbers
    batch, extra, members = region.batch, region.extra, list(region.members)
    for data in region.inputs:
        node, way = data, list[int]()
        while is_op(node, *MOVES, "nn.pad") and len(graph.readers[numbers[node]]) == 1 and numbers[node] not in taken:
            if sliced_axes(node) is None or gcd(batch, common_extent(node)) == 1:
                break
            way.append(numbers[node])
            if not is_op(node, *RESHAPES):
                batch, members = gcd(batch, *[common_extent(n) for n in _called(graph, way)]), [*members, *way]
                extra, way = extra + (bytes_of(node) if region.of_convolution else 0), []
            (node,) = node.args
    return replace(region, members=tuple(members), batch=batch, extra=extra)


def _called(graph: FlowGraph, numbers: Sequence[int]) -> list[Call]:
    return [node for k in numbers for node in [graph.nodes[k]] if isinstance(node, Call)]


def multiply_adds(node: Expr) -> int:
    """Those of a convolution, as if it were computed directly, or of a product in batches; 0 for another operator."""
    if is_op(node, WINOGRAD):
        return prod(node.shape) * WINOGRAD_TAPS * node.args[1].shape[3]
    if is_op(node, *CONVOLUTIONS):
        weight = node.args[1]
        filters = weight.shape[node.attrs["kernel_layout"].index("O")]
        return prod(node.shape) * prod(weight.shape) // int(filters)
    if is_op(node, PRODUCT):
        return prod(node.shape) * node.args[0].shape[-2 if node.attrs["transpose_a"] else -1]
    return 0


def scratch_of(node: Call) -> int:
    """The bytes of Winograd's transformed data, products and results; 0 for another operator."""
    if not is_op(node, WINOGRAD):
        return 0
    m, (batch, height, width, filters) = node.attrs["tile_size"], node.shape
    tiles = batch * -(-height // m) * -(-width // m)
    elements = (m + 2) ** 2 * (node.args[0].shape[3] + filters) + m**2 * filters
    return int(tiles * elements * np.dtype(node.dtype).itemsize)
