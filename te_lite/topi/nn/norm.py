"""Normalisations for inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...computation.tensor import Tensor
from ...errors import ExprError, require
from ...expr.expr import Expr, call, const
from ...expr.own_reducers import comm_reducer
from ...expr.reduction import reduce_axis
from ...expr.reduction import sum as sum_reduce
from ..broadcast import add, divide, multiply, subtract
from ..elementwise import sqrt
from ..reduction import Axis, real_axes, reduce_axes, reduced_shape, source_indices, sum
from ..tag import COMM_REDUCE, INJECTIVE
from ..transform import reshape
from ..utils import ax_compute, normal_axis
from .pad import pad_sides
from .wide import summed_wide

_pair_sum = comm_reducer(lambda x, y: (x[0] + y[0], x[1] + y[1]), lambda a, b: (const(0, a), const(0, b)), "tuple_sum")


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    momentum: float = 0.1,
) -> list[Tensor]:
    """`[(data - mean) / sqrt(var + epsilon) * gamma + beta, mean, var]`; the vectors are [C] with C at `axis`.

    Inference only: `training` raises ExprError, and `momentum`, which belongs to it, is not used.
    """
    require(not training, ExprError, "batch_norm", "only inference is supported", training=training, momentum=momentum)
    at = normal_axis(axis, data.ndim, "batch_norm")
    shape = [n if d == at else 1 for d, n in enumerate(data.shape)]
    deviation = sqrt(add(reshape(moving_var, shape), epsilon))
    out = divide(subtract(data, reshape(moving_mean, shape)), deviation)
    out = multiply(out, reshape(gamma, shape)) if scale else out
    out = add(out, reshape(beta, shape)) if center else out
    return [out, moving_mean, moving_var]


def _moments(data: Tensor, axes: Sequence[int], rough: Tensor, n: Expr) -> tuple[Tensor, Tensor]:
    """The sums of `d` and `d * d` over `axes`, one stage with two outputs; `d = x - rough / n` is near to centred."""
    inner = reduce_axes(data, axes)

    def element(*i: Expr) -> tuple[Expr, Expr]:
        d = data[source_indices(i, axes, inner, data.ndim, False)] - rough[i] / n
        total, squares = _pair_sum((d, d * d), axis=inner)
        return total, squares

    sums = ax_compute(reduced_shape(data.shape, axes, False), element, f"{data.op.name}_red_temp", COMM_REDUCE)
    return sums[0], sums[1]


def _normalise(
    data: Tensor,
    axes: Sequence[int],
    affine: Callable[[Sequence[Expr], Expr], Expr],
    epsilon: float,
    name: str,
) -> Tensor:
    """In two passes, so that an offset of the data is lost to neither: first a rough mean, then the moments around it.

    The mean that is left of the differences corrects the rough one, which was rounded; its square, by which the
    variance is corrected, is small beside it.
    """
    n = const(math.prod([data.shape[a] for a in axes]), data.dtype)
    rough = sum(data, axes)
    first, second = _moments(data, axes, rough, n)

    def element(*i: Expr) -> Expr:
        outer = [v for d, v in enumerate(i) if d not in axes]
        rest = first[outer] / n
        variance = second[outer] / n - rest * rest
        centred = data[i] - rough[outer] / n - rest
        return affine(i, centred * call("rsqrt", variance + const(epsilon, data.dtype)))

    return ax_compute(data.shape, element, name, INJECTIVE)


@summed_wide
def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor | None, axis: Axis = -1, epsilon: float = 1e-5) -> Tensor:
    """`(x - mean) * rsqrt(var + epsilon) * gamma + beta` over the dimensions `axis`, the shape of gamma and beta."""
    axes = real_axes(axis, data.ndim, "layer_norm")
    want = tuple([data.shape[a] for a in axes])
    ok = gamma.shape == want and (beta is None or beta.shape == want)
    require(ok, ExprError, "layer_norm", f"gamma and beta must have the shape {want}", gamma=gamma.shape)

    def affine(i: Sequence[Expr], x: Expr) -> Expr:
        at = [i[a] for a in axes]
        return x * gamma[at] if beta is None else x * gamma[at] + beta[at]

    return _normalise(data, axes, affine, epsilon, "T_layer_norm")


@summed_wide
def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int = 1,
    axis: Axis = (2, 3),
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalise over `axis` for each sample and channel; gamma and beta are [C] with C at `channel_axis`."""
    axes = real_axes(axis, data.ndim, "instance_norm")
    channel = normal_axis(channel_axis, data.ndim, "instance_norm")
    return _normalise(data, axes, lambda i, x: x * gamma[i[channel]] + beta[i[channel]], epsilon, "T_instance_norm")


@summed_wide
def rms_norm(data: Tensor, weight: Tensor, axis: Axis = -1, epsilon: float = 1e-5) -> Tensor:
    """`x * rsqrt(mean(x * x) + epsilon) * weight` over the dimensions `axis` (stage `T_rms_norm`)."""
    axes = real_axes(axis, data.ndim, "rms_norm")
    squares = sum(multiply(data, data), axes)
    n = const(math.prod([data.shape[a] for a in axes]), data.dtype)

    def element(*i: Expr) -> Expr:
        outer = [v for d, v in enumerate(i) if d not in axes]
        scale = call("rsqrt", squares[outer] / n + const(epsilon, data.dtype))
        return data[i] * scale * weight[[i[a] for a in axes]]

    return ax_compute(data.shape, element, "T_rms_norm", INJECTIVE)


@summed_wide
def lrn(
    data: Tensor, size: int = 5, axis: int = 1, alpha: float = 1e-5, beta: float = 0.75, bias: float = 2.0
) -> Tensor:
    """`x / (bias + alpha / size * sum(x * x)) ** beta`, the sum over `size` neighbours along `axis` (stage `T_lrn`)."""
    at = normal_axis(axis, data.ndim, "lrn")
    before = [(size - 1) // 2 if d == at else 0 for d in range(data.ndim)]
    after = [size - 1 - (size - 1) // 2 if d == at else 0 for d in range(data.ndim)]
    padded = pad_sides(data, before, after, name="pad_temp")
    k = reduce_axis((0, size), "rk")

    def square(*i: Expr) -> Expr:
        x = padded(*i[:at], i[at] + k, *i[at + 1 :])
        return sum_reduce(x * x, axis=k)

    total = ax_compute(data.shape, square, "sqr_sum", COMM_REDUCE)
    return ax_compute(
        data.shape, lambda *i: data[i] / call("pow", total[i] * (alpha / size) + bias, const(beta, data.dtype)), "T_lrn"
    )
