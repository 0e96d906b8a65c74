"""Floats as affine integers and back: `real = (integer - zero) * scale`, with one scale or one an index of an axis.

Both mean what ONNX's QuantizeLinear and DequantizeLinear do.  They have no tensor expressions: `RealizeQuantized` takes
what it can into integer products, and writes the rest in other operators (`quantized_form`, `dequantized_form`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.arithmetic import convert

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from ..ir.visit import expand_to
from .define import Array, choice, define, floats, one_axis, operator, tensors

DTYPES = ("int8", "uint8")


def _checked(types: Sequence[Type], attrs: Attrs, what: str) -> tuple[TensorType, TensorType]:
    """The data and the scale; the zero point has the shape of the scale and the integer dtype."""
    x, scale, zero = tensors(types, 3, what)
    floats(scale, what)
    law = "scale and zero point must be numbers, or vectors with an entry for every index of the axis"
    shape = scale.shape and (x.shape[one_axis(attrs["axis"], len(x.shape), what)],)
    require(scale.shape == zero.shape == shape, GraphError, what, law, data=x.shape, scale=scale.shape, zero=zero.shape)
    choice(zero.dtype, DTYPES, what, "the dtype of the zero point")
    return x, scale


def _quantize_type(types: Sequence[Type], attrs: Attrs) -> Type:
    x, scale = _checked(types, attrs, "qnn.quantize")
    same = x.dtype == scale.dtype
    require(same, GraphError, "qnn.quantize", "data and scale must have one dtype", data=x.dtype, scale=scale.dtype)
    return TensorType(x.shape, tensors(types, 3, "qnn.quantize")[2].dtype)


def _dequantize_type(types: Sequence[Type], attrs: Attrs) -> Type:
    x, scale = _checked(types, attrs, "qnn.dequantize")
    zero = tensors(types, 3, "qnn.dequantize")[2].dtype
    require(x.dtype == zero, GraphError, "qnn.dequantize", "data and zero point must have one dtype", data=x.dtype,
            zero=zero)  # fmt: skip
    return TensorType(x.shape, scale.dtype)


def _along(v: Array, x: Array, axis: int) -> Array:
    return v.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]) if v.ndim else v


def _quantize_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    x, scale, zero = args[0], *(_along(v, args[0], attrs["axis"]) for v in args[1:])
    info = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        moved = np.rint(x / scale) + zero.astype(x.dtype)
    return np.asarray(convert(np.clip(moved, info.min, info.max), str(zero.dtype)))


def _dequantize_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    x, scale, zero = args[0], *(_along(v, args[0], attrs["axis"]) for v in args[1:])
    return np.asarray((x.astype(np.int32) - zero.astype(np.int32)).astype(scale.dtype) * scale)


define("qnn.quantize", OpPattern.OPAQUE, _quantize_type, _quantize_numpy, None, axis=-1)


# ---------------------------------------------------------------------------------------------------- calls


@operator("qnn.dequantize", OpPattern.OPAQUE, _dequantize_type, _dequantize_numpy, None)
def dequantize(data: Expr, scale: Expr, zero: Expr, axis: int = -1) -> Call:
    """`(data - zero) * scale`, in the dtype of the scale."""
    return call("qnn.dequantize", data, scale, zero, axis=axis)


def quantized_form(data: Expr, scale: Expr, zero: Expr, axis: int) -> Expr:
    """`qnn.quantize` in operators that have tensor expressions.

    `data / scale` to the nearest integer (of two the even one), plus `zero`, saturated to its dtype.
    """
    info, rank = np.iinfo(zero.dtype), len(data.shape)
    moved = call("round", call("divide", data, _spread(scale, rank, axis)))
    if not (isinstance(zero, Constant) and not zero.value.any()):
        moved = call("add", moved, _spread(call("cast", zero, dtype=data.dtype), rank, axis))
    return call("cast", call("clip", moved, a_min=float(info.min), a_max=float(info.max)), dtype=zero.dtype)


def dequantized_form(data: Expr, scale: Expr, zero: Expr, axis: int) -> Expr:
    """`qnn.dequantize` in operators that have tensor expressions."""
    rank = len(data.shape)
    centred = call("subtract", *(call("cast", e, dtype="int32") for e in (data, _spread(zero, rank, axis))))
    return call("multiply", call("cast", centred, dtype=scale.dtype), _spread(scale, rank, axis))


def _spread(v: Expr, rank: int, axis: int) -> Expr:
    return expand_to(v, rank, axis) if v.shape else v


# ------------------------------------------------------------------------------------------ products of integers


def centred(data: Expr, zero: Expr | None) -> Expr:
    """Integers of 8 bits without their zero point (None: 0; it must broadcast), in int32, the dtype of the sums.

    Products of narrower ones widen an element whenever it is read, which costs more than the memory saved: of 64
    channels, 28 x 28, a convolution by its default program takes 1.3 ms from int32, 3.0 from int16 and 14 from int8
    (one core with AVX-512).
    """
    held = call("cast", data, dtype="int32")
    return held if zero is None else call("subtract", held, call("cast", zero, dtype="int32"))
