"""Operators that make tensors out of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.topi.tag import ELEMWISE
from te_lite.topi.utils import ax_compute

from ..ir.errors import GraphError
from ..ir.extents import is_open
from ..ir.make import call
from ..ir.nodes import Call, Expr, as_expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .along_sizes import extents
from .define import Array, define, dtype_of, indices, integer, integers, one_axis, operator, rank, same_dtype, tensors


def _filled(name: str, value: int) -> None:
    """`zeros` and `ones`, of a given shape."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        tensors(types, 0, name)
        return TensorType(extents(attrs["shape"], name), dtype_of(attrs["dtype"], "float32", name))

    def meaning(args: Sequence[Any], attrs: Attrs) -> Array:
        return np.full(integers(attrs["shape"], name), value, attrs["dtype"] or "float32")

    def te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
        return [topi.full(extents(attrs["shape"], name), attrs["dtype"] or "float32", value)]

    define(name, OpPattern.ELEMWISE, infer, meaning, te, shape=(), dtype="float32")


def _filled_like(name: str, value: int) -> None:
    """`zeros` and `ones` like a tensor."""
    define(
        name,
        OpPattern.ELEMWISE,
        lambda types, attrs: tensors(types, 1, name)[0],
        lambda args, attrs: np.full_like(args[0], value),
        lambda args, attrs, target: [topi.full_like(args[0], value)],
    )


_filled("zeros", 0)
_filled_like("zeros_like", 0)
_filled("ones", 1)
_filled_like("ones_like", 1)


def _full_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (value,) = tensors(types, 1, "full")
    rank(value, 0, "full")
    return TensorType(extents(attrs["shape"], "full"), dtype_of(attrs["dtype"], value.dtype, "full"))


def _full_te(value: Tensor, shape: Sequence[int], dtype: str, name: str) -> Tensor:
    value = topi.cpp.cast(value, dtype) if value.dtype != dtype else value
    return ax_compute(shape, lambda *i: value(), name, ELEMWISE)


def _full_like_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, value = tensors(types, 2, "full_like")
    rank(value, 0, "full_like")
    return data


def _arange_type(types: Sequence[Type], attrs: Attrs) -> Type:
    tensors(types, 0, "arange")
    dtype = dtype_of(attrs["dtype"], "float32", "arange")
    return TensorType((_arange_count(attrs),), dtype)


def _arange_count(attrs: Attrs) -> int:
    start, stop, step = (attrs[k] for k in ("start", "stop", "step"))
    if is_open(stop):
        law = "up to an open extent it counts from 0 in steps of 1"
        require((start, step) == (0, 1), GraphError, "arange", law, start=start, stop=stop, step=step)
        open_count: int = stop
        return open_count
    plain = all(isinstance(v, int | float | np.number) and math.isfinite(v) for v in (start, stop, step)) and step != 0
    require(plain, GraphError, "arange", "three numbers and a step that is not 0 are needed", start=start, stop=stop,
            step=step)  # fmt: skip
    count = float((stop - start) / step)
    require(math.isfinite(count), GraphError, "arange", "it must end", start=start, stop=stop, step=step)
    return max(math.ceil(count), 0)


def _arange(attrs: Attrs) -> Array:
    dtype = np.dtype(attrs["dtype"] or "float32")
    steps = np.arange(_arange_count(attrs)).astype(dtype) * dtype.type(attrs["step"])
    return np.asarray(dtype.type(attrs["start"]) + steps, dtype)


def _arange_te(attrs: Attrs) -> Tensor:
    start, stop, step, dtype = attrs["start"], attrs["stop"], attrs["step"], attrs["dtype"] or "float32"
    if is_open(stop):
        counted: Tensor = ax_compute((stop,), lambda i: i.astype(dtype), "T_arange", ELEMWISE)
        return counted
    return topi.arange(start, stop, step, dtype)


