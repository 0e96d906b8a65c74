"""The mean of rows and how far their elements are from it, in one reading of them.

What is known of some elements is how many they are, their mean and the sum of the squared distances from it.  Chan's
formula gives the same of two sets together:

    n = na + nb    d = mb - ma    m = ma + d * nb / n    q = qa + qb + d * d * na * nb / n

So a variance is the sum of terms that are never negative; a sum of squares less the square of a sum has none of its
digits left where the mean is large.  A mean is rounded to its own size at each step: of data whose offset is thousands
of times their spread, one that is near should be taken away first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from te_lite import Tensor
from te_lite.errors import require
from te_lite.expr.expr import Expr as Value
from te_lite.expr.expr import call as intrinsic
from te_lite.expr.expr import const
from te_lite.expr.own_reducers import comm_reducer
from te_lite.topi.reduction import reduce_axes, reduced_shape, source_indices
from te_lite.topi.tag import COMM_REDUCE
from te_lite.topi.utils import ax_compute

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, TupleType, Type
from .define import Array, Shape, operator, some_axes, tensors

DTYPES = "float32", "float64"
TINY = 1e-30
"""Nothing beside a count that is not 0; the reciprocal of its root has a square."""


def _together(a: Sequence[Value], b: Sequence[Value]) -> tuple[Value, Value, Value]:
    """Counts, means and squared distances of two sets; one reciprocal root is cheaper than a division."""
    n, d = a[0] + b[0], b[1] - a[1]
    root = intrinsic("rsqrt", n + const(TINY, n.dtype))
    share = b[0] * root * root
    return n, a[1] + d * share, a[2] + b[2] + d * d * a[0] * share


_moments_of = comm_reducer(_together, lambda *dtypes: [const(0, d) for d in dtypes], "moments")


def _axes(ndim: int, attrs: Attrs) -> Shape:
    return some_axes(attrs["axis"], ndim, "moments", False)


def _type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "moments")
    require(x.dtype in DTYPES, GraphError, "moments", "counts and distances need float32 or float64", dtype=x.dtype)
    axes = _axes(len(x.shape), attrs)
    full = bool(axes) and 0 not in [x.shape[d] for d in axes]
    require(full, GraphError, "moments", "there must be something to reduce", shape=x.shape, axes=axes)
    return TupleType((TensorType(reduced_shape(x.shape, axes, True), x.dtype),) * 3)


def _numpy(args: Sequence[Any], attrs: Attrs) -> tuple[Array, Array, Array]:
    (x,) = args
    axes = _axes(x.ndim, attrs)
    mean = np.asarray(x.mean(axes, keepdims=True), x.dtype)
    count = np.full_like(mean, prod([x.shape[d] for d in axes]))
    return count, mean, np.asarray(np.square(x - mean).sum(axes, keepdims=True), x.dtype)


def _te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    (x,) = args
    axes = _axes(x.ndim, attrs)
    inner = reduce_axes(x, axes)

    def element(*i: Value) -> Any:
        one = x[source_indices(i, axes, inner, x.ndim, True)]
        return _moments_of((const(1, x.dtype), one, const(0, x.dtype)), axis=inner)

    return list(ax_compute(reduced_shape(x.shape, axes, True), element, f"{x.op.name}_moments", COMM_REDUCE))


@operator("moments", OpPattern.COMM_REDUCE, _type, _numpy, _te)
def moments(data: Expr, axis: int | Sequence[int] | None = None) -> Call:
    """A tuple: how many elements there are over `axis` (all when None), their mean, and the sum of the squared
    distances from it, in the dtype of `data`, float32 or float64; the axes stay as 1.

    Raises GraphError for other dtypes, and where there is nothing to reduce.
    """
    return call("moments", data, axis=axis)
