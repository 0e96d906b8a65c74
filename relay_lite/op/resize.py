"""Resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.expr.arithmetic import convert
from te_lite.topi.image import COORDINATES, METHODS, ROUNDINGS, position, rounding

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, Shape, choice, dtype_of, floats, operator, rank, tensors
from .window import check_layout, pick, repeated, to_layout

UPSAMPLING = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


def _resized(x: TensorType, size: Any, layout: Any, method: str, what: str) -> tuple[int, ...]:
    """The shape with H and W replaced."""
    rank(x, 4, what)
    if method != "nearest_neighbor":
        floats(x, what)
    wanted = repeated(size, 2, what)
    ok = len(wanted) == 2 and min(wanted) > 0
    require(ok, GraphError, what, "the size must be two integers of at least 1", size=size)
    extents = dict(zip("HW", wanted, strict=True))
    return tuple(extents.get(k, n) for k, n in zip(check_layout(layout, "NCHW", what), x.shape, strict=True))


def _resize_type(types: Sequence[Type], attrs: Attrs) -> Type:
    what = "image.resize2d"
    (x,) = tensors(types, 1, what)
    method = choice(attrs["method"], METHODS, what, "method")
    choice(attrs["coordinate_transformation_mode"], COORDINATES, what, "coordinate_transformation_mode")
    choice(attrs["rounding_method"], ROUNDINGS, what, "rounding_method")
    shape = _resized(x, attrs["size"], attrs["layout"], method, what)
    return TensorType(shape, dtype_of(attrs["out_dtype"], x.dtype, what))


def _weights(size: int, target: int, attrs: Attrs) -> list[tuple[Array, Array]]:
    """For each neighbour that is read: its index and its weight at every pixel of the result."""
    mode, method = attrs["coordinate_transformation_mode"], attrs["method"]
    a, b, c = position(size, target, mode)
    numerator = a * np.arange(target) + b
    if method == "nearest_neighbor":
        how = rounding(attrs["rounding_method"], mode)
        up = {"floor": 0, "ceil": 2 * c - 2, "round_prefer_ceil": c, "round_prefer_floor": c - 1}[how]
        return [((2 * numerator + up) // (2 * c), np.ones(target))]
    low, t = numerator // c, numerator % c / c
    if method == "linear":
        return [(low, 1 - t), (low + 1, t)]
    return _cubic_weights(size, low, t, attrs)


def _cubic_weights(size: int, low: Array, t: Array, attrs: Attrs) -> list[tuple[Array, Array]]:
    """Four neighbours, `t` behind the second of them."""
    alpha = attrs["cubic_alpha"]
    places = np.stack([low + k for k in (-1, 0, 1, 2)])
    distance = np.stack([t + 1, t, 1 - t, 2 - t])
    near = ((alpha + 2) * distance - (alpha + 3)) * distance**2 + 1
    far = ((alpha * distance - 5 * alpha) * distance + 8 * alpha) * distance - 4 * alpha
    weights = np.where(distance <= 1, near, far)
    if attrs["cubic_exclude"]:
        weights = np.where((places >= 0) & (places < size), weights, 0)
        weights = weights / weights.sum(0)
    return list(zip(places, weights, strict=True))


def _resize(x: Array, size: Sequence[int], attrs: Attrs) -> Array:
    """[N, C, H, W], one dimension after the other."""
    for axis, target in ((2, size[0]), (3, size[1])):
        shape = (-1, 1) if axis == 2 else (-1,)
        taps = [
            (x.take(index, axis, mode="clip"), weight.reshape(shape).astype(x.dtype))
            for index, weight in _weights(x.shape[axis], target, attrs)
        ]
        x = reduce(np.add, [np.where(weight == 0, np.zeros((), x.dtype), value * weight) for value, weight in taps])
    return x


def _resize_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    layout = attrs["layout"]
    size = repeated(attrs["size"], 2, "image.resize2d")
    out = _resize(to_layout(args[0], layout, "NCHW"), size, attrs)
    whole = np.ascontiguousarray(to_layout(out, "NCHW", layout))
    return np.asarray(convert(whole, attrs["out_dtype"] or args[0].dtype))


def _resize_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    out = topi.image.resize2d(
        args[0],
        attrs["size"],
        attrs["layout"],
        attrs["method"],
        attrs["coordinate_transformation_mode"],
        attrs["rounding_method"],
        attrs["cubic_alpha"],
        bool(attrs["cubic_exclude"]),
    )
    return [topi.cpp.cast(out, attrs["out_dtype"]) if attrs["out_dtype"] not in (None, "", out.dtype) else out]


# ------------------------------------------------------------------------------------------------ upsampling


def _as_resize(shape: Shape, attrs: Attrs) -> dict[str, Any]:
    """The attributes of the `image.resize2d` that an upsampling is."""
    what = "nn.upsampling"
    method = UPSAMPLING[choice(attrs["method"], tuple(UPSAMPLING), what, "method")]
    scales = (attrs["scale_h"], attrs["scale_w"])
    law = "the scales must be numbers above 0"
    ok = all(isinstance(s, int | float | np.number) and s > 0 for s in scales)
    require(ok, GraphError, what, law, scale_h=scales[0], scale_w=scales[1])
    height, width = pick(shape, check_layout(attrs["layout"], "NCHW", what), "HW")
    return {
        "size": (round(height * scales[0]), round(width * scales[1])),
        "layout": attrs["layout"],
        "method": method,
        "coordinate_transformation_mode": "align_corners" if attrs["align_corners"] else "asymmetric",
        "rounding_method": "",
        "cubic_alpha": -0.5,
        "cubic_exclude": False,
        "out_dtype": "",
    }


def _upsampling_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.upsampling")
    rank(x, 4, "nn.upsampling")
    resize = _as_resize(x.shape, attrs)
    return TensorType(_resized(x, resize["size"], resize["layout"], resize["method"], "nn.upsampling"), x.dtype)


# ---------------------------------------------------------------------------------------------------- calls


@operator("image.resize2d", OpPattern.INJECTIVE, _resize_type, _resize_numpy, _resize_te, size=())
def resize2d(
    data: Expr,
    size: int | Sequence[int],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: bool = False,
    out_dtype: str = "",
) -> Call:
    """Resize height and width to `size`.

    `method`: "nearest_neighbor", "linear" or "cubic".  `coordinate_transformation_mode`: "half_pixel",
    "align_corners", "asymmetric", "pytorch_half_pixel" or "tf_half_pixel_for_nn".  `rounding_method` of the nearest
    pixel: "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", or "" for what suits the mode.
    `cubic_exclude` leaves out pixels outside the image, and scales up the weights of the others.
    """
    return call("image.resize2d", data, size=size, layout=layout, method=method,
                coordinate_transformation_mode=coordinate_transformation_mode, rounding_method=rounding_method,
                cubic_alpha=cubic_alpha, cubic_exclude=cubic_exclude, out_dtype=out_dtype)  # fmt: skip


@operator(
    "nn.upsampling",
    OpPattern.INJECTIVE,
    _upsampling_type,
    lambda args, attrs: _resize_numpy(args, _as_resize(args[0].shape, attrs)),
    lambda args, attrs, target: _resize_te(args, _as_resize(args[0].shape, attrs), target),
)
def upsampling(
    data: Expr,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """Multiply height and width; `method`: "nearest_neighbor", "bilinear" or "bicubic"."""
    return call("nn.upsampling", data, scale_h=scale_h, scale_w=scale_w, layout=layout, method=method,
                align_corners=align_corners)  # fmt: skip
