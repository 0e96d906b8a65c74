"""What meanings of ONNX operators are made of: moves, arithmetic, folds and products of values with error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .bounded import DIGITS, Array, Value, exact, floats
from .folds import fold
from .operators import alike, binary, call, cast

Move = Callable[[Array], Array]
REGROUPED = 4.0
"""Passes regroup sums of constants: the error of a sum grows with its operands, by so many units."""


def absent(x: float) -> float:
    """The value of an attribute that is not there, which is float32 as those are that are there."""
    return float(np.float32(x))


def number(x: float, like: Value) -> Value:
    """A constant in the dtype of `like`."""
    return cast(exact(np.asarray(x, "float64"), "float64"), like.dtype)


def arithmetic(op: str, a: Value, b: Value) -> Value:
    """`binary` where constants may be regrouped, and a quotient by one may be a product with its inverse."""
    out = binary(op, *alike(a, b))
    if not out.is_float or op not in ("+", "-", "*", "/"):
        return out
    size = np.abs(a.v) + np.abs(b.v) if op in ("+", "-") else np.abs(out.v)
    more = REGROUPED * 2.0 ** -DIGITS[out.dtype] * np.where(np.isfinite(size), size, 0.0)
    inverted = (op == "/") & (np.abs(np.frexp(b.v)[0]) != 0.5)
    return looser(out, np.where((out.e > 0) | inverted, more, 0.0))


def looser(x: Value, more: Array) -> Value:
    """Floats that may be off by `more` as well; where that has no bound, they are unknown."""
    return floats(x.v, np.where(np.isfinite(x.v), x.e + more, x.e), x.dtype, x.unsigned)


def add(a: Value, b: Value) -> Value:
    return arithmetic("+", a, b)


def sub(a: Value, b: Value) -> Value:
    return arithmetic("-", a, b)


def mul(a: Value, b: Value) -> Value:
    return arithmetic("*", a, b)


def div(a: Value, b: Value) -> Value:
    return arithmetic("/", a, b)


def f(function: str, *args: Value) -> Value:
    """A function of floats."""
    return call(function, list(args))


def moved(x: Value, move: Move) -> Value:
    """The elements in other places."""
    return x.rearranged(move)


def joined(parts: Sequence[Value], join: Callable[[list[Array]], Array]) -> Value:
    """Several values put together, as `np.concatenate` does."""
    spread = [x.rearranged(lambda y: y) for x in parts]
    return replace(
        spread[0], v=join([x.v for x in spread]), e=join([np.asarray(x.e) for x in spread]),
        unsigned=join([np.asarray(x.unsigned) for x in spread]),
    )  # fmt: skip


def spread(x: Value, shape: Sequence[int]) -> Value:
    """Broadcast."""
    return x.rearranged(lambda y: np.broadcast_to(y, shape))


def padded(x: Value, widths: Sequence[tuple[int, int]], fill: float = 0) -> Value:
    """With `fill` around it, which is exact."""
    full = x.rearranged(lambda y: y)
    inside = tuple([slice(a, n + a) for (a, _), n in zip(widths, x.v.shape, strict=True)])
    shape = [n + a + b for (a, b), n in zip(widths, x.v.shape, strict=True)]
    v, e, unsigned = np.full(shape, fill, x.v.dtype), np.zeros(shape), np.zeros(shape, bool)
    v[inside], e[inside], unsigned[inside] = full.v, full.e, full.unsigned
    return replace(x, v=v, e=e, unsigned=unsigned)


def axes_of(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes from 0 on; all of them where there are none."""
    return tuple(range(rank)) if axes is None else tuple(sorted({a % rank for a in axes}))


def folded(name: str, x: Value, axes: Sequence[int], keep: bool = True) -> Value:
    """`sum`, `prod`, `max` or `min` over some axes."""
    rows, shape = rows_of(x, axes)
    kept = np.ones(rows.v.shape, bool)
    (out,) = fold(name, [rows], kept, np.zeros(rows.v.shape))
    left = [1 if a in axes else n for a, n in enumerate(x.v.shape)] if keep else shape
    return out.rearranged(lambda y: y.reshape(left))


def rows_of(x: Value, axes: Sequence[int]) -> tuple[Value, list[int]]:
    """The elements along some axes as rows, and the extents of the other axes."""
    rest = [a for a in range(x.v.ndim) if a not in axes]
    shape = [x.v.shape[a] for a in rest]
    size = math.prod([x.v.shape[a] for a in axes])
    return x.rearranged(lambda y: y.transpose(*rest, *axes).reshape(math.prod(shape), size)), shape


def mean(x: Value, axes: Sequence[int]) -> Value:
    count = math.prod([x.v.shape[a] for a in axes])
    return div(folded("sum", x, axes), number(count, x))


def contracted(a: Value, b: Value) -> Value:
    """The sum over the last axis of products: of both in the same places, broadcast."""
    terms = binary("*", *alike(a, b))
    return folded("sum", terms, (terms.v.ndim - 1,), keep=False)


def product(a: Value, b: Value) -> Value:
    """MatMul of tensors of two or more axes."""
    left = moved(a, lambda x: x[..., :, None, :])
    right = moved(b, lambda x: np.swapaxes(x, -1, -2)[..., None, :, :])
    return contracted(left, right)


def windows(x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Value:
    """(N, C, spatial) as (N, C, places, kernel)."""

    def move(y: Array) -> Array:
        rank = len(kernel)
        whole = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        y = np.lib.stride_tricks.sliding_window_view(y, whole, tuple(range(2, 2 + rank)))
        return y[(..., *[slice(None, None, d) for d in dilations])][
            (slice(None), slice(None), *[slice(None, None, s) for s in strides])
        ]

    return moved(x, move)


def softmax(x: Value, axis: int, log: bool = False) -> Value:
    """Of a row with an infinity, or of -inf alone, it is NaN."""
    axes = (axis % x.v.ndim,)
    shifted = sub(x, folded("max", x, axes))
    power = f("exp", shifted)
    total = folded("sum", power, axes)
    out = sub(shifted, f("log", total)) if log else div(power, total)
    finite = np.where(np.isfinite(x.v), np.abs(x.v), 0.0).max(axis=axes[0], keepdims=True)
    slip = 2.0 ** -DIGITS[x.dtype] * 4 * finite + 2.0 ** -DIGITS[x.dtype] * (x.v.shape[axes[0]] + 8)
    more = slip if log else slip * np.abs(out.v)
    return looser(out, more)


def standard(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Distances from the mean, over their spread."""
    off = sub(x, mean(x, axes))
    spread_of = f("sqrt", add(mean(mul(off, off), axes), number(epsilon, x)))
    return div(off, spread_of)


def chosen_floats(where: Array, a: Value, b: Value) -> Value:
    """`a` where a condition that is known holds, else `b`."""
    a, b = alike(a, b)
    v, e = np.where(where, a.v, b.v), np.where(where, a.e, b.e)
    unsigned = np.where(where, a.unsigned, b.unsigned)
    return floats(v, e, a.dtype, unsigned) if a.is_float else Value(v, e, a.dtype)
