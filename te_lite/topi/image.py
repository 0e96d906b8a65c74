"""Resizing of images.

The place of a pixel of the result in the source is a fraction of integers, so nearest pixels and distances come out
exact on every machine, where floats would round differently.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from ..computation.tensor import Tensor
from ..errors import ExprError, require
from ..expr.expr import Expr, binary, cast, compare, const, logical_and, select
from .tag import INJECTIVE
from .utils import ax_compute, layout_axes, per_dim

COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
METHODS = ("nearest_neighbor", "linear", "cubic")
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

Taps = list[tuple[Expr, Expr, Expr | None]]
"""Neighbours, their weights, and where these are not 0 (None: everywhere), for 0 makes NaN of infinities."""


def position(size: int, target: int, mode: str) -> tuple[int, int, int]:
    """`(a, b, c)`: pixel x of the `target` pixels of the result stands at `(a * x + b) / c` of `size` pixels."""
    if mode == "align_corners":
        return (size - 1, 0, target - 1) if target > 1 else (0, 0, 1)
    if mode == "asymmetric":
        return size, 0, target
    if mode == "tf_half_pixel_for_nn":
        return 2 * size, size, 2 * target
    return (0, 0, 1) if mode == "pytorch_half_pixel" and target == 1 else (2 * size, size - target, 2 * target)


def rounding(method: str, mode: str) -> str:
    """The rounding that is meant: without one, as in TVM, to the nearest (halves up) for `align_corners`, else down."""
    default = "round_prefer_ceil" if mode == "align_corners" else "floor"
    return {"": default, "round": "round_prefer_ceil"}.get(method, method)


def _nearest(x: Expr, place: tuple[int, int, int], how: str) -> Expr:
    a, b, c = place
    match how:
        case "floor":
            return (x * a + b) // c
        case "ceil":
            return (x * a + (b + c - 1)) // c
        case "round_prefer_ceil":
            return (x * (2 * a) + (2 * b + c)) // (2 * c)
        case _:
            return (x * (2 * a) + (2 * b + c - 1)) // (2 * c)


def _inside(index: Expr, size: int) -> Expr:
    return binary("max", binary("min", index, size - 1), 0)


def _linear(x: Expr, place: tuple[int, int, int], target: int, dtype: str) -> Taps:
    """Two neighbours and their weights."""
    low, far, between = _apart(x, place, target, dtype)
    return [(low, const(1.0, dtype) - far, None), (low + 1, far, between)]


def _apart(x: Expr, place: tuple[int, int, int], target: int, dtype: str) -> tuple[Expr, Expr, Expr | None]:
    """The neighbour before a place, how far the place is from it, and whether it is at all where that is not always."""
    a, b, c = place
    rest = (x * a + b) % c
    exact = any((k * a + b) % c == 0 for k in range(target))
    return (x * a + b) // c, cast(dtype, rest) / const(float(c), dtype), compare("!=", rest, 0) if exact else None


def _cubic(
    x: Expr, place: tuple[int, int, int], target: int, dtype: str, size: int, alpha: float, exclude: bool
) -> Taps:
    """Four neighbours and their weights; `exclude` drops neighbours outside and scales up the others."""
    low, t, between = _apart(x, place, target, dtype)
    one, two = const(1.0, dtype), const(2.0, dtype)

    def near(d: Expr) -> Expr:
        return (d * (alpha + 2) - (alpha + 3)) * d * d + 1.0

    def far(d: Expr) -> Expr:
        return ((d * alpha - 5 * alpha) * d + 8 * alpha) * d - 4 * alpha

    weights = [far(t + one), near(t), near(one - t), far(two - t)]
    places = [low + k for k in (-1, 0, 1, 2)]
    counted = [between, None, between, between]
    if exclude:
        inside = [logical_and(p >= 0, p < size) for p in places]
        weights = [select(i, w, const(0.0, dtype)) for i, w in zip(inside, weights, strict=True)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
        counted = [i if c is None else logical_and(i, c) for i, c in zip(inside, counted, strict=True)]
    return list(zip(places, weights, counted, strict=True))


def resize2d(
    data: Tensor,
    size: int | Sequence[int],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: bool = False,
) -> Tensor:
    """Resize the two spatial dimensions to `size` (stage `resize`).

    `method`: `nearest_neighbor` (see `rounding`), `linear` or `cubic` (parameter `cubic_alpha`; `cubic_exclude` leaves
    out what lies outside).  Raises ExprError for an unknown mode, method or rounding.
    """
    _, _, where = layout_axes(layout, data.ndim, "resize2d")
    mode = coordinate_transformation_mode
    for value, allowed in ((mode, COORDINATES), (method, METHODS), (rounding_method, ROUNDINGS)):
        require(value in allowed, ExprError, "resize2d", f"must be one of {', '.join(map(repr, allowed))}", got=value)
    targets = per_dim(size, 2, "resize2d size")
    shape = list(data.shape)
    for w, n in zip(where, targets, strict=True):
        shape[w] = n
    sizes = [data.shape[w] for w in where]
    places = [position(n, target, mode) for n, target in zip(sizes, targets, strict=True)]

    def read(i: Sequence[Expr], y: Expr, x: Expr) -> Expr:
        at = list(i)
        at[where[0]], at[where[1]] = _inside(y, sizes[0]), _inside(x, sizes[1])
        return data[at]

    def taps(v: Expr, d: int) -> Taps:
        if method == "linear":
            return _linear(v, places[d], targets[d], data.dtype)
        return _cubic(v, places[d], targets[d], data.dtype, sizes[d], cubic_alpha, cubic_exclude)

    def element(*i: Expr) -> Expr:
        if method == "nearest_neighbor":
            how = rounding(rounding_method, mode)
            return read(i, *[_nearest(i[w], place, how) for w, place in zip(where, places, strict=True)])
        rows, columns = [taps(i[w], d) for d, w in enumerate(where)]
        lines = [(_weighted([(read(i, y, x), w, t) for x, w, t in columns]), wy, ty) for y, wy, ty in rows]
        return _weighted(lines)

    return ax_compute(shape, element, "resize", INJECTIVE)


def _weighted(terms: Taps) -> Expr:
    counted = [v * w if test is None else select(test, v * w, const(0.0, v.dtype)) for v, w, test in terms]
    return functools.reduce(operator.add, counted)
