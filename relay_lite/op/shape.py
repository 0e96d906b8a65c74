"""Operators that keep the elements and their number, and change how they are indexed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.expr.expr import SizeVar
from te_lite.topi.broadcast import read_broadcast
from te_lite.topi.utils import ax_compute

from ..ir.errors import GraphError
from ..ir.extents import bounds, extent, filled, is_open, product
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .along_sizes import extents
from .define import Array, Shape, dtype_of, integer, integers, one_axis, operator, some_axes, tensors

LARGE, TILE = 1 << 20, 256
"""Elements of an array, and the side of the tiles that it is permuted in."""


def _expand_dims_shape(shape: Shape, attrs: Attrs) -> Shape:
    at = one_axis(attrs["axis"], len(shape) + 1, "expand_dims")
    count = integer(attrs["num_newaxis"], "expand_dims", "num_newaxis", 0)
    return shape[:at] + (1,) * count + shape[at:]


def _expand_dims_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "expand_dims")
    return TensorType(_expand_dims_shape(x.shape, attrs), x.dtype)


def _squeezed(shape: Shape, attrs: Attrs) -> Shape:
    """The axes that are dropped."""
    if attrs["axis"] is None:
        law = "the axis must be named beside an open extent that may be 1"
        require(all(not is_open(n) or bounds(n)[0] > 1 for n in shape), GraphError, "squeeze", law, shape=shape)
        return tuple(d for d, n in enumerate(shape) if n == 1)
    drop = some_axes(attrs["axis"], len(shape), "squeeze")
    one = all(shape[d] == 1 for d in drop)
    require(one, GraphError, "squeeze", "only dimensions of 1 can be dropped", shape=shape, axis=attrs["axis"])
    return drop


def _squeeze_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "squeeze")
    drop = _squeezed(x.shape, attrs)
    return TensorType(tuple(n for d, n in enumerate(x.shape) if d not in drop), x.dtype)


def resolve(newshape: Sequence[int], shape: Shape) -> Shape:
    """The shape that `newshape` asks for when the data have `shape`.

    0 copies the dimension at that place, -1 is what is left over (once), -2 copies all dimensions that remain, -3 is
    the product of the next two, and -4 splits the next one into the two numbers that follow (one may be -1).
    Raises GraphError when the number of elements differs.
    """
    source = _Source(newshape, shape)
    wanted, out = list(newshape), list[int]()
    while wanted:
        out += source.extents(wanted.pop(0), wanted)
    if is_open(*out, *shape):
        return filled(out, shape, "reshape")
    return topi.utils.resolve_shape(out, math.prod(shape), "reshape")


@dataclass
class _Source:
    """The dimensions of the data that are not yet used: those from `first` on."""

    newshape: Sequence[int]
    shape: Shape
    first: int = 0

    def take(self, count: int) -> Shape:
        """The next dimensions."""
        self.first += count
        enough = self.first <= len(self.shape)
        law = "there is no dimension to copy"
        require(enough, GraphError, "reshape", law, newshape=self.newshape, shape=self.shape)
        return self.shape[self.first - count : self.first]

    def extents(self, code: int, behind: list[int]) -> Sequence[int]:
        """What a number of `newshape` stands for; -4 takes two numbers from those `behind` it."""
        match code:
            case SizeVar():
                pass
            case 0:
                return self.take(1)
            case -2:
                return self.take(max(len(self.shape) - self.first, 0))
            case -3:
                return [product(self.take(2))]
            case -4:
                return self.parts(behind)
        known = is_open(code) or code > 0 or code == -1
        require(known, GraphError, "reshape", "no such code", newshape=self.newshape)
        self.first += 1
        return [code]

    def parts(self, behind: list[int]) -> Sequence[int]:
        """The next dimension as two."""
        require(len(behind) > 1, GraphError, "reshape", "-4 is followed by two numbers", newshape=self.newshape)
        (whole,), parts = self.take(1), [behind.pop(0), behind.pop(0)]
        return [extent(whole // -math.prod(parts)) if p == -1 else p for p in parts]


def _reshape_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "reshape")
    return TensorType(_resolved(attrs, x.shape), x.dtype)


def _resolved(attrs: Attrs, shape: Shape) -> Shape:
    return resolve(extents(attrs["newshape"], "reshape"), shape)


def _batch_flatten_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.batch_flatten")
    require(len(x.shape) > 0, GraphError, "nn.batch_flatten", "there must be a dimension", shape=x.shape)
    return TensorType((x.shape[0], math.prod(x.shape[1:])), x.dtype)


def _order(axes: Any, ndim: int) -> Shape:
    """The axes of a transposition counted from the front; None reverses them."""
    order = tuple(range(ndim))[::-1] if axes is None else integers(axes, "transpose")
    order = tuple(one_axis(a, ndim, "transpose") for a in order)
    whole = sorted(order) == list(range(ndim))
    require(whole, GraphError, "transpose", f"the axes must be a permutation of {ndim} axes", axes=axes)
    return order


def permuted(x: Array, axes: Sequence[int]) -> Array:
    """`x` with permuted axes, contiguous.

    NumPy walks through the result row by row, and a row of a large matrix reads a line of memory for each element; here
    what it reads at a time stays in the caches.
    """
    view = x.transpose(axes)
    if x.size < LARGE or view.ndim < 2 or view.flags.c_contiguous or axes[-1] == x.ndim - 1:
        return np.ascontiguousarray(view)
    out = np.empty(view.shape, view.dtype)
    lead: list[Any] = [slice(None)] * list(axes).index(x.ndim - 1)
    for i in range(0, view.shape[len(lead)], TILE):
        for j in range(0, view.shape[-1], TILE):
            tile: Any = (*lead, slice(i, i + TILE), ..., slice(j, j + TILE))
            out[tile] = view[tile]
    return out


def _transpose_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "transpose")
    return TensorType(tuple(x.shape[a] for a in _order(attrs["axes"], len(x.shape))), x.dtype)


def _moves(attrs: Attrs, ndim: int) -> Shape:
    """Where each dimension of `dst_layout` comes from."""
    source, target = attrs["src_layout"], attrs["dst_layout"]
    known = all(isinstance(v, str) and v.isalpha() and len(set(v)) == len(v) == ndim for v in (source, target))
    law = f"layouts are {ndim} different letters in two orders"
    ok = known and set(source) == set(target)
    require(ok, GraphError, "layout_transform", law, src_layout=source, dst_layout=target)
    return tuple(source.index(letter) for letter in target)


def _layout_transform_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "layout_transform")
    return TensorType(tuple(x.shape[d] for d in _moves(attrs, len(x.shape))), x.dtype)


def _layout_transform_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Any]:
    (x,) = args
    moves = _moves(attrs, x.ndim)
    shape = [x.shape[d] for d in moves]
    read = [moves.index(d) for d in range(x.ndim)]
    return [ax_compute(shape, lambda *i: x[[i[k] for k in read]], "T_layout_trans", topi.tag.INJECTIVE)]


def _broadcast_to_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "broadcast_to")
    shape = extents(attrs["shape"], "broadcast_to")
    skip = len(shape) - len(x.shape)
    fits = skip >= 0 and all(n in (1, m) for n, m in zip(x.shape, shape[max(skip, 0) :], strict=True))
    require(fits, GraphError, "broadcast_to", "the tensor does not fit the shape", tensor=x.shape, shape=shape)
    return TensorType(shape, x.dtype)


def _broadcast_to_te(x: Tensor, shape: Shape) -> Tensor:
    if not is_open(*shape):
        return topi.broadcast_to(x, shape)
    return ax_compute(shape, lambda *i: read_broadcast(x, i, shape), "T_broadcast_to", topi.tag.BROADCAST)


def _shape_of_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "shape_of")
    return TensorType((len(x.shape),), dtype_of(attrs["dtype"], "int32", "shape_of"))


def _shape_of_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    return np.array(args[0].shape, attrs["dtype"] or "int32")


# ---------------------------------------------------------------------------------------------------- calls


@operator(
    "expand_dims",
    OpPattern.BROADCAST,
    _expand_dims_type,
    lambda args, attrs: args[0].reshape(_expand_dims_shape(args[0].shape, attrs)),
    lambda args, attrs, target: [topi.expand_dims(args[0], attrs["axis"], attrs["num_newaxis"])],
    axis=0,
)
def expand_dims(data: Expr, axis: int, num_newaxis: int = 1) -> Call:
    """Insert `num_newaxis` dimensions of 1 before `axis`, counted in the result when negative."""
    return call("expand_dims", data, axis=axis, num_newaxis=num_newaxis)


@operator(
    "squeeze",
    OpPattern.INJECTIVE,
    _squeeze_type,
    lambda args, attrs: np.squeeze(args[0], _squeezed(args[0].shape, attrs)),
    lambda args, attrs, target: [topi.squeeze(args[0], _squeezed(args[0].shape, attrs))],
)
def squeeze(data: Expr, axis: int | Sequence[int] | None = None) -> Call:
    """Drop the dimensions `axis`, which are 1; all dimensions of 1 when None."""
    return call("squeeze", data, axis=axis)


@operator(
    "reshape",
    OpPattern.INJECTIVE,
    _reshape_type,
    lambda args, attrs: args[0].reshape(_resolved(attrs, args[0].shape)),
    lambda args, attrs, target: [topi.reshape(args[0], _resolved(attrs, args[0].shape))],
    newshape=(),
)
def reshape(data: Expr, newshape: int | Sequence[int]) -> Call:
    """The elements in row-major order in another shape; 0 and -1 to -4 are codes, see `resolve`."""
    return call("reshape", data, newshape=extents(newshape, "reshape"))


@operator(
    "nn.batch_flatten",
    OpPattern.INJECTIVE,
    _batch_flatten_type,
    lambda args, attrs: args[0].reshape(args[0].shape[0], math.prod(args[0].shape[1:])),
    lambda args, attrs, target: [topi.nn.flatten(args[0])],
)
def batch_flatten(data: Expr) -> Call:
    """[N, ...] as [N, product of the rest]."""
    return call("nn.batch_flatten", data)


@operator(
    "transpose",
    OpPattern.INJECTIVE,
    _transpose_type,
    lambda args, attrs: permuted(args[0], _order(attrs["axes"], args[0].ndim)),
    lambda args, attrs, target: [topi.transpose(args[0], _order(attrs["axes"], args[0].ndim))],
)
def transpose(data: Expr, axes: Sequence[int] | None = None) -> Call:
    """Permute the dimensions: dimension k of the result is `axes[k]` of `data`; reversed when None."""
    return call("transpose", data, axes=axes)


@operator(
    "layout_transform",
    OpPattern.INJECTIVE,
    _layout_transform_type,
    lambda args, attrs: permuted(args[0], _moves(attrs, args[0].ndim)),
    _layout_transform_te,
    src_layout="",
    dst_layout="",
)
def layout_transform(data: Expr, src_layout: str, dst_layout: str) -> Call:
    """Permute the dimensions from one layout, as "NCHW", to another, as "NHWC"."""
    return call("layout_transform", data, src_layout=src_layout, dst_layout=dst_layout)


@operator(
    "broadcast_to",
    OpPattern.BROADCAST,
    _broadcast_to_type,
    lambda args, attrs: np.broadcast_to(args[0], integers(attrs["shape"], "broadcast_to")).copy(),
    lambda args, attrs, target: [_broadcast_to_te(args[0], extents(attrs["shape"], "broadcast_to"))],
    shape=(),
)
def broadcast_to(data: Expr, shape: Sequence[int]) -> Call:
    """Stretch dimensions of 1, and put new ones in front, until `data` has `shape`."""
    return call("broadcast_to", data, shape=extents(shape, "broadcast_to"))


@operator("shape_of", OpPattern.OPAQUE, _shape_of_type, _shape_of_numpy, None)
def shape_of(data: Expr, dtype: str = "int32") -> Call:
    """The shape as a vector."""
    return call("shape_of", data, dtype=dtype)
