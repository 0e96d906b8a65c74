"""Softmax, normalisations, and dropout as it acts when a network is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.expr.arithmetic import power
from te_lite.expr.expr import const

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, TupleGetItem
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, TupleType, Type
from .along_sizes import counted
from .binary import along
from .define import Array, Shape, define, floats, integer, one_axis, operator, same_dtype, some_axes, tensors, vector

# ------------------------------------------------------------------------------------------------- softmax


def _softmax(a: Array, axis: int) -> Array:
    """`exp(a - max) / sum` along `axis`."""
    e = np.exp(a - a.max(axis, keepdims=True, initial=-np.inf))
    return np.asarray(e / e.sum(axis, keepdims=True))


def _log_softmax(a: Array, axis: int) -> Array:
    """The logarithm of `_softmax`."""
    shifted = a - a.max(axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def _define_softmax(name: str, numpy: Any, te: Any) -> None:
    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensors(types, 1, name)
        floats(x, name)
        one_axis(attrs["axis"], len(x.shape), name)
        return x

    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        infer,
        lambda args, attrs: numpy(args[0], attrs["axis"]),
        lambda args, attrs, target: [te(args[0], attrs["axis"])],
        axis=-1,
    )


_define_softmax("nn.softmax", _softmax, topi.nn.softmax)
_define_softmax("nn.log_softmax", _log_softmax, topi.nn.log_softmax)


# --------------------------------------------------------------------------------------------- normalisations


def _affine_type(types: Sequence[Type], attrs: Attrs, names: Sequence[str], what: str) -> TensorType:
    """Data and vectors that belong to dimension `axis`."""
    data, *vectors = tensors(types, 1 + len(names), what)
    floats(data, what)
    same_dtype([data, *vectors], what)
    axis = one_axis(attrs["axis"], len(data.shape), what)
    for t, name in zip(vectors, names, strict=True):
        vector(t, data.shape[axis], what, name)
    return data


def _affine(out: Array, args: Sequence[Any], attrs: Attrs, axis: int) -> Array:
    """`out` times gamma plus beta, where they are wanted."""
    gamma, beta = (along(v, axis, out.ndim) for v in args[1:3])
    out = out * gamma if attrs["scale"] else out
    return np.asarray(out + beta if attrs["center"] else out)


def _normalised(x: Array, axes: Shape, epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    centred = centred - centred.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + x.dtype.type(epsilon)))


def _normalised_te(x: Tensor, axes: Shape, epsilon: float) -> Tensor:
    """`(x - mean) / sqrt(var + epsilon)` over `axes`; centred twice, as the first mean is rounded to the size of x."""
    count = counted(math.prod([x.shape[d] for d in axes]), x.dtype)
    centred = x
    for _ in range(2):
        centred = topi.subtract(centred, topi.divide(topi.sum(centred, axes, True), count))
    var = topi.divide(topi.sum(topi.multiply(centred, centred), axes, True), count)
    return topi.divide(centred, topi.cpp.sqrt(topi.add(var, const(epsilon, x.dtype))))


def _affine_te(out: Tensor, args: Sequence[Any], attrs: Attrs, axis: int) -> Tensor:
    gamma, beta = (topi.expand_dims(v, 1, out.ndim - axis - 1) if axis < out.ndim - 1 else v for v in args[1:3])
    out = topi.multiply(out, gamma) if attrs["scale"] else out
    return topi.add(out, beta) if attrs["center"] else out


BATCH_VECTORS = ("gamma", "beta", "moving_mean", "moving_var")


def _batch_norm_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data = _affine_type(types, attrs, BATCH_VECTORS, "nn.batch_norm")
    mean, var = tensors(types, 5, "nn.batch_norm")[3:]
    return TupleType((data, mean, var))


def _batch_norm_numpy(args: Sequence[Any], attrs: Attrs) -> tuple[Array, Array, Array]:
    data, *_, mean, var = args
    axis = attrs["axis"]
    spread = np.sqrt(var + var.dtype.type(attrs["epsilon"]))
    out = (data - along(mean, axis, data.ndim)) / along(spread, axis, data.ndim)
    return _affine(out, args, attrs, axis), mean, var


def _batch_norm_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    data, gamma, beta, moving_mean, moving_var = args
    out, mean, var = topi.nn.batch_norm(
        data, gamma, beta, moving_mean, moving_var, attrs["axis"], attrs["epsilon"], attrs["center"], attrs["scale"]
    )
    return [out, topi.cpp.identity(mean), topi.cpp.identity(var)]


def _define_norm(name: str, axis: int, reduced: Any) -> None:
    """A normalisation over the dimensions `reduced(ndim, axis)`."""

    def meaning(args: Sequence[Any], attrs: Attrs) -> Array:
        at = attrs["axis"] % args[0].ndim
        return _affine(_normalised(args[0], reduced(args[0].ndim, at), attrs["epsilon"]), args, attrs, at)

    def te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
        at = attrs["axis"] % args[0].ndim
        return [_affine_te(_normalised_te(args[0], reduced(args[0].ndim, at), attrs["epsilon"]), args, attrs, at)]

    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        lambda types, attrs: _affine_type(types, attrs, ("gamma", "beta"), name),
        meaning,
        te,
        axis=axis,
        epsilon=1e-5,
        center=True,
        scale=True,
    )


_define_norm("nn.layer_norm", -1, lambda ndim, axis: (axis,))
_define_norm("nn.instance_norm", 1, lambda ndim, axis: tuple(d for d in range(ndim) if d not in (0, axis)))


def _grouped(shape: Shape, attrs: Attrs) -> tuple[Shape, Shape]:
    """The shape with the channels as (groups, channels of a group), and the dimensions to normalise over."""
    at = attrs["axis"] % len(shape)
    groups = attrs["num_groups"]
    split = (*shape[:at], groups, shape[at] // groups, *shape[at + 1 :])
    return split, tuple(d for d in range(len(split)) if d not in (0, at))


def _group_norm_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data = _affine_type(types, attrs, ("gamma", "beta"), "nn.group_norm")
    axis = one_axis(attrs["axis"], len(data.shape), "nn.group_norm")
    groups = integer(attrs["num_groups"], "nn.group_norm", "num_groups", 1)
    fits = data.shape[axis] % groups == 0 and axis > 0
    law = "num_groups must divide the channels, which are not the first dimension"
    require(fits, GraphError, "nn.group_norm", law, num_groups=groups, data=data.shape, axis=axis)
    return data


def _group_norm_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    split, axes = _grouped(args[0].shape, attrs)
    out = _normalised(args[0].reshape(split), axes, attrs["epsilon"]).reshape(args[0].shape)
    return _affine(out, args, attrs, attrs["axis"])


def _group_norm_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    split, axes = _grouped(args[0].shape, attrs)
    out = topi.reshape(_normalised_te(topi.reshape(args[0], split), axes, attrs["epsilon"]), args[0].shape)
    return [_affine_te(out, args, attrs, attrs["axis"] % args[0].ndim)]


def _l2_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.l2_normalize")
    floats(x, "nn.l2_normalize")
    some_axes(attrs["axis"], len(x.shape), "nn.l2_normalize")
    return x


def _l2_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    (x,) = args
    squares = np.square(x).sum(some_axes(attrs["axis"], x.ndim, "nn.l2_normalize"), keepdims=True)
    return np.asarray(x / np.sqrt(np.maximum(squares, x.dtype.type(attrs["eps"]))))


def _l2_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    (x,) = args
    squares = topi.sum(topi.multiply(x, x), some_axes(attrs["axis"], x.ndim, "nn.l2_normalize"), True)
    return [topi.divide(x, topi.cpp.sqrt(topi.maximum(squares, const(attrs["eps"], x.dtype))))]


def _lrn_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.lrn")
    floats(x, "nn.lrn")
    one_axis(attrs["axis"], len(x.shape), "nn.lrn")
    integer(attrs["size"], "nn.lrn", "size", 1)
    return x


def _lrn_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    (x,) = args
    axis, size = attrs["axis"] % x.ndim, attrs["size"]
    before = (size - 1) // 2
    squares = np.pad(np.square(x), [(before, size - 1 - before) if d == axis else (0, 0) for d in range(x.ndim)])
    total = np.lib.stride_tricks.sliding_window_view(squares, size, axis).sum(-1, dtype=x.dtype)
    scale = power(attrs["bias"] + attrs["alpha"] / size * total, np.asarray(attrs["beta"], x.dtype))
    return np.asarray(x / scale, x.dtype)


def _dropout_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.dropout")
    floats(x, "nn.dropout")
    return TupleType((x, x))


# ---------------------------------------------------------------------------------------------------- calls


def softmax(data: Expr, axis: int = -1) -> Call:
    """`exp(x - max) / sum(exp(x - max))` along `axis`."""
    return call("nn.softmax", data, axis=axis)


def log_softmax(data: Expr, axis: int = -1) -> Call:
    """The logarithm of the softmax along `axis`."""
    return call("nn.log_softmax", data, axis=axis)


@operator("nn.batch_norm", OpPattern.OUT_ELEMWISE_FUSABLE, _batch_norm_type, _batch_norm_numpy, _batch_norm_te)
def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """A tuple: `(x - mean) / sqrt(var + epsilon) * gamma + beta`, the mean and the variance; vectors along `axis`.

    gamma is ignored without `scale`, beta without `center`.
    """
    return call("nn.batch_norm", data, gamma, beta, moving_mean, moving_var, axis=axis, epsilon=epsilon,
                center=center, scale=scale)  # fmt: skip


def layer_norm(
    data: Expr, gamma: Expr, beta: Expr, axis: int = -1, epsilon: float = 1e-5, center: bool = True, scale: bool = True
) -> Call:
    """Normalise over dimension `axis`; gamma and beta are vectors along it."""
    return call("nn.layer_norm", data, gamma, beta, axis=axis, epsilon=epsilon, center=center, scale=scale)


def instance_norm(
    data: Expr, gamma: Expr, beta: Expr, axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True
) -> Call:
    """Normalise each sample and channel (dimension `axis`) over the other dimensions."""
    return call("nn.instance_norm", data, gamma, beta, axis=axis, epsilon=epsilon, center=center, scale=scale)


@operator("nn.group_norm", OpPattern.OPAQUE, _group_norm_type, _group_norm_numpy, _group_norm_te, num_groups=1)
def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalise each sample and group of neighbouring channels; gamma and beta are vectors along `axis`."""
    return call("nn.group_norm", data, gamma, beta, num_groups=num_groups, axis=axis, epsilon=epsilon,
                center=center, scale=scale)  # fmt: skip


