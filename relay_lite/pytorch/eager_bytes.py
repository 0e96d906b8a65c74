"""The most memory that PyTorch itself would hold at once for the results of a graph, when it runs node by node.

What only looks at another tensor takes none.  A graph does not say what was written over its argument, as by
`nn.ReLU(inplace=True)`, nor what was one operator before it was taken apart: what often is written over it, and what is
computed point by point from such a result that nobody else reads, is taken to be.  So this is rather too little.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

IN_PLACE = {
    f"aten.{name}.default" for name in ("relu", "hardtanh", "hardswish", "hardsigmoid", "silu", "leaky_relu", "elu")
}
"""Operators whose modules have a flag for it."""


def eager_bytes(graph: Any) -> int:
    """The bytes of the results that are there at once, at most; inputs and weights are not counted."""
    place: dict[Any, Any] = {}
    size: dict[Any, int] = {}
    last: dict[Any, int] = {}
    nodes = list(graph.nodes)
    for k, node in enumerate(nodes):
        for given in node.all_input_nodes:
            last[place[given]] = k
        place[node] = _memory_of(node, place, size)
        if node.op == "call_function" and place[node] is node:
            size[node], last[node] = _bytes(node.meta.get("val")), k
    change = [0] * (len(nodes) + 1)
    begins = {node: k for k, node in enumerate(nodes)}
    for node, count in size.items():
        one_of = node.target is operator.getitem
        change[begins[node.args[0] if one_of else node]] += count
        change[last[node] + 1] -= count
    held = most = 0
    for step in change:
        held += step
        most = max(most, held)
    return most


def _memory_of(node: Any, place: dict[Any, Any], size: dict[Any, int]) -> Any:
    """The node whose memory a node has."""
    given = [a for a in node.args if a in place] if node.op == "call_function" else []
    if given and _looks(node):
        return place[given[0]]
    if given and _over(node) and place[given[0]] in size:
        return place[given[0]]
    own = [a for a in given if _pointwise(node) and _pointwise(place[a]) and len(a.users) == 1]
    return next((place[a] for a in own if size[place[a]] == _bytes(node.meta.get("val"))), node)


def _looks(node: Any) -> bool:
    return bool(getattr(node.target, "is_view", False)) or node.target is torch.ops.aten._unsafe_view.default


def _over(node: Any) -> bool:
    return str(node.target) in IN_PLACE


def _pointwise(node: Any) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _bytes(value: Any) -> int:
    """Those of a tensor of known extents; of several, each is the result of the node that takes it."""
    known = isinstance(value, torch.Tensor) and isinstance(value.numel(), int)
    return value.numel() * value.element_size() if known else 0
