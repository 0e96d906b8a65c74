"""Operators of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.expr.arithmetic import convert
from te_lite.expr.expr import const, if_then_else
from te_lite.topi.tag import ELEMWISE
from te_lite.topi.utils import ax_compute

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, as_expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, define, dtype_of, floats, numbers, operator, tensors
from .erf import erf as erf_array

Elements = Callable[[Any], Any]
Te = Callable[[Tensor], Tensor]
Check = Callable[[TensorType, str], str]


def _define(name: str, check: Check, numpy: Elements, te: Te, result: str = "") -> None:
    """An operator without attributes that keeps the shape, and the dtype unless it has one of its own."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensors(types, 1, name)
        dtype = check(x, name)
        return TensorType(x.shape, result or dtype)

    define(
        name,
        OpPattern.ELEMWISE,
        infer,
        lambda args, attrs: np.asarray(numpy(args[0])),
        lambda args, attrs, target: [te(args[0])],
    )


def _any(x: TensorType, what: str) -> str:
    return x.dtype


def _sigmoid(x: Array) -> Array:
    """Without overflow: only exp of what is not positive is taken."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + e), e / (1 + e)), x.dtype)


for _name, _numpy, _te in (
    ("exp", np.exp, topi.cpp.exp),
    ("log", np.log, topi.cpp.log),
    ("log2", np.log2, topi.cpp.log2),
    ("log10", np.log10, topi.cpp.log10),
    ("sqrt", np.sqrt, topi.cpp.sqrt),
    ("rsqrt", lambda x: 1 / np.sqrt(x), topi.cpp.rsqrt),
    ("erf", erf_array, topi.cpp.erf),
    ("sigmoid", _sigmoid, topi.cpp.sigmoid),
    ("tanh", np.tanh, topi.cpp.tanh),
    ("sin", np.sin, topi.cpp.sin),
    ("cos", np.cos, topi.cpp.cos),
    ("tan", np.tan, topi.cpp.tan),
    ("sinh", np.sinh, topi.cpp.sinh),
    ("cosh", np.cosh, topi.cpp.cosh),
    ("asin", np.arcsin, topi.cpp.asin),
    ("acos", np.arccos, topi.cpp.acos),
    ("atan", np.arctan, topi.cpp.atan),
    ("asinh", np.arcsinh, topi.cpp.asinh),
    ("acosh", np.arccosh, topi.cpp.acosh),
    ("atanh", np.arctanh, topi.cpp.atanh),
    ("floor", np.floor, topi.cpp.floor),
    ("ceil", np.ceil, topi.cpp.ceil),
    ("round", np.rint, topi.cpp.round),
    ("trunc", np.trunc, topi.cpp.trunc),
):
    _define(_name, floats, _numpy, _te)

_define("abs", numbers, np.abs, topi.cpp.abs)
_define("negative", numbers, np.negative, topi.cpp.negative)
_define("sign", numbers, np.sign, topi.sign)
_define("nn.relu", numbers, lambda x: np.maximum(x, x.dtype.type(0)), topi.cpp.relu)
_define("copy", _any, np.copy, topi.cpp.identity)


def _bool(x: TensorType, what: str) -> str:
    require(x.dtype == "bool", GraphError, what, "a tensor of bool is needed", dtype=x.dtype)
    return x.dtype


_define("isnan", floats, np.isnan, topi.cpp.isnan, "bool")
_define("logical_not", _bool, np.logical_not, topi.logical_not, "bool")


# ------------------------------------------------------------------------------------------ with attributes


def _leaky_relu_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.leaky_relu")
    floats(x, "nn.leaky_relu")
    return x


def _clip_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "clip")
    numbers(x, "clip")
    ordered = attrs["a_min"] <= attrs["a_max"]
    require(ordered, GraphError, "clip", "a_min must not exceed a_max", a_min=attrs["a_min"], a_max=attrs["a_max"])
    return x


def _bounds(attrs: Attrs, dtype: str) -> tuple[Any, Any]:
    """The bounds as values of `dtype`; those of integers are moved into its range."""
    if np.dtype(dtype).kind == "f":
        return float(attrs["a_min"]), float(attrs["a_max"])
    info = np.iinfo(dtype)
    return int(max(min(attrs["a_min"], info.max), info.min)), int(max(min(attrs["a_max"], info.max), info.min))


def _clip_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    lo, hi = _bounds(attrs, str(args[0].dtype))
    return np.asarray(np.clip(args[0], args[0].dtype.type(lo), args[0].dtype.type(hi)))


def _cast_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "cast")
    return TensorType(x.shape, dtype_of(attrs["dtype"], "", "cast"))


def _causal_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.causal")
    floats(x, "nn.causal")
    law = "scores have rows and columns"
    require(len(x.shape) > 1 and isinstance(attrs["offset"], int), GraphError, "nn.causal", law, shape=x.shape)
    return x


def _causal_te(x: Tensor, offset: int) -> Tensor:
    def value(*i: Any) -> Any:
        return if_then_else(i[-1] <= i[-2] + offset, x(*i), const(float("-inf"), x.dtype))

    made: Tensor = ax_compute(x.shape, value, "T_causal", ELEMWISE)
    return made


define(  # elementwise for what is fused; passes that reshape come before the one that makes it (`causal_masks.py`)
    "nn.causal",
    OpPattern.ELEMWISE,
    _causal_type,
    lambda args, attrs: np.where(
        np.tri(args[0].shape[-2], args[0].shape[-1], attrs["offset"], bool), args[0], args[0].dtype.type("-inf")
    ),
    lambda args, attrs, target: [_causal_te(args[0], attrs["offset"])],
    offset=0,
)


# ---------------------------------------------------------------------------------------------------- calls


def unary_call(name: str, note: str = "") -> Callable[[Expr], Call]:
    """The function that applies the operator `name` to one node."""

    def apply(data: Expr) -> Call:
        return call(name, as_expr(data))

    short = name.split(".")[-1]
    apply.__name__ = apply.__qualname__ = short
    apply.__doc__ = f"Element by element `{short}`; the shape of `data`.{note}"
    return apply


exp = unary_call("exp")
log = unary_call("log")
log2 = unary_call("log2")
log10 = unary_call("log10")
sqrt = unary_call("sqrt")
rsqrt = unary_call("rsqrt")
erf = unary_call("erf")
sigmoid = unary_call("sigmoid")
tanh = unary_call("tanh")
sin = unary_call("sin")
cos = unary_call("cos")
tan = unary_call("tan")
sinh = unary_call("sinh")
cosh = unary_call("cosh")
asin = unary_call("asin")
acos = unary_call("acos")
atan = unary_call("atan")
asinh = unary_call("asinh")
acosh = unary_call("acosh")
atanh = unary_call("atanh")
floor = unary_call("floor")
ceil = unary_call("ceil")
round = unary_call("round")
trunc = unary_call("trunc")
abs = unary_call("abs")
negative = unary_call("negative")
sign = unary_call("sign")
relu = unary_call("nn.relu")
copy = unary_call("copy")
isnan = unary_call("isnan")
logical_not = unary_call("logical_not")


@operator(
    "nn.leaky_relu",
    OpPattern.ELEMWISE,
    _leaky_relu_type,
    lambda args, attrs: np.where(args[0] > 0, args[0], args[0] * args[0].dtype.type(attrs["alpha"])),
    lambda args, attrs, target: [topi.cpp.leaky_relu(args[0], attrs["alpha"])],
)
def leaky_relu(data: Expr, alpha: float = 0.01) -> Call:
    """`data` where positive, else `alpha * data`."""
    return call("nn.leaky_relu", data, alpha=alpha)


@operator(
    "clip",
    OpPattern.ELEMWISE,
    _clip_type,
    _clip_numpy,
    lambda args, attrs, target: [topi.clip(args[0], *_bounds(attrs, args[0].dtype))],
    a_min=float("-inf"),
    a_max=float("inf"),
)
def clip(a: Expr, a_min: float, a_max: float) -> Call:
    """Every element moved into [a_min, a_max]; infinite bounds are allowed."""
    return call("clip", a, a_min=a_min, a_max=a_max)


@operator(
    "cast",
    OpPattern.ELEMWISE,
    _cast_type,
    lambda args, attrs: np.asarray(convert(args[0], attrs["dtype"])),
    lambda args, attrs, target: [topi.cpp.cast(args[0], attrs["dtype"])],
    dtype="",
)
def cast(data: Expr, dtype: str) -> Call:
    """The elements converted to `dtype` (floats to integers by truncation)."""
    return call("cast", data, dtype=dtype)