def _one_hot_type(types: Sequence[Type], attrs: Attrs) -> Type:
    where, on, off = tensors(types, 3, "one_hot")
    indices(where, "one_hot")
    rank(on, 0, "one_hot")
    rank(off, 0, "one_hot")
    dtype = dtype_of(attrs["dtype"], same_dtype([on, off], "one_hot"), "one_hot")
    axis = one_axis(attrs["axis"], len(where.shape) + 1, "one_hot")
    depth = integer(attrs["depth"], "one_hot", "depth", 1)
    return TensorType((*where.shape[:axis], depth, *where.shape[axis:]), dtype)


def _one_hot_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    where, on, off = args
    axis = attrs["axis"] % (where.ndim + 1)
    line = np.arange(attrs["depth"]).reshape([-1 if d == axis else 1 for d in range(where.ndim + 1)])
    hot = np.where(np.expand_dims(where, axis) == line, on, off)
    return np.asarray(hot, attrs["dtype"] or on.dtype)


# ---------------------------------------------------------------------------------------------------- calls


def _like(name: str) -> Callable[[Expr], Call]:
    def apply(data: Expr) -> Call:
        return call(name, data)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name.split('_')[0]}` in the shape and dtype of `data`."
    return apply


zeros_like = _like("zeros_like")
ones_like = _like("ones_like")


def zeros(shape: Sequence[int], dtype: str = "float32") -> Call:
    """A tensor of zeros."""
    return call("zeros", shape=shape, dtype=dtype)


def ones(shape: Sequence[int], dtype: str = "float32") -> Call:
    """A tensor of ones."""
    return call("ones", shape=shape, dtype=dtype)


@operator(
    "full",
    OpPattern.ELEMWISE,
    _full_type,
    lambda args, attrs: np.full(integers(attrs["shape"], "full"), args[0], attrs["dtype"] or args[0].dtype),
    lambda args, attrs, target: [
        _full_te(args[0], extents(attrs["shape"], "full"), attrs["dtype"] or args[0].dtype, "T_full")
    ],
)
def full(fill_value: Any, shape: Sequence[int] = (), dtype: str = "") -> Call:
    """A tensor that holds the scalar `fill_value` everywhere, in its dtype unless `dtype` is given."""
    return call("full", as_expr(fill_value), shape=shape, dtype=dtype)


@operator(
    "full_like",
    OpPattern.ELEMWISE,
    _full_like_type,
    lambda args, attrs: np.full_like(args[0], args[1]),
    lambda args, attrs, target: [_full_te(args[1], args[0].shape, args[0].dtype, "T_full_like")],
)
def full_like(data: Expr, fill_value: Any) -> Call:
    """The scalar `fill_value` in the shape and dtype of `data`."""
    return call("full_like", data, as_expr(fill_value, data))


@operator(
    "arange",
    OpPattern.OPAQUE,
    _arange_type,
    lambda args, attrs: _arange(attrs),
    lambda args, attrs, target: [_arange_te(attrs)],
    start=0,
    stop=0,
)
def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "float32") -> Call:
    """`start, start + step, ...` below `stop`; from 0 when `stop` is None."""
    first, last = (0, start) if stop is None else (start, stop)
    return call("arange", start=first, stop=last, step=step, dtype=dtype)


@operator(
    "one_hot",
    OpPattern.OUT_ELEMWISE_FUSABLE,
    _one_hot_type,
    _one_hot_numpy,
    lambda args, attrs, target: [
        topi.one_hot(args[0], args[1](), args[2](), attrs["depth"], attrs["axis"], attrs["dtype"] or args[1].dtype)
    ],
    depth=1,
    dtype="",
)
def one_hot(indices: Expr, on_value: Any, off_value: Any, depth: int, axis: int = -1, dtype: str = "float32") -> Call:
    """A new dimension of `depth` at `axis` that holds `on_value` at the index and `off_value` elsewhere."""
    on = as_expr(on_value)
    return call("one_hot", indices, on, as_expr(off_value, on), depth=depth, axis=axis, dtype=dtype)
