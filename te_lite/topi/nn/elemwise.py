"""Activations, bias, scale and flattening."""

from __future__ import annotations

import math

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr.expr import Expr, binary, compare, const, select
from ..broadcast import add
from ..elementwise import map_elements
from ..tag import BROADCAST, INJECTIVE
from ..transform import expand_dims
from ..utils import normal_axis, unravel


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)` (stage `compute`; `topi.cpp.relu` is the form of graph front ends)."""
    return map_elements(x, lambda e: binary("max", e, const(0, e.dtype)), None)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """`x` where positive else `x * alpha`."""
    return map_elements(x, lambda e: select(compare(">", e, const(0, e.dtype)), e, e * alpha), None)


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """`x` where positive else `x * slope[channel]`; `slope` [C] with C the extent of `axis`."""
    at = normal_axis(axis, x.ndim, "prelu")
    fits = slope.shape == (x.shape[at],)
    require(fits, ExprError, "prelu", "one slope for each channel is needed", slope=slope.shape, x=x.shape)

    def element(*i: Expr) -> Expr:
        return select(compare(">", x[i], const(0, x.dtype)), x[i], x[i] * slope[i[at]])

    return compute(x.shape, element, tag=BROADCAST)


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """`data` + `bias` [C] along dimension `axis` (stages `T_expand_dims`, `T_add`)."""
    at = normal_axis(axis, data.ndim, "bias_add")
    trailing = data.ndim - at - 1
    return add(data, expand_dims(bias, 1, trailing) if trailing else bias)


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """`Input * Scale[C] + Shift[C]` for [N, C, H, W]."""
    return compute(Input.shape, lambda b, c, i, j: Input[b, c, i, j] * Scale[c] + Shift[c], "ScaleShift", BROADCAST)


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """`Input * Scale[C] + Shift[C]` for [N, H, W, C]."""
    return compute(Input.shape, lambda b, i, j, c: Input[b, i, j, c] * Scale[c] + Shift[c], "ScaleShift", BROADCAST)


def flatten(data: Tensor) -> Tensor:
    """[N, ...] as [N, product of the rest] (stage `compute`)."""
    rest = data.shape[1:]
    return compute((data.shape[0], math.prod(rest)), lambda i, j: data(i, *unravel(j, rest)), tag=INJECTIVE)
