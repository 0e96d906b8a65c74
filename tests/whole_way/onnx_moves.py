"""What ONNX's operators that move elements mean, from its pages: shapes, slices, gathers, scatters, resizes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from .blocks import add, folded, joined, looser, moved, mul, number, padded, spread
from .bounded import DIGITS, LARGEST, Array, Value, exact, floats, unknown_where
from .onnx_elements import Args, Attrs, Meaning
from .operators import binary

Shape = tuple[int, ...]


def _ints(x: Value) -> list[int]:
    return [int(n) for n in x.v.ravel()]


def _reshape(args: Args, attrs: Attrs) -> Value:
    x, given = args[0], _ints(args[1])
    shape = [x.v.shape[k] if n == 0 else n for k, n in enumerate(given)]
    return moved(x, lambda y: y.reshape(shape))


def _slice(args: Args, attrs: Attrs) -> Value:
    x, starts, ends, axes, steps = [args[0], *map(_ints, args[1:])]
    at = [slice(None)] * x.v.ndim
    for a, b, axis, s in zip(starts, ends, axes, steps, strict=True):
        at[axis] = slice(a, None if s < 0 and b < -x.v.shape[axis] else b, s)
    return moved(x, lambda y: y[tuple(at)])


def _pad(args: Args, attrs: Attrs) -> Value:
    x, pads = args[0], _ints(args[1])
    rank, mode = x.v.ndim, attrs.get("mode", "constant")
    widths = list(zip(pads[:rank], pads[rank:], strict=True))
    if mode == "constant":
        fill = args[2].v.reshape(()) if len(args) > 2 else 0
        return padded(x, widths, fill)
    return moved(x, lambda y: np.pad(y, widths, mode=mode))


def _concat(args: Args, attrs: Attrs) -> Value:
    return joined(args, lambda parts: np.concatenate(parts, attrs["axis"]))


def _split(args: Args, attrs: Attrs) -> list[Value]:
    x, ends = args[0], np.cumsum(_ints(args[1]))[:-1]
    return [moved(x, lambda y, k=k: np.split(y, ends, attrs.get("axis", 0))[k]) for k in range(len(ends) + 1)]


def _expand(args: Args, attrs: Attrs) -> Value:
    return spread(args[0], np.broadcast_shapes(args[0].v.shape, tuple(_ints(args[1]))))


def _squeeze(args: Args, attrs: Attrs) -> Value:
    return moved(args[0], lambda y: np.squeeze(y, tuple(_ints(args[1]))))


def _unsqueeze(args: Args, attrs: Attrs) -> Value:
    return moved(args[0], lambda y: np.expand_dims(y, tuple(_ints(args[1]))))


def _flatten(args: Args, attrs: Attrs) -> Value:
    axis = attrs.get("axis", 1)
    return moved(args[0], lambda y: y.reshape(math.prod(y.shape[:axis]), -1))


def _depth_to_space(args: Args, attrs: Attrs) -> Value:
    s = attrs["blocksize"]

    def move(y: Array) -> Array:
        n, c, h, w = y.shape
        if attrs.get("mode", "DCR") == "DCR":
            return y.reshape(n, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // s**2, h * s, w * s)
        return y.reshape(n, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // s**2, h * s, w * s)

    return moved(args[0], move)


def _space_to_depth(args: Args, attrs: Attrs) -> Value:
    s = attrs["blocksize"]

    def move(y: Array) -> Array:
        n, c, h, w = y.shape
        return y.reshape(n, c, h // s, s, w // s, s).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * s**2, h // s, w // s)

    return moved(args[0], move)


def _triangle(args: Args, attrs: Attrs) -> Value:
    x, k = args[0], int(args[1].v.reshape(())) if len(args) > 1 else 0
    keep = np.triu(np.ones(x.v.shape[-2:]), k) if attrs.get("upper", 1) else np.tril(np.ones(x.v.shape[-2:]), k)
    inside = np.broadcast_to(keep.astype(bool), x.v.shape)
    return replace(x, v=np.where(inside, x.v, np.zeros((), x.v.dtype)), e=np.where(inside, x.e, 0.0))


def _reverse(args: Args, attrs: Attrs) -> Value:
    x, lengths = args[0], _ints(args[1])
    time, batch = attrs.get("time_axis", 0), attrs.get("batch_axis", 1)

    def move(y: Array) -> Array:
        out = np.moveaxis(y, (batch, time), (0, 1)).copy()
        for row, n in zip(out, lengths, strict=True):
            row[:n] = row[:n][::-1].copy()
        return np.moveaxis(out, (0, 1), (batch, time))

    return moved(x, move)


# -------------------------------------------------------------------------------------------------- by indices


def _known(x: Value, index: Value) -> Value:
    """`x` where its index is known; nothing is known elsewhere."""
    if not (np.asarray(index.e) > 0).any():
        return x
    return replace(x, e=np.full(x.v.shape, np.inf), v=np.zeros_like(x.v))


def _gather(args: Args, attrs: Attrs) -> Value:
    x, index = args
    axis = attrs.get("axis", 0)
    _inside(index, x.v.shape[axis])
    return _known(moved(x, lambda y: np.take(y, index.v, axis=axis)), index)


def _inside(index: Value, n: int) -> None:
    if (index.v < -n).any() or (index.v >= n).any():
        raise IndexError("an index is outside of its axis")


def _gather_elements(args: Args, attrs: Attrs) -> Value:
    x, index = args
    axis = attrs.get("axis", 0) % x.v.ndim
    n = x.v.shape[axis]
    _inside(index, n)
    places = np.where(index.v < 0, index.v + n, index.v)
    cut = tuple([slice(None) if a == axis else slice(m) for a, m in enumerate(places.shape)])
    return _known(moved(x, lambda y: np.take_along_axis(y[cut], places, axis)), index)


def _gather_nd(args: Args, attrs: Attrs) -> Value:
    x, index = args
    places = tuple(np.moveaxis(index.v, -1, 0))
    return _known(moved(x, lambda y: y[places]), index)


_MEETING = {"add": "+", "mul": "*", "max": "max", "min": "min"}


def _scattered(x: Value, places: list[tuple[Any, Value]], how: str) -> Value:
    """`x` with updates at places, one after the other: put there, or met with what is there."""
    full = x.rearranged(lambda y: y.copy())
    v, e, unsigned = full.v.copy(), np.array(full.e), np.array(full.unsigned)
    for at, update in places:
        new = update
        if how != "none":
            here = Value(v[at], e[at], x.dtype, unsigned=unsigned[at])
            new = binary(_MEETING[how], here, update)
        v[at], e[at], unsigned[at] = new.v, new.e, new.unsigned
    return replace(x, v=v, e=e, unsigned=unsigned)


def _scatter_elements(args: Args, attrs: Attrs) -> Value:
    x, index, updates = args
    axis = attrs.get("axis", 0) % x.v.ndim
    _inside(index, x.v.shape[axis])
    places = []
    for at in np.ndindex(index.v.shape):
        to = list(at)
        to[axis] = int(index.v[at])
        places.append((tuple(to), moved(updates, lambda y, at=at: np.asarray(y[at]))))
    return _known(_scattered(x, places, attrs.get("reduction", "none")), index)


def _scatter_nd(args: Args, attrs: Attrs) -> Value:
    x, index, updates = args
    places = [
        (tuple(map(int, index.v[at])), moved(updates, lambda y, at=at: np.asarray(y[at])))
        for at in np.ndindex(index.v.shape[:-1])
    ]
    return _known(_scattered(x, places, attrs.get("reduction", "none")), index)


def _one_hot(args: Args, attrs: Attrs) -> Value:
    index, depth, pair = args
    n, axis = int(depth.v.reshape(())), attrs.get("axis", -1)
    axis = axis % (index.v.ndim + 1)
    shape = [-1 if a == axis else 1 for a in range(index.v.ndim + 1)]
    spot = np.expand_dims(index.v, axis)
    hit = np.where(spot < 0, spot + n, spot) == np.arange(n).reshape(shape)
    return unknown_where(np.where(hit, pair.v[1], pair.v[0]), np.expand_dims(index.e, axis) + np.zeros(hit.shape) > 0,
                         pair.dtype)  # fmt: skip


def _eye(args: Args, attrs: Attrs) -> Value:
    dtype = attrs.get("dtype", args[0].dtype)
    return exact(np.eye(*args[0].v.shape, k=attrs.get("k", 0)), dtype)


# ------------------------------------------------------------------------------------------------------ resize


def _place(k: int, n: int, m: int, scale: Fraction, mode: str) -> Fraction:
    """Where element k of m lies among the n that are given."""
    match mode:
        case "half_pixel":
            return (Fraction(2 * k + 1, 2)) / scale - Fraction(1, 2)
        case "pytorch_half_pixel":
            return (Fraction(2 * k + 1, 2)) / scale - Fraction(1, 2) if m > 1 else Fraction(0)
        case "align_corners":
            return Fraction(k * (n - 1), m - 1) if m > 1 else Fraction(0)
    return k / scale


def _nearest(x: Fraction, mode: str) -> int:
    match mode:
        case "floor":
            return math.floor(x)
        case "ceil":
            return math.ceil(x)
        case "round_prefer_ceil":
            return math.floor(x + Fraction(1, 2))
    return math.ceil(x - Fraction(1, 2))


def _cubic(t: Fraction, a: Fraction) -> list[Fraction]:
    """The weights of the two elements before a place and the two behind it."""

    def near(s: Fraction) -> Fraction:
        return (a + 2) * s**3 - (a + 3) * s**2 + 1

    def far(s: Fraction) -> Fraction:
        return a * s**3 - 5 * a * s**2 + 8 * a * s - 4 * a

    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


def _weights(n: int, m: int, attrs: Attrs) -> list[list[tuple[int, Fraction]]]:
    """For each of m elements, what is taken of which of the n."""
    scale, mode = Fraction(m, n), attrs.get("mode", "nearest")
    out = []
    for k in range(m):
        x = _place(k, n, m, scale, attrs.get("coordinate_transformation_mode", "half_pixel"))
        if mode == "nearest":
            at = _nearest(x, attrs.get("nearest_mode", "round_prefer_floor"))
            terms = [(at, Fraction(1))]
        elif mode == "linear":
            below = math.floor(x)
            terms = [(below, 1 - (x - below)), (below + 1, x - below)]
        else:
            below = math.floor(x)
            weights = _cubic(x - below, Fraction(attrs.get("cubic_coeff_a", -0.75)))
            terms = list(zip(range(below - 1, below + 3), weights, strict=True))
        out.append([(min(max(i, 0), n - 1), w) for i, w in terms if w])
    return out


Plan = list[tuple[int, list[list[tuple[int, Fraction]]]]]
"""Axes of a resize, and what each of their new elements is made of."""


def _resize(args: Args, attrs: Attrs) -> Value:
    """To `sizes`; what has weight 0 does not count."""
    x, sizes = args[0], _ints(args[3])
    shape = x.v.shape
    plan = [(axis, _weights(shape[axis], m, attrs)) for axis, m in enumerate(sizes) if m != shape[axis]]
    over = [_overflows(x, order) for order in (plan, plan[::-1])] if x.is_float else []
    for axis, weights in plan:
        x = joined([_mixed(x, axis, terms) for terms in weights], lambda parts, axis=axis: np.stack(parts, axis))
    return floats(x.v, np.where(over[0] | over[1], np.inf, x.e), x.dtype, x.unsigned) if over else x


def _overflows(x: Value, plan: Plan) -> Array:
    """Where terms that are finite may leave the dtype on the way, one axis after the other."""
    size = np.abs(np.where(np.isfinite(x.v), x.v, 0.0))
    for axis, weights in plan:
        parts = [sum(np.take(size, i, axis) * abs(float(w)) for i, w in terms) for terms in weights]
        size = np.stack(parts, axis)
        size = np.where(size > 0.99 * LARGEST[x.dtype], np.inf, size)
    return np.isinf(size)


def _mixed(x: Value, axis: int, terms: list[tuple[int, Fraction]]) -> Value:
    if len(terms) == 1 and terms[0][1] == 1:
        return moved(x, lambda y: np.take(y, terms[0][0], axis))
    out = None
    for i, w in terms:
        term = mul(moved(x, lambda y, i=i: np.take(y, i, axis)), number(float(w), x))
        out = term if out is None else add(out, term)
    assert out is not None
    size = folded("max", replace(x, v=np.abs(np.where(np.isfinite(x.v), x.v, 0.0)), e=np.zeros(())), (axis,), False)
    return looser(out, 16 * 2.0 ** -DIGITS[x.dtype] * size.v)  # of the weights


def _shape_of(args: Args, attrs: Attrs) -> Value:
    return exact(np.array(args[0].v.shape), "int64")


def _transposed(args: Args, attrs: Attrs) -> Value:
    return moved(args[0], lambda y: y.transpose(attrs["perm"]))


def _tiled(args: Args, attrs: Attrs) -> Value:
    return moved(args[0], lambda y: np.tile(y, _ints(args[1])))


MOVES: dict[str, Meaning] = {
    "Identity": lambda args, attrs: args[0], "Reshape": _reshape, "Transpose": _transposed, "Slice": _slice,
    "Pad": _pad, "Concat": _concat, "Split": _split, "Expand": _expand, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Flatten": _flatten, "Tile": _tiled, "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
    "Trilu": _triangle, "ReverseSequence": _reverse, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "OneHot": _one_hot, "EyeLike": _eye, "Shape": _shape_of,
}  # fmt: skip
"""Operators that compute nothing: results in the dtype of what they move."""
MIXES: dict[str, Meaning] = {"ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "Resize": _resize}
