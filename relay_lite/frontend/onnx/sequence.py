"""Sequences of tensors, whose lengths are known: tuples that are built, read and taken apart when the model is read.

What is optional is there, and it is its value.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.nodes import Expr, Tuple
from .emit import call, concatenate, const, reshape
from .node import Converters, Node
from .select import pick


def fields(node: Node, index: int) -> tuple[Expr, ...]:
    """The tensors of an input that is a sequence."""
    found = node.input(index)
    node.require(isinstance(found, Tuple), f"input {index} must be a sequence", type=str(found.type))
    assert isinstance(found, Tuple)
    return found.fields


def _sequence(node: Node, parts: Sequence[Expr]) -> Tuple:
    dtypes = {p.dtype for p in parts}
    node.require(len(dtypes) <= 1, "the tensors of a sequence must have one dtype", dtypes=sorted(dtypes))
    return Tuple(tuple(parts))


def empty(node: Node) -> Expr:
    """SequenceEmpty: no tensors."""
    node.integer("dtype", 1)
    return Tuple(())


def construct(node: Node) -> Expr:
    """SequenceConstruct: the inputs, which are tensors."""
    return _sequence(node, [_tensor(node, i) for i in range(len(node.inputs))])


def _tensor(node: Node, index: int) -> Expr:
    found = node.input(index)
    node.require(not isinstance(found, Tuple), f"input {index} must be a tensor", type=str(found.type))
    return found


def insert(node: Node) -> Expr:
    """SequenceInsert: a tensor before a known position, by default behind the last."""
    parts, at = list(fields(node, 0)), node.scalar(2)
    where = len(parts) if at is None else _position(node, int(at), len(parts) + 1)
    return _sequence(node, [*parts[:where], _tensor(node, 1), *parts[where:]])


def _position(node: Node, at: int, places: int) -> int:
    """A position counted from the front among `places`; negative ones count from the back of the tensors."""
    length = len(fields(node, 0))
    node.require(-length <= at < places, f"positions must be in -{length} to {places - 1}", position=at)
    return at + length if at < 0 else at


def erase(node: Node) -> Expr:
    """SequenceErase: without the tensor at a known position, by default the last."""
    parts, at = fields(node, 0), node.scalar(1)
    where = _position(node, -1 if at is None else int(at), len(parts))
    return Tuple((*parts[:where], *parts[where + 1 :]))


def at_position(node: Node) -> Expr:
    """SequenceAt: the tensor at a known position."""
    parts, at = fields(node, 0), node.scalar(1)
    node.require(at is not None, "a position is needed")
    return parts[_position(node, int(at or 0), len(parts))]


def length(node: Node) -> Expr:
    """SequenceLength: how many tensors there are."""
    return const(len(fields(node, 0)), "int64")


def split_to_sequence(node: Node) -> Expr:
    """SplitToSequence: parts of known extents along `axis` (one extent for all but the last), or single slices."""
    x, sizes = node.input(0), node.value(1)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    kept, extent = node.integer("keepdims", 1) or sizes is not None, x.shape[axis]
    if sizes is None or sizes.ndim == 0:
        step = 1 if sizes is None else int(sizes)
        node.require(step >= 1, "an extent of at least 1 is needed", split=step)
        cuts = [min(step, extent - k) for k in range(0, extent, step)]
    else:
        cuts = [int(v) for v in sizes.reshape(-1)]
    node.require(min(cuts, default=0) >= 0 and sum(cuts) == extent, "the parts must fill the axis", split=cuts,
                 extent=extent)  # fmt: skip
    ends = [sum(cuts[: k + 1]) for k in range(len(cuts))]
    parts = [pick(x, {axis: range(e - c, e)}) for e, c in zip(ends, cuts, strict=True)]
    return Tuple(tuple(parts if kept else (reshape(p, (*x.shape[:axis], *x.shape[axis + 1 :])) for p in parts)))


def concat_from_sequence(node: Node) -> Expr:
    """ConcatFromSequence: the tensors one after the other along `axis`, or along a new one."""
    parts, new = fields(node, 0), node.integer("new_axis", 0)
    node.require(parts, "a sequence without tensors has no shape")
    axis = node.axis(node.integer("axis"), len(parts[0].shape) + new)
    return concatenate([call("expand_dims", p, axis=axis) for p in parts] if new else parts, axis)


def optional(node: Node) -> Expr:
    """Optional: its input, which must be there."""
    node.has("type")
    node.require(node.optional(0) is not None, "an optional without a value is not supported")
    return node.input(0)


CONVERTERS: Converters = {
    "SequenceEmpty": {11: empty},
    "SequenceConstruct": {11: construct},
    "SequenceInsert": {11: insert},
    "SequenceErase": {11: erase},
    "SequenceAt": {11: at_position},
    "SequenceLength": {11: length},
    "SplitToSequence": {11: split_to_sequence},
    "ConcatFromSequence": {11: concat_from_sequence},
    "Optional": {15: optional},
}
