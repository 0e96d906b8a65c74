"""Which elements of every tensor some points of a stage depend on, followed through all stages between.

Points are a product of groups: the values of axes that hang together, so that a tile of a thousand by a thousand terms
is two thousand numbers.  Indices and guards that share axes are looked at together, point by point; the result is exact
but for indices and guards that depend on data: such an index may meet its whole dimension, such a guard always holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from te_lite.computation.tensor import ComputeOp, Operation
from te_lite.errors import LowerError, require
from te_lite.expr.expr import Call, Expr, Load, Not, Reduce, Var
from te_lite.expr.visit import children, free_vars
from te_lite.schedule.state import root_extent
from te_lite.verify.verify_points import computable, value_at
from te_lite.verify.verify_span import Spans

MOST_POINTS = 1 << 22
"""Of one group."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """The values that some axes take together: int64 [points, axes]."""

    axes: tuple[Var, ...]
    values: Array


Points = tuple[Group, ...]
Mask = Array
"""Which elements of a tensor are touched: bool, of its shape."""


def touched(ops: Sequence[Operation], k: int, points: Points) -> dict[int, Mask]:
    """The elements of each operation before number k that its `points` need, reductions inside of others whole.

    Raises LowerError where there are too many points to look at.
    """
    index = {op.key: j for j, op in enumerate(ops)}
    found: dict[int, Mask] = {}
    for j in range(k, -1, -1):
        op = ops[j]
        if not isinstance(op, ComputeOp) or (j != k and j not in found):
            continue
        at = points if j == k else _points_of(found[j], op)
        for load, guards in _loads_of(op):
            producer = index[load.tensor.op.key]
            mask = found.setdefault(producer, np.zeros(load.tensor.shape, bool))
            mask |= _met(load, guards, at)
    return found


def _loads_of(op: ComputeOp) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    for body in op.body[:1] if op.reduction is not None else op.body:
        yield from _loads(body, ())


def _loads(e: Expr, guards: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """The loads of an expression with what must hold for each to be done."""
    match e:
        case Call(func="if_then_else", args=(cond, a, b)):
            yield from _loads(cond, guards)
            yield from _loads(a, (*guards, cond))
            yield from _loads(b, (*guards, Not(cond)))
        case Reduce(condition=Expr() as cond):
            yield from _loads(cond, guards)
            for source in e.sources:
                yield from _loads(source, (*guards, cond))
        case _:
            if isinstance(e, Load):
                yield e, guards
            for child in children(e):
                yield from _loads(child, guards)


def _points_of(mask: Mask, op: ComputeOp) -> Points:
    """The touched elements of an operation, and all values of its reduction axes."""
    rows = [
        np.flatnonzero(mask.any(axis=tuple([d for d in range(mask.ndim) if d != axis]))) for axis in range(mask.ndim)
    ]
    if int(np.prod([len(row) for row in rows])) == int(mask.sum()):
        groups = [Group((v,), row[:, None]) for v, row in zip(op.axis, rows, strict=True)]
    else:
        groups = [Group(op.axis, np.argwhere(mask))]
    inner = [Group((v,), np.arange(root_extent(v, op.axis))[:, None]) for v in op.reduce_axis]
    return (*groups, *inner)


@dataclass(frozen=True)
class Piece:
    """A dimension of a tensor and its index, or a guard (-1)."""

    dim: int
    value: Expr


def _met(load: Load, guards: Sequence[Expr], points: Points) -> Mask:
    """The elements that a load meets."""
    shape = load.tensor.shape
    spans = Spans({v: _range(g.values[:, n]) for g in points for n, v in enumerate(g.axes) if len(g.values)})
    pieces = [Piece(d, e) for d, e in enumerate(load.indices)] + [Piece(-1, e) for e in guards]
    known = [p for p in pieces if computable(p.value, spans)]
    mask = np.ones([1] * len(shape), bool)
    for group, own in _together(points, known):
        mask = mask & _part(group, own, shape)
    return np.broadcast_to(mask, shape)


def _range(values: Array) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _together(points: Points, pieces: Sequence[Piece]) -> Iterator[tuple[Group, list[Piece]]]:
    """The pieces that share axes, directly or through others, each with the values of all axes of theirs."""
    parts: list[tuple[set[int], list[Piece]]] = []
    for piece in pieces:
        uses = {n for n, g in enumerate(points) if set(g.axes) & free_vars(piece.value)}
        near = [part for part in parts if part[0] & uses]
        parts = [part for part in parts if part not in near]
        parts.append((uses.union(*[u for u, _ in near]), [*[p for _, own in near for p in own], piece]))
    for uses, own in parts:
        yield joined([points[n] for n in sorted(uses)]), own


def joined(groups: Sequence[Group]) -> Group:
    """The product of groups as one.  Raises LowerError where it is too large."""
    count = reduce(lambda n, g: n * len(g.values), groups, 1)
    require(count <= MOST_POINTS, LowerError, "tile", f"at most {MOST_POINTS} points are looked at together", got=count)
    grid = np.indices([len(g.values) for g in groups]).reshape(len(groups), count)
    columns = [g.values[at] for g, at in zip(groups, grid, strict=True)]
    values = np.concatenate(columns, axis=1) if columns else np.zeros((1, 0), np.int64)
    return Group(tuple([v for g in groups for v in g.axes]), values)


def _part(group: Group, pieces: Sequence[Piece], shape: Sequence[int]) -> Mask:
    """Where the indices among the pieces go while the guards hold, over all other dimensions."""
    at = dict(zip(group.axes, group.values.T, strict=True))
    count = len(group.values)
    keep = np.ones(count, bool)
    columns: dict[int, Array] = {}
    for piece in pieces:
        values = np.broadcast_to(value_at(piece.value, at), count)
        if piece.dim < 0:
            keep &= values
        else:
            columns[piece.dim] = values
            keep &= (values >= 0) & (values < shape[piece.dim])
    mask = np.zeros([size if d in columns else 1 for d, size in enumerate(shape)], bool)
    mask[tuple([columns[d][keep] if d in columns else 0 for d in range(len(shape))])] = keep.any()
    return mask
