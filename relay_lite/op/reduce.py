"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.topi.reduction import reduced_shape

from ..ir.errors import GraphError
from ..ir.extents import bounds
from ..ir.make import call
from ..ir.nodes import Call, Expr, Tuple
from ..ir.op_registry import Attrs, Compute, Infer, Numpy, OpPattern
from ..ir.types import TensorType, Type
from .along_sizes import counted
from .define import Array, Shape, define, floats, numbers, same_dtype, some_axes, tensors
from .elementwise import sqrt

Axis = int | Sequence[int] | None


def _axes(ndim: int, attrs: Attrs, what: str) -> Shape:
    return some_axes(attrs["axis"], ndim, what, attrs["exclude"])


def _reduced(x: TensorType, attrs: Attrs, what: str, dtype: str) -> TensorType:
    axes = _axes(len(x.shape), attrs, what)
    shape = reduced_shape(x.shape, axes, attrs["keepdims"])
    full = 0 not in [x.shape[d] for d in axes]
    require(full, GraphError, what, "there must be something to reduce", shape=x.shape, axes=axes)
    return TensorType(shape, dtype)


def _reduce_te(te: Callable[..., Tensor], x: Tensor, attrs: Attrs, what: str) -> Tensor:
    axes = _axes(x.ndim, attrs, what)
    return te(x, axes, attrs["keepdims"]) if axes else topi.cpp.identity(x)


def _define(name: str, infer: Infer, meaning: Numpy, compute: Compute, **more: Any) -> None:
    define(name, OpPattern.COMM_REDUCE, infer, meaning, compute, axis=None, keepdims=False, exclude=False, **more)


def _define_value(name: str, check: Callable[[TensorType, str], str], numpy: Callable[..., Any], te: Any) -> None:
    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensors(types, 1, name)
        return _reduced(x, attrs, name, check(x, name))

    def meaning(args: Sequence[Any], attrs: Attrs) -> Array:
        (x,) = args
        return np.asarray(numpy(x, axis=_axes(x.ndim, attrs, name), keepdims=attrs["keepdims"]), x.dtype)

    _define(name, infer, meaning, lambda args, attrs, target: [_reduce_te(te, args[0], attrs, name)])


def _bool(x: TensorType, what: str) -> str:
    require(x.dtype == "bool", GraphError, what, "a tensor of bool is needed", dtype=x.dtype)
    return x.dtype


_define_value("sum", numbers, np.sum, topi.sum)
_define_value("prod", numbers, np.prod, topi.prod)
_define_value("max", numbers, np.max, topi.max)
_define_value("min", numbers, np.min, topi.min)
_define_value("all", _bool, np.all, topi.all)
_define_value("any", _bool, np.any, topi.any)


# -------------------------------------------------------------------------------------- positions of extremes


def _flat_axes(x: Array, axes: Shape) -> Array:
    """The reduced dimensions as one, the last."""
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = [*[x.shape[d] for d in kept], math.prod([x.shape[d] for d in axes])]
    return np.reshape(x.transpose([*kept, *axes]), shape)


def _define_position(name: str, numpy: Callable[..., Any], te: Any) -> None:
    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensors(types, 1, name)
        numbers(x, name)
        require(len(_axes(len(x.shape), attrs, name)) > 0, GraphError, name, "an axis is needed", shape=x.shape)
        return _reduced(x, attrs, name, "int32")

    def meaning(args: Sequence[Any], attrs: Attrs) -> Array:
        (x,) = args
        axes = _axes(x.ndim, attrs, name)
        found = np.asarray(numpy(_flat_axes(x, axes), -1), np.int32)
        return found.reshape(reduced_shape(x.shape, axes, attrs["keepdims"]))

    _define(name, infer, meaning, lambda args, attrs, target: [_reduce_te(te, args[0], attrs, name)])


_define_position("argmax", np.argmax, topi.argmax)
_define_position("argmin", np.argmin, topi.argmin)


