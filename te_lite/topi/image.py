"""Resizing of images."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ExprError, require
from ..expr import Expr, binary, call, cast, const
from ..tensor import Tensor
from .nn.utils import layout_axes
from .tag import INJECTIVE
from .utils import ax_compute, per_dim

COORDINATES = ("half_pixel", "align_corners", "asymmetric")


def _position(out: Expr, size: int, target: int, mode: str) -> Expr:
    """The float32 coordinate in the source of a pixel of the result."""
    x = cast("float32", out)
    if mode == "align_corners":
        return x * const((size - 1) / (target - 1) if target > 1 else 0.0)
    ratio = const(size / target)
    return (x + 0.5) * ratio - 0.5 if mode == "half_pixel" else x * ratio


def _inside(index: Expr, size: int) -> Expr:
    return binary("max", binary("min", index, size - 1), 0)


def resize2d(
    data: Tensor,
    size: int | Sequence[int],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """Resize the two spatial dimensions to `size` (stage `resize`).

    `method`: `nearest_neighbor` (rounding down after adding a half; plain floor for `asymmetric`) or `linear`.
    """
    _, _, where = layout_axes(layout, data.ndim, "resize2d")
    mode = coordinate_transformation_mode
    require(mode in COORDINATES, ExprError, "resize2d", f"the mode must be one of {', '.join(COORDINATES)}", mode=mode)
    ok = method in ("nearest_neighbor", "linear")
    require(ok, ExprError, "resize2d", "the method must be nearest_neighbor or linear", method=method)
    targets = per_dim(size, 2, "resize2d size")
    shape = list(data.shape)
    for w, n in zip(where, targets, strict=True):
        shape[w] = n

    def read(i: Sequence[Expr], y: Expr, x: Expr) -> Expr:
        at = list(i)
        at[where[0]], at[where[1]] = _inside(y, data.shape[where[0]]), _inside(x, data.shape[where[1]])
        return data[at]

    def element(*i: Expr) -> Expr:
        y, x = [_position(i[w], data.shape[w], n, mode) for w, n in zip(where, targets, strict=True)]
        if method == "nearest_neighbor":
            near = [call("floor", v if mode == "asymmetric" else v + 0.5) for v in (y, x)]
            return read(i, *[cast("int32", v) for v in near])
        (y0, dy), (x0, dx) = [(cast("int32", call("floor", v)), v - call("floor", v)) for v in (y, x)]
        dy, dx = cast(data.dtype, dy), cast(data.dtype, dx)
        top = read(i, y0, x0) * (1.0 - dx) + read(i, y0, x0 + 1) * dx
        bottom = read(i, y0 + 1, x0) * (1.0 - dx) + read(i, y0 + 1, x0 + 1) * dx
        return top * (1.0 - dy) + bottom * dy

    return ax_compute(shape, element, "resize", INJECTIVE)  # type: ignore[no-any-return]
