"""Elements by position: embeddings, gathers, scatters, and indexing by tensors.

Positions count from the end where they are negative.  One that is out of range is an error in PyTorch; here it is moved
to the nearest element, as a network that runs is not stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import add, binary, broadcast_to, call, cast, concatenate, mul, reshape, transpose
from ..onnx.select import narrow
from .node import Aten, Converter, Converters


def embedding(node: Aten) -> Expr:
    """embedding: rows of a table."""
    return node.onnx("Gather", node.tensor("weight"), node.tensor("indices"), axis=0)[0]


def index_select(node: Aten) -> Expr:
    """index_select: positions of one axis."""
    x = node.tensor("self")
    return node.onnx("Gather", x, node.tensor("index"), axis=node.axis(node.integer("dim"), len(x.shape)))[0]


def gather(node: Aten) -> Expr:
    """gather: one position along an axis for every element of the result."""
    x = node.tensor("self")
    return node.onnx("GatherElements", x, node.tensor("index"), axis=node.axis(node.integer("dim"), len(x.shape)))[0]


def index(node: Aten) -> Expr:
    """x[i, :, j]: positions that broadcast; their axes stand where the first was if they are neighbours, else first."""
    x, given = node.tensor("self"), node.tensors("indices")
    places = {axis: e for axis, e in enumerate(given) if e is not None}
    node.require(places, "an index is needed", indices=len(given))
    law = "the indices must be integers: with a mask the data decide the shape"
    node.require(all(e.dtype != "bool" for e in places.values()), law)
    axes = list(places)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    others = [a for a in range(len(x.shape)) if a not in places]
    x = transpose(x, [*others[:first], *axes, *others[first:]])
    extents = x.shape[first : first + len(axes)]
    flat = reshape(x, (*x.shape[:first], prod(extents), *x.shape[first + len(axes) :]))
    return call("take", flat, flat_positions(list(places.values()), extents), axis=first)


def flat_positions(places: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """Positions of neighbouring axes as one number each, int32."""
    total: Expr | None = None
    for k, (e, extent) in enumerate(zip(places, extents, strict=True)):
        part = mul(_wrapped(e, extent), prod(extents[k + 1 :]))
        total = part if total is None else add(total, part)
    assert total is not None
    return total


def _wrapped(e: Expr, extent: int) -> Expr:
    e = narrow(e)
    return call("where", binary("less", e, 0), add(e, extent), e)


def index_put(node: Aten) -> Expr:
    """index_put of leading axes: elements replaced by values, or with `accumulate` added to them."""
    x, values = node.tensor("self"), node.operand("values", node.tensor("self").dtype)
    places = node.tensors("indices")
    known = [e for e in places if e is not None]
    law = "integers for the leading axes are supported"
    node.require(known and len(known) == len(places) and all(e.dtype != "bool" for e in known), law)
    shape = tuple(np.broadcast_shapes(*[e.shape for e in known]))
    parts = [reshape(broadcast_to(cast(e, "int64"), shape), (*shape, 1)) for e in known]
    where = concatenate(parts, len(shape))
    updates = broadcast_to(values, (*shape, *x.shape[len(known) :]))
    reduction = "add" if node.flag("accumulate") else "none"
    return node.onnx("ScatterND", x, where, updates, reduction=reduction)[0]


def scatter(reduction: str = "none") -> Converter:
    """scatter: elements along an axis replaced by, or joined with, the source or one number."""

    def convert(node: Aten) -> Expr:
        x, where = node.tensor("self"), node.tensor("index")
        axis = node.axis(node.integer("dim"), len(x.shape))
        source = node.argument("src", node.argument("value"))
        updates = node.operand("src" if isinstance(source, Expr) else "value", x.dtype)
        updates = broadcast_to(updates, where.shape) if updates.shape == () else updates
        node.require(updates.shape == where.shape, "the source must have the shape of the index", source=updates.shape)
        return node.onnx("ScatterElements", x, where, updates, axis=axis, reduction=reduction)[0]

    return convert


CONVERTERS: Converters = {
    "aten.embedding": embedding,
    "aten.index_select": index_select,
    "aten.gather": gather,
    "aten.index.Tensor": index,
    "aten.index_put": index_put,
    "aten.scatter.src": scatter(),
    "aten.scatter.value": scatter(),
    "aten.scatter_add": scatter("add"),
}
