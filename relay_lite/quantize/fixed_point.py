"""Numbers of a fixed point: an integer tensor and the power of two that one unit of it stands for.

`Fixed(x, e)` means `x * 2**e`.  Rescaling to a coarser unit is a rounding shift, and int8 values keep to [-127, 127].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Array, Constant, Expr, const
from ..op.annotation import stop_fusion
from ..op.shift import left_shift, right_shift

LIMIT = 127
MEAN_BITS = 15
"""Factor and rounding of a mean fit 16 bits with a sign."""
MOST_SPREAD = 6
"""Powers of two between the units of two channels of a weight."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """The value `expr * 2**exponent`; `bound` is no less than the largest magnitude that `expr` can have."""

    expr: Expr
    exponent: int
    bound: int


def magnitude_exponent(values: Array) -> int:
    """The smallest k such that no value exceeds 2**k in magnitude; 0 when all are zero."""
    top = float(np.abs(values).max(initial=0.0))
    if top == 0.0:
        return 0
    mantissa, k = math.frexp(top)
    return k - 1 if mantissa == 0.5 else k


def quantize_array(values: Array, exponent: int, limit: int = LIMIT) -> Array:
    """`values` in units of `2**exponent`, rounded to the nearest and clipped to [-limit, limit]: float64 integers."""
    return np.asarray(np.clip(np.rint(np.ldexp(values.astype("float64"), -exponent)), -limit, limit))


def from_float(value: Expr, exponent: int) -> Fixed:
    """A float32 tensor as int8."""
    scaled = call("multiply", value, const(2.0**-exponent, value.dtype))
    clipped = call("clip", call("round", scaled), a_min=float(-LIMIT), a_max=float(LIMIT))
    return Fixed(stop_fusion(call("cast", clipped, dtype="int8")), exponent, LIMIT)


def to_float(value: Fixed) -> Expr:
    """An integer tensor as float32."""
    return call("multiply", call("cast", value.expr, dtype="float32"), const(2.0**value.exponent, "float32"))


def to_int8(value: Fixed, exponent: int) -> Fixed:
    """The nearest int8 number in units of `2**exponent`; ties go up.  An int8 value of this unit stays itself."""
    if value.expr.dtype == "int8" and value.exponent == exponent:
        return value
    wide, shift = to_int32(value), exponent - value.exponent
    expr = wide.expr
    if shift > 0:
        check_range(value.bound + (1 << shift - 1), "rescaling")
        expr = right_shift(call("add", expr, const(1 << shift - 1, "int32")), shift)
    elif shift < 0:
        check_range(value.bound << -shift, "rescaling")
        expr = left_shift(expr, -shift)
    expr = call("cast", call("clip", expr, a_min=float(-LIMIT), a_max=float(LIMIT)), dtype="int8")
    return Fixed(stop_fusion(expr), exponent, LIMIT)


def to_int32(value: Fixed) -> Fixed:
    """The same number in int32."""
    if value.expr.dtype == "int32":
        return value
    return Fixed(call("cast", value.expr, dtype="int32"), value.exponent, value.bound)


def weight(values: Array) -> tuple[Constant, int]:
    """A weight as int8, and its exponent: the largest magnitude, rounded up to a power of two, is 128 units."""
    exponent = magnitude_exponent(values) - 7
    return Constant(quantize_array(values, exponent).astype("int8")), exponent


def weight_by_channel(values: Array) -> tuple[Array, Array]:
    """A weight as int8 numbers, and an exponent for each output channel (axis 0): int64 [O].

    No exponent is less than `MOST_SPREAD` below the largest, so that sums of all channels fit one unit.
    """
    exponents = np.array([magnitude_exponent(channel) - 7 for channel in values])
    exponents = np.maximum(exponents, exponents.max() - MOST_SPREAD)
    channels = [quantize_array(v, int(e)) for v, e in zip(values, exponents, strict=True)]
    return np.stack(channels).astype("int8"), exponents


def mean(value: Fixed, axes: Sequence[int]) -> Fixed:
    """The mean of an int8 tensor over axes, which are kept: sums times the rounded quotient `2**15 / n`."""
    n = math.prod(value.expr.shape[a] for a in axes)
    factor = round((1 << MEAN_BITS) / n)
    total = call("sum", to_int32(value).expr, axis=tuple(axes), keepdims=True)
    bound = value.bound * n * factor
    check_range(bound, "mean")
    return Fixed(call("multiply", total, const(factor, "int32")), value.exponent - MEAN_BITS, bound)


def bias(values: Array, exponent: int) -> Constant:
    """A bias as int32 in units of `2**exponent`.

    It has the precision of a weight: 8 bits below its largest magnitude, and never more than the unit allows.
    Raises GraphError when it does not fit.
    """
    own = max(magnitude_exponent(values) - 7, exponent)
    scaled = np.ldexp(quantize_array(values, own), own - exponent)
    check_range(int(np.abs(scaled).max(initial=0.0)), "bias")
    return Constant(scaled.astype("int32"))


def check_range(bound: int, what: str) -> None:
    """Refuse a number that may leave int32."""
    law = "its magnitude must stay below 2**31; the scales of the two operands are too far apart"
    require(bound < 1 << 31, GraphError, f"quantize: {what}", law, bound=bound)
