"""Operators of two tensors, element by element with NumPy's broadcasting, and their relatives `where` and `prelu`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.expr import arithmetic
from te_lite.expr.expr import FLOATS
from te_lite.topi.broadcast import broadcast_shape

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, apply_binary, as_expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, define, floats, numbers, one_axis, operator, same_dtype, tensors, vector

Check = Callable[[TensorType, str], str]
Binary = Callable[[Any, Any], Any]
Te = Callable[[Tensor, Tensor], Tensor]


def broadcast_type(a: TensorType, b: TensorType, what: str) -> tuple[int, ...]:
    """The common shape.  Raises GraphError when the shapes do not fit together."""
    fits = all(m == n or 1 in (m, n) for m, n in zip(a.shape[::-1], b.shape[::-1], strict=False))
    require(fits, GraphError, what, "the shapes do not fit together", lhs=a.shape, rhs=b.shape)
    return broadcast_shape(a.shape, b.shape)


def _define(name: str, check: Check, numpy: Binary, te: Te, result: str = "") -> None:
    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        a, b = tensors(types, 2, name)
        dtype = same_dtype([a, b], name)
        check(a, name)
        return TensorType(broadcast_type(a, b, name), result or dtype)

    define(
        name,
        OpPattern.BROADCAST,
        infer,
        lambda args, attrs: np.asarray(numpy(*args)),
        lambda args, attrs, target: [te(*args)],
    )


def _any(x: TensorType, what: str) -> str:
    return x.dtype


def _bool(x: TensorType, what: str) -> str:
    require(x.dtype == "bool", GraphError, what, "tensors of bool are needed", dtype=x.dtype)
    return x.dtype


def _divide(a: Array, b: Array) -> Array:
    """Integers are divided towards zero, as in C; by zero they give 0."""
    return np.asarray(a / b if a.dtype.kind == "f" else arithmetic.trunc_divide(a, b))


def _whole(x: TensorType, what: str) -> str:
    require(x.dtype not in FLOATS and x.dtype != "bool", GraphError, what, "integers are needed", dtype=x.dtype)
    return numbers(x, what)


ARITHMETIC: tuple[tuple[str, Check, Binary, Te], ...] = (
    ("add", numbers, np.add, topi.add),
    ("subtract", numbers, np.subtract, topi.subtract),
    ("multiply", numbers, np.multiply, topi.multiply),
    ("divide", numbers, _divide, topi.divide),
    ("floor_divide", numbers, np.floor_divide, topi.floor_divide),
    ("mod", numbers, np.fmod, topi.mod),
    ("floor_mod", numbers, np.remainder, topi.floor_mod),
    ("power", numbers, arithmetic.power, topi.power),
    ("maximum", numbers, np.maximum, topi.maximum),
    ("minimum", numbers, np.minimum, topi.minimum),
    ("bitwise_and", _whole, np.bitwise_and, topi.bitwise_and),
    ("bitwise_or", _whole, np.bitwise_or, topi.bitwise_or),
    ("bitwise_xor", _whole, np.bitwise_xor, topi.bitwise_xor),
)

TO_BOOL: tuple[tuple[str, Check, Binary, Te], ...] = (
    ("equal", _any, np.equal, topi.equal),
    ("not_equal", _any, np.not_equal, topi.not_equal),
    ("less", numbers, np.less, topi.less),
    ("less_equal", numbers, np.less_equal, topi.less_equal),
    ("greater", numbers, np.greater, topi.greater),
    ("greater_equal", numbers, np.greater_equal, topi.greater_equal),
    ("logical_and", _bool, np.logical_and, topi.logical_and),
    ("logical_or", _bool, np.logical_or, topi.logical_or),
    ("logical_xor", _bool, np.logical_xor, topi.logical_xor),
)

for _row in ARITHMETIC:
    _define(*_row)
for _row in TO_BOOL:
    _define(*_row, result="bool")


# ---------------------------------------------------------------------------------------------- the relatives


def _where_type(types: Sequence[Type], attrs: Attrs) -> Type:
    condition, x, y = tensors(types, 3, "where")
    dtype = same_dtype([x, y], "where")
    _bool(condition, "where")
    inner = TensorType(broadcast_type(x, y, "where"), dtype)
    return TensorType(broadcast_type(condition, inner, "where"), dtype)


def _bias_add_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, bias = tensors(types, 2, "nn.bias_add")
    numbers(data, "nn.bias_add")
    same_dtype([data, bias], "nn.bias_add")
    axis = one_axis(attrs["axis"], len(data.shape), "nn.bias_add")
    vector(bias, data.shape[axis], "nn.bias_add", "the bias")
    return data


def along(vector: Array, axis: int, ndim: int) -> Array:
    """A vector shaped so that it broadcasts along dimension `axis` of `ndim`."""
    return vector.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


def _prelu_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, alpha = tensors(types, 2, "nn.prelu")
    floats(data, "nn.prelu")
    same_dtype([data, alpha], "nn.prelu")
    axis = one_axis(attrs["axis"], len(data.shape), "nn.prelu")
    vector(alpha, data.shape[axis], "nn.prelu", "alpha")
    return data


# ---------------------------------------------------------------------------------------------------- calls


def binary_call(name: str) -> Callable[[Any, Any], Call]:
    """The function that applies the operator `name` to two nodes; a number takes the dtype of the other side."""

    def apply(lhs: Any, rhs: Any) -> Call:
        return apply_binary(name, lhs, rhs)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Element by element `{name}` with broadcasting; a number takes the dtype of the other side."
    return apply


add = binary_call("add")
subtract = binary_call("subtract")
multiply = binary_call("multiply")
divide = binary_call("divide")
floor_divide = binary_call("floor_divide")
mod = binary_call("mod")
floor_mod = binary_call("floor_mod")
power = binary_call("power")
maximum = binary_call("maximum")
minimum = binary_call("minimum")
bitwise_and = binary_call("bitwise_and")
bitwise_or = binary_call("bitwise_or")
bitwise_xor = binary_call("bitwise_xor")
equal = binary_call("equal")
not_equal = binary_call("not_equal")
less = binary_call("less")
less_equal = binary_call("less_equal")
greater = binary_call("greater")
greater_equal = binary_call("greater_equal")
logical_and = binary_call("logical_and")
logical_or = binary_call("logical_or")
logical_xor = binary_call("logical_xor")


@operator(
    "where",
    OpPattern.BROADCAST,
    _where_type,
    lambda args, attrs: np.where(*args),
    lambda args, attrs, target: [topi.where(*args)],
)
def where(condition: Expr, x: Expr, y: Expr) -> Call:
    """`x` where the bool tensor `condition` holds, else `y`; all broadcast."""
    return call("where", condition, as_expr(x), as_expr(y))


@operator(
    "nn.bias_add",
    OpPattern.BROADCAST,
    _bias_add_type,
    lambda args, attrs: args[0] + along(args[1], attrs["axis"], args[0].ndim),
    lambda args, attrs, target: [topi.nn.bias_add(args[0], args[1], attrs["axis"])],
)
def bias_add(data: Expr, bias: Expr, axis: int = 1) -> Call:
    """`data` plus the vector `bias` along dimension `axis`."""
    return call("nn.bias_add", data, bias, axis=axis)


@operator(
    "nn.prelu",
    OpPattern.BROADCAST,
    _prelu_type,
    lambda args, attrs: np.where(args[0] > 0, args[0], args[0] * along(args[1], attrs["axis"], args[0].ndim)),
    lambda args, attrs, target: [topi.cpp.prelu(args[0], args[1], attrs["axis"])],
)
def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Call:
    """`data` where positive, else `data * alpha` with one `alpha` for each index of dimension `axis`."""
    return call("nn.prelu", data, alpha, axis=axis)