# ---------------------------------------------------------------------------------------- mean and variance


def _mean_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "mean")
    return _reduced(x, attrs, "mean", floats(x, "mean"))


def _mean_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    (x,) = args
    return np.asarray(x.mean(_axes(x.ndim, attrs, "mean"), keepdims=attrs["keepdims"]), x.dtype)


def _count(shape: Shape, attrs: Attrs, what: str) -> int:
    return math.prod([shape[d] for d in _axes(len(shape), attrs, what)])


def _mean_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    (x,) = args
    count = counted(_count(x.shape, attrs, "mean"), x.dtype)
    return [topi.divide(_reduce_te(topi.sum, x, attrs, "mean"), count)]


_define("mean", _mean_type, _mean_numpy, _mean_te)


def _variance_type(types: Sequence[Type], attrs: Attrs) -> Type:
    x, mean = tensors(types, 2, "variance")
    floats(x, "variance")
    same_dtype([x, mean], "variance")
    want = reduced_shape(x.shape, _axes(len(x.shape), attrs, "variance"), True)
    require(mean.shape == want, GraphError, "variance", f"the mean must have the shape {want}", mean=mean.shape)
    ok = bounds(_count(x.shape, attrs, "variance"))[0] > bool(attrs["unbiased"])
    require(ok, GraphError, "variance", "there are too few elements", shape=x.shape, unbiased=attrs["unbiased"])
    return _reduced(x, attrs, "variance", x.dtype)


def _variance_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    x, mean = args
    axes = _axes(x.ndim, attrs, "variance")
    total = np.square(x - mean).sum(axes, keepdims=attrs["keepdims"])
    return np.asarray(total / (_count(x.shape, attrs, "variance") - bool(attrs["unbiased"])), x.dtype)


def _variance_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    x, mean = args
    difference = topi.subtract(x, mean)
    squares = topi.multiply(difference, difference)
    count = _count(x.shape, attrs, "variance") - bool(attrs["unbiased"])
    total = _reduce_te(topi.sum, squares, attrs, "variance")
    return [topi.divide(total, counted(count, x.dtype))]


_define("variance", _variance_type, _variance_numpy, _variance_te, unbiased=False)


# ---------------------------------------------------------------------------------------------------- calls


def _call(name: str, doc: str) -> Callable[..., Call]:
    def apply(data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Call:
        return call(name, data, axis=axis, keepdims=keepdims, exclude=exclude)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{doc} over `axis` (all when None; `exclude`: over the others); `keepdims` leaves them as 1."
    return apply


sum = _call("sum", "The sum")
prod = _call("prod", "The product")
max = _call("max", "The maximum")
min = _call("min", "The minimum")
all = _call("all", "Whether all elements of a bool tensor hold,")
any = _call("any", "Whether some element of a bool tensor holds,")
argmax = _call("argmax", "The int32 position of the first maximum (row-major over several axes)")
argmin = _call("argmin", "The int32 position of the first minimum (row-major over several axes)")
mean = _call("mean", "The mean")


def variance(
    data: Expr,
    axis: Axis = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Expr | None = None,
) -> Call:
    """The mean square of the distance from the mean; `unbiased` divides by one element less.

    `with_mean` is the mean (with `keepdims`) when it is known already.
    """
    known = mean(data, axis, True, exclude) if with_mean is None else with_mean
    return call("variance", data, known, axis=axis, keepdims=keepdims, exclude=exclude, unbiased=unbiased)


def std(data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False) -> Call:
    """The square root of the variance."""
    return sqrt(variance(data, axis, keepdims, exclude, unbiased))


def mean_variance(
    data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> Tuple:
    """The mean and the variance as a tuple."""
    known = mean(data, axis, True, exclude)
    spread = variance(data, axis, keepdims, exclude, unbiased, with_mean=known)
    return Tuple((known if keepdims else mean(data, axis, False, exclude), spread))