@operator("nn.l2_normalize", OpPattern.OUT_ELEMWISE_FUSABLE, _l2_type, _l2_numpy, _l2_te, eps=1e-5)
def l2_normalize(data: Expr, eps: float, axis: int | Sequence[int] | None = None) -> Call:
    """`x / sqrt(max(sum(x * x), eps))` over `axis`, all axes when None."""
    return call("nn.l2_normalize", data, eps=eps, axis=axis)


@operator(
    "nn.lrn",
    OpPattern.OPAQUE,
    _lrn_type,
    _lrn_numpy,
    lambda args, attrs, target: [topi.nn.lrn(args[0], *(attrs[k] for k in ("size", "axis", "alpha", "beta", "bias")))],
)
def lrn(data: Expr, size: int = 5, axis: int = 1, bias: float = 2.0, alpha: float = 1e-5, beta: float = 0.75) -> Call:
    """`x / (bias + alpha / size * sum(x * x)) ** beta`, the sum over `size` neighbours along `axis`."""
    return call("nn.lrn", data, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta)


def dropout(data: Expr, rate: float = 0.5) -> TupleGetItem:
    """`data` itself: nothing is dropped when a network is used."""
    return TupleGetItem(dropout_raw(data, rate), 0)


@operator(
    "nn.dropout",
    OpPattern.OPAQUE,
    _dropout_type,
    lambda args, attrs: (args[0], np.ones_like(args[0])),
    lambda args, attrs, target: [topi.cpp.identity(args[0]), topi.full_like(args[0], 1.0)],
)
def dropout_raw(data: Expr, rate: float = 0.5) -> Call:
    """A tuple: `data`, and a mask of ones."""
    return call("nn.dropout", data, rate=rate)
