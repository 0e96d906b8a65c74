"""Operations with other axes: copies with the axes of a read, and operations whose axes are joined."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, reduce
from math import prod

from te_lite.computation.derive import REMEMBERED, map_bodies
from te_lite.computation.tensor import ComputeOp, Tensor
from te_lite.expr.element import greatest
from te_lite.expr.expr import (
    INDEX,
    Call,
    Expr,
    IterVar,
    Load,
    Reduce,
    Select,
    SizeVar,
    Var,
    as_expr,
    const,
    if_then_else,
    same,
)
from te_lite.expr.visit import substitute, transform, walk


def plain_read(op: ComputeOp, source: Tensor, may_be_open: bool = False) -> Load | None:
    """The only way in which `op` reads `source`: at its own axes, of known extents, and always; None for another.

    An open extent counts as known where it `may_be_open`.
    """
    kinds = int | SizeVar if may_be_open else int
    found = []
    for e in [e for body in op.body for e in walk(body)]:
        if isinstance(e, Load) and e.tensor == source:
            found.append(e)
        elif _chooses(e) and any(isinstance(x, Load) and x.tensor == source for x in walk(e)):
            return None
    if not all(same(x, y) for read in found for x, y in zip(read.indices, found[0].indices, strict=True)):
        return None
    parts = [x for index in found[0].indices for x in walk(index)]
    known = all(isinstance(x.extent, kinds) for x in parts if isinstance(x, IterVar))
    axes = all(isinstance(x, IterVar) for x in parts if isinstance(x, Var)) and any(isinstance(x, Var) for x in parts)
    return found[0] if known and axes and not any(isinstance(x, Load) for x in parts) else None


def _chooses(e: Expr) -> bool:
    """Whether part of an expression may not be evaluated."""
    conditional = isinstance(e, Select) or (isinstance(e, Call) and e.func == "if_then_else")
    return conditional or (isinstance(e, Reduce) and e.condition is not None)


def axes_in_order(read: Load) -> tuple[IterVar, ...]:
    """The axes that a read depends on, in the order in which its indices name them."""
    return tuple(dict.fromkeys([x for index in read.indices for x in walk(index) if isinstance(x, IterVar)]))


@lru_cache(maxsize=REMEMBERED)
def reindex_ops(
    op: ComputeOp, source: Tensor, scope: str, name: str, tile: tuple[int, ...] = ()
) -> tuple[ComputeOp, ComputeOp]:
    """`(copy, reader)`: what `op` reads of `source` (`plain_read`), with the axes of that read, and `op` reading it.

    With `tile`, axis and length, that axis counts tiles, whose inside is the last axis; zeros fill the last tile.
    """
    read = plain_read(op, source, may_be_open=True)
    assert read is not None
    axes = axes_in_order(read)
    lengths, indices = [v.extent for v in axes], list[Expr](axes)
    if tile:
        cut, length = tile
        whole = greatest(lengths[cut]) <= length
        inside = axes[cut] if whole else axes[cut] % length
        lengths[cut], indices[cut] = -(-greatest(lengths[cut]) // length), as_expr(0) if whole else axes[cut] // length
        lengths, indices = [*lengths, length], [*indices, inside]
    own = tuple([IterVar(f"ax{k}", INDEX, n, "spatial") for k, n in enumerate(lengths)])
    renamed: dict[Var, Expr] = dict(zip(axes, own, strict=False))
    if tile:
        renamed[axes[cut]] = own[-1] if whole else own[cut] * length + own[-1]
    body: Expr = Load(source, tuple([substitute(index, renamed) for index in read.indices]))
    if tile and not (isinstance(axes[cut].extent, int) and axes[cut].length % length == 0):
        body = if_then_else(renamed[axes[cut]] < as_expr(axes[cut].extent), body, const(0, source.dtype))
    copy = ComputeOp(name, own, (body,), ("RIX", op.key, source.op.key, name, *tile), scope=scope)
    new = Load(copy.output(), tuple(indices))

    def swap(e: Expr) -> Expr | None:
        return new if isinstance(e, Load) and e.tensor == source else None

    return copy, replace(op, body=map_bodies(op, lambda e: transform(e, swap)))


@lru_cache(maxsize=REMEMBERED)
def joined_op(op: ComputeOp, first: int, count: int) -> ComputeOp:
    """`op` with one axis in place of `count` axes from number `first` on."""
    parts = op.axis[first : first + count]
    joined = IterVar(".".join([v.name for v in parts]), INDEX, prod([v.length for v in parts]), "spatial")
    values: dict[Var, Expr] = {}
    inner = 1
    for v in reversed(parts):
        values[v] = joined // inner % v.length if v is not parts[0] else joined // inner
        inner *= v.length
    body = map_bodies(op, lambda e: substitute(e, values))
    axis = (*op.axis[:first], joined, *op.axis[first + count :])
    return replace(op, axis=axis, body=body, key=("JAX", op.key, first, count))


@lru_cache(maxsize=REMEMBERED)
def read_joined(op: ComputeOp, old: Tensor, new: Tensor, first: int) -> ComputeOp:
    """`op` (same key) reading `new`, one of whose axes joins several of `old` from number `first` on."""
    count = old.ndim - new.ndim + 1

    def swap(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.tensor != old:
            return None
        indices = [transform(i, swap) for i in e.indices]
        parts = zip(indices[first : first + count], old.shape[first : first + count], strict=True)
        joined = reduce(lambda total, part: total * part[1] + part[0], parts, as_expr(0))
        return Load(new, (*indices[:first], joined, *indices[first + count :]))

    return replace(op, body=map_bodies(op, lambda e: transform(e, swap)))
