"""The value of an expression on a whole box of its iteration space at once, in NumPy.

Every variable is bound to an integer array; all arrays have the same number of dimensions and length 1 along
those they do not depend on, so NumPy broadcasting is the loop nest.  A read whose indices turn out to be affine on
the box is a strided view of the tensor (no copy); any other read gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..computation.tensor import Tensor
from ..errors import InterpError, require
from ..expr.arithmetic import convert, trunc_divide
from ..expr.dtype import SMALL_FLOATS
from ..expr.expr import FLOATS, INDEX, Binary, Call, Cast, Compare, Const, Expr, Load, Logical, Not, Select, Var
from ..expr.intrinsics import CALLS
from ..expr.visit import is_data

Array = NDArray[Any]


def np_dtype(dtype: str, float_dtype: str | None) -> np.dtype[Any]:
    """NumPy's dtype for `dtype`; floats become `float_dtype` when that is given."""
    return np.dtype(float_dtype if float_dtype is not None and dtype in FLOATS else dtype)


def _trunc_div(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else trunc_divide(a, b)


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _trunc_div,
    "//": np.floor_divide,
    "%": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
}


@dataclass(frozen=True)
class Evaluator:
    """Evaluates expressions with `env` (variables) and `arrays` (tensors) on boxes of `ndim` dimensions.

    `float_dtype` replaces the dtype of all float arithmetic when it is given.
    """

    ndim: int
    env: Mapping[Var, Array]
    arrays: Mapping[Tensor, Array]
    float_dtype: str | None

    def value(self, e: Expr, mask: Array | None = None) -> Array:
        """The values of `e`; where `mask` is false they are arbitrary and reads may be out of range.

        Raises InterpError for a read out of range, or a variable without a value.
        """
        match e:
            case Var():
                require(e in self.env, InterpError, e.name, "the variable has no value here")
                return self.env[e]
            case Const(value=value, dtype=dtype):
                kind = "int64" if dtype == INDEX else dtype  # index arithmetic does not wrap
                return np.full((1,) * self.ndim, value, np_dtype(kind, self.float_dtype))
            case Binary(op=op, a=a, b=b) if e.dtype == INDEX and is_data(e):
                x, y = self.value(a, mask).astype(INDEX), self.value(b, mask).astype(INDEX)
                return np.asarray(BINARY[op](x, y)).astype(INDEX)
            case Binary(op=op, a=a, b=b) if e.dtype == "bool":
                x, y = self.value(a, mask).astype(np.int8), self.value(b, mask).astype(np.int8)
                return BINARY[op](x, y).astype(np.bool_)
            case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b) | Logical(op=op, a=a, b=b):
                return BINARY[op](self.value(a, mask), self.value(b, mask))
            case Not(a=a):
                return np.logical_not(self.value(a, mask))
            case Select(cond=cond, a=a, b=b):
                return self._own(e, np.where(self.value(cond, mask), self.value(a, mask), self.value(b, mask)))
            case Cast(dtype=dtype, a=a):
                return self._cast(self.value(a, mask), dtype)
            case Call(func="if_then_else", args=(cond, a, b)):
                return self._own(e, self._choose(cond, a, b, mask))
            case Call(func=func, args=args):
                return self._own(e, CALLS[func].value(*[self._own(e, self.value(a, mask)) for a in args]))
            case Load(tensor=tensor, indices=indices):
                return self._read(tensor, [self.value(i, mask) for i in indices], mask)
        raise InterpError(f"reference: cannot evaluate a {type(e).__name__} node inside an expression")

    def _own(self, e: Expr, value: Array) -> Array:
        """What `e` takes or gives, in its dtype where it is data."""
        return value.astype(INDEX) if e.dtype == INDEX and is_data(e) else value

    def _cast(self, x: Array, dtype: str) -> Array:
        """As numbers of `dtype`; small floats, which nothing is computed in, are rounded in a wider one, too."""
        if self.float_dtype is not None and dtype in SMALL_FLOATS:
            x = convert(x, dtype)
        return np.asarray(convert(x, np_dtype(dtype, self.float_dtype)))

    def _choose(self, cond: Expr, a: Expr, b: Expr, mask: Array | None) -> Array:
        chosen = self.value(cond, mask)
        if chosen.all():
            return self.value(a, mask)
        if not chosen.any():
            return self.value(b, mask)
        in_a = chosen if mask is None else chosen & mask
        in_b = ~chosen if mask is None else ~chosen & mask
        return np.where(chosen, self.value(a, in_a), self.value(b, in_b))

    def _read(self, tensor: Tensor, indices: list[Array], mask: Array | None) -> Array:
        array = self.arrays[tensor]
        view = _strided_view(array, indices, self.ndim)
        if view is not None:
            return view
        clipped = []
        for k, (index, size) in enumerate(zip(indices, array.shape, strict=True)):
            outside = (index < 0) | (index >= size)
            if outside.any():
                wrong = outside if mask is None else outside & mask
                if wrong.any():
                    got = int(np.broadcast_to(index, wrong.shape)[wrong][0])
                    raise InterpError(f"{tensor.name}: read out of range, got dimension={k} index={got} extent={size}")
                index = np.clip(index, 0, size - 1)
            clipped.append(index)
        return array[tuple(clipped)]


def _affine(index: Array) -> tuple[int, list[int]] | None:
    """`(base, coefficient of each dimension)` when `index` is affine in its position; else None."""
    base = int(index.flat[0])
    fitted: Any = base
    steps = []
    for d, size in enumerate(index.shape):
        second = tuple([int(k == d) for k in range(index.ndim)])
        step = int(index.item(second)) - base if size > 1 else 0
        steps.append(step)
        if step:
            shape = [1] * index.ndim
            shape[d] = size
            fitted = fitted + np.arange(size).reshape(shape) * step
    return (base, steps) if bool((fitted == index).all()) else None


def _strided_view(array: Array, indices: list[Array], ndim: int) -> Array | None:
    """The read of `array` as a view, or None when an index is not affine or leaves the array."""
    strides, shape, offset = [0] * ndim, [1] * ndim, 0
    for index, size, stride in zip(indices, array.shape, array.strides, strict=True):
        fit = _affine(index)
        if fit is None:
            return None
        base, steps = fit
        spans = [step * (n - 1) for step, n in zip(steps, index.shape, strict=True)]
        if base + sum(s for s in spans if s < 0) < 0 or base + sum(s for s in spans if s > 0) >= size:
            return None
        offset += base * stride
        for d, step in enumerate(steps):
            strides[d] += step * stride
            shape[d] = index.shape[d] if step else shape[d]
    view: Array = np.ndarray(shape, array.dtype, array, offset, strides)  # `as_strided` knows no float8
    view.flags.writeable = False
    return view
