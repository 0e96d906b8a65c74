"""Operators that put tensors together and take them apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import topi
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import as_tuple, call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, TupleType, Type
from .define import Array, fields, integer, integers, one_axis, operator, tensors


def _concatenate_type(types: Sequence[Type], attrs: Attrs) -> Type:
    parts = fields(types, "concatenate")
    shapes = [t.shape for t in parts]
    law = "all tensors must have the same number of dimensions"
    require(len({len(s) for s in shapes}) == 1, GraphError, "concatenate", law, shapes=shapes)
    axis = one_axis(attrs["axis"], len(shapes[0]), "concatenate")
    same = len({s[:axis] + s[axis + 1 :] for s in shapes}) == 1
    require(same, GraphError, "concatenate", "the other dimensions must agree", axis=axis, shapes=shapes)
    first = shapes[0]
    return TensorType((*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :]), parts[0].dtype)


def _stack_type(types: Sequence[Type], attrs: Attrs) -> Type:
    parts = fields(types, "stack")
    shapes = [t.shape for t in parts]
    require(len(set(shapes)) == 1, GraphError, "stack", "all shapes must be equal", shapes=shapes)
    axis = one_axis(attrs["axis"], len(shapes[0]) + 1, "stack")
    return TensorType((*shapes[0][:axis], len(shapes), *shapes[0][axis:]), parts[0].dtype)


def _cuts(size: int, attrs: Attrs) -> list[int]:
    """Where the parts begin, and the end."""
    sections = attrs["indices_or_sections"]
    if not isinstance(sections, tuple):
        count = integer(sections, "split", "the number of parts", 1)
        equal = size % count == 0
        require(equal, GraphError, "split", "the parts must be equal", extent=size, sections=count)
        return [k * (size // count) for k in range(count + 1)]
    cuts = [0, *integers(sections, "split"), size]
    rising = all(a < b for a, b in itertools.pairwise(cuts))
    law = "the positions must rise and lie inside the axis"
    require(rising, GraphError, "split", law, positions=sections, extent=size)
    return cuts


def _split_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "split")
    axis = one_axis(attrs["axis"], len(x.shape), "split")
    sizes = [b - a for a, b in itertools.pairwise(_cuts(x.shape[axis], attrs))]
    return TupleType(tuple(TensorType((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes))


def _split_numpy(args: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    cuts = _cuts(args[0].shape[attrs["axis"]], attrs)
    return tuple(np.ascontiguousarray(p) for p in np.split(args[0], cuts[1:-1], attrs["axis"]))


def _tile_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "tile")
    reps = integers(attrs["reps"], "tile")
    require(all(r >= 0 for r in reps), GraphError, "tile", "no count must be negative", reps=reps)
    ndim = max(len(reps), len(x.shape))
    shape, counts = ((1,) * (ndim - len(v)) + v for v in (x.shape, reps))
    return TensorType(tuple(n * c for n, c in zip(shape, counts, strict=True)), x.dtype)


def _repeat_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "repeat")
    axis = one_axis(attrs["axis"], len(x.shape), "repeat")
    count = integer(attrs["repeats"], "repeat", "repeats", 1)
    return TensorType((*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]), x.dtype)


# ---------------------------------------------------------------------------------------------------- calls


@operator(
    "concatenate",
    OpPattern.INJECTIVE,
    _concatenate_type,
    lambda args, attrs: np.concatenate(args[0], attrs["axis"]),
    lambda args, attrs, target: [topi.concatenate(args[0], attrs["axis"])],
)
def concatenate(data: Expr | Sequence[Expr], axis: int = 0) -> Call:
    """Join the tensors of a tuple (or of a list) along `axis`."""
    return call("concatenate", as_tuple(data), axis=axis)


@operator(
    "stack",
    OpPattern.INJECTIVE,
    _stack_type,
    lambda args, attrs: np.stack(args[0], attrs["axis"]),
    lambda args, attrs, target: [topi.stack(args[0], attrs["axis"])],
)
def stack(data: Expr | Sequence[Expr], axis: int = 0) -> Call:
    """Join tensors of equal shape along a new dimension `axis`."""
    return call("stack", as_tuple(data), axis=axis)


@operator(
    "split",
    OpPattern.INJECTIVE,
    _split_type,
    _split_numpy,
    lambda args, attrs, target: topi.split(args[0], attrs["indices_or_sections"], attrs["axis"]),
    indices_or_sections=1,
)
def split(data: Expr, indices_or_sections: int | Sequence[int], axis: int = 0) -> Call:
    """Cut along `axis` into equal parts (a number) or at the given positions: a tuple of tensors."""
    return call("split", data, indices_or_sections=indices_or_sections, axis=axis)


@operator(
    "tile",
    OpPattern.BROADCAST,
    _tile_type,
    lambda args, attrs: np.tile(args[0], attrs["reps"]),
    lambda args, attrs, target: [topi.tile(args[0], integers(attrs["reps"], "tile"))],
    reps=(),
)
def tile(data: Expr, reps: int | Sequence[int]) -> Call:
    """The whole tensor repeated `reps[d]` times along each dimension."""
    return call("tile", data, reps=integers(reps, "tile"))


@operator(
    "repeat",
    OpPattern.BROADCAST,
    _repeat_type,
    lambda args, attrs: np.repeat(args[0], attrs["repeats"], attrs["axis"]),
    lambda args, attrs, target: [topi.repeat(args[0], attrs["repeats"], attrs["axis"])],
    repeats=1,
    axis=0,
)
def repeat(data: Expr, repeats: int, axis: int) -> Call:
    """Every element repeated `repeats` times along `axis`."""
    return call("repeat", data, repeats=repeats, axis=axis)
