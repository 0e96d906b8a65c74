"""Convolutions in 1, 2 and 3 dimensions, of any layout, with groups and dilation.

A convolution whose groups are its channels is depthwise.  In two dimensions its weight may be [C, M, ...] in the
letters O and I: every channel has M filters of its own, and the result has C * M channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, Shape, define, dtype_of, factors, integer, integers, rank, same_dtype, tensors
from .numpy_windows import convolve
from .window import SPATIAL, Window, all_sides, check_layout, pick, repeated, to_layout

Ints = int | Sequence[int]

DATA = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}


@dataclass(frozen=True)
class Conv:
    """What the shapes and the attributes of a convolution say together."""

    batch: int
    channels: int
    filters: int
    multiplier: int
    groups: int
    window: Window
    out_size: Shape

    @property
    def depthwise(self) -> bool:
        """Every channel has filters of its own."""
        return self.groups > 1 and self.groups == self.channels and self.filters == self.channels * self.multiplier


def analyse(data: Shape, weight: Shape, attrs: Attrs, n: int, what: str) -> Conv:
    """Read a convolution of `n` spatial dimensions.  Raises GraphError when its parts do not fit together."""
    layout, kernel_layout = _layouts(attrs, SPATIAL[n], what)
    batch, channels, *size = pick(data, layout, f"NC{SPATIAL[n]}")
    o, i, *kernel = pick(weight, kernel_layout, f"OI{SPATIAL[n]}")
    groups = integer(attrs["groups"], what, "groups", 1)
    own = n == 2 and groups == channels == o and groups > 1
    fits = own or (i * groups == channels and o % groups == 0)
    law = "the channels of data, weight and groups do not fit"
    require(fits, GraphError, what, law, data=data, weight=weight, groups=groups, data_layout=layout,
            kernel_layout=kernel_layout)  # fmt: skip
    multiplier, filters = (i, o * i) if own else (o // groups, o)
    check_named(attrs, filters, tuple(kernel), what)
    window = Window.of(tuple(kernel), attrs["strides"], attrs["dilation"], attrs["padding"], n, what)
    return Conv(batch, channels, filters, multiplier, groups, window, window.extents(tuple(size), what))


def _layouts(attrs: Attrs, spatial: str, what: str) -> tuple[str, str]:
    """The layouts of data and kernel."""
    layout = check_layout(attrs["data_layout"], f"NC{spatial}", what)
    kernel_layout = check_layout(attrs["kernel_layout"], f"OI{spatial}", what)
    law = "data and kernel layout must have their spatial dimensions in the order " + spatial
    same = all("".join(x for x in v if x in spatial) == spatial for v in (layout, kernel_layout))
    require(same, GraphError, what, law, data_layout=layout, kernel_layout=kernel_layout)
    return layout, kernel_layout


def check_named(attrs: Attrs, filters: int, kernel: Shape, what: str) -> None:
    """Refuse attributes `channels` and `kernel_size` that contradict the weight."""
    channels, size = attrs["channels"], attrs["kernel_size"]
    agree = channels in (None, filters) and (size is None or integers(size, what) == kernel)
    law = f"channels and kernel_size must be those of the weight, {filters} and {kernel}"
    require(agree, GraphError, what, law, channels=channels, kernel_size=size)


def conv_type(types: Sequence[Type], attrs: Attrs, n: int, what: str) -> TensorType:
    """The type of a convolution's result."""
    data, weight = tensors(types, 2, what)
    rank(data, n + 2, what)
    rank(weight, n + 2, what)
    total = dtype_of(attrs["out_dtype"], data.dtype, what)
    factors(data, total, what)
    same_dtype([data, weight], what)
    found = analyse(data.shape, weight.shape, attrs, n, what)
    layout = attrs["data_layout"]
    law = "a layout of the result of its own is not supported"
    require(attrs["out_layout"] in ("", layout), GraphError, what, law, out_layout=attrs["out_layout"])
    extents = dict(zip(f"NC{SPATIAL[n]}", (found.batch, found.filters, *found.out_size), strict=True))
    return TensorType(tuple(extents[letter] for letter in layout), total)


def _numpy(args: Sequence[Any], attrs: Attrs, n: int, what: str) -> Array:
    data, weight = args
    found = analyse(data.shape, weight.shape, attrs, n, what)
    plain, kernel_plain = f"NC{SPATIAL[n]}", f"OI{SPATIAL[n]}"
    dtype = attrs["out_dtype"] or data.dtype
    x = to_layout(data, attrs["data_layout"], plain).astype(dtype)
    w = to_layout(weight, attrs["kernel_layout"], kernel_plain).astype(dtype)
    if found.depthwise:
        out = _depthwise(x, w.reshape(found.channels, found.multiplier, *found.window.kernel), found)
    else:
        window = found.window
        out = convolve(x, w, window.strides, window.padding, window.dilation, found.groups)
    return np.ascontiguousarray(to_layout(out, plain, attrs["data_layout"]))


def _depthwise(x: Array, w: Array, found: Conv) -> Array:
    """[N, C, spatial] with [C, M, kernel]: one pass over the data for each element of the kernel."""
    view = found.window.view(found.window.padded(x, 0))
    ones = (1,) * len(found.out_size)
    out = np.zeros((found.batch, found.channels, found.multiplier, *found.out_size), x.dtype)
    for at in np.ndindex(*found.window.kernel):
        where: Any = (..., *at)
        out += view[where][:, :, None] * w[where].reshape(1, found.channels, found.multiplier, *ones)
    return out.reshape(found.batch, found.filters, *found.out_size)


# ------------------------------------------------------------------------------------------ tensor expressions


def _te(args: Sequence[Any], attrs: Attrs, n: int, what: str) -> list[Tensor]:
    data, weight = args
    found = analyse(data.shape, weight.shape, attrs, n, what)
    window, layouts, dtype = found.window, (attrs["data_layout"], attrs["kernel_layout"]), attrs["out_dtype"] or None
    common = (data, weight, window.strides, window.padding, window.dilation)
    own = n == 2 and found.depthwise
    match layouts:
        case ("NCHW", "OIHW") if own and weight.shape[0] == found.channels:
            return [topi.nn.depthwise_conv2d_nchw(*common, out_dtype=dtype)]
        case ("NHWC", "HWOI") if own and weight.shape[2] == found.channels:
            return [topi.nn.depthwise_conv2d_nhwc(*common, out_dtype=dtype)]
        case ("NHWC", "HWIO") if found.groups == 1:
            return [topi.nn.conv2d_nhwc(*common, out_dtype=dtype)]
        case ("NDHWC", "DHWIO"):
            return [topi.nn.conv3d_ndhwc(*common, groups=found.groups, out_dtype=dtype)]
    law = "several filters a channel need the layouts NCHW and OIHW or NHWC and HWOI"
    own_weight = pick(weight.shape, layouts[1], "OI") == (found.channels, found.multiplier) and found.multiplier > 1
    require(not (own and own_weight), GraphError, what, law, data_layout=layouts[0], kernel_layout=layouts[1])
    return [topi.nn.conv(*common, found.groups, *layouts, dtype)]


def conv_defaults(n: int, data_layout: str, kernel_layout: str) -> dict[str, Any]:
    """The attributes that every convolution of `n` spatial dimensions has."""
    return {
        "strides": (1,) * n,
        "padding": (0,) * 2 * n,
        "dilation": (1,) * n,
        "groups": 1,
        "channels": None,
        "kernel_size": None,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": "",
        "out_dtype": "",
    }


def _define(n: int) -> None:
    name = f"nn.conv{n}d"
    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        lambda types, attrs: conv_type(types, attrs, n, name),
        lambda args, attrs: _numpy(args, attrs, n, name),
        lambda args, attrs, target: _te(args, attrs, n, name),
        **conv_defaults(n, DATA[n], KERNEL[n]),
    )


for _n in (1, 2, 3):
    _define(_n)


# ---------------------------------------------------------------------------------------------------- calls


def window_attrs(n: int, what: str, strides: Ints, padding: Ints, dilation: Ints) -> dict[str, Shape]:
    """The attributes of a window with one entry for every dimension (and side, for the padding)."""
    return {
        "strides": repeated(strides, n, what),
        "padding": all_sides(padding, n, what),
        "dilation": repeated(dilation, n, what),
    }


def conv_call(
    name: str,
    n: int,
    data: Expr,
    weight: Expr,
    strides: Ints,
    padding: Ints,
    dilation: Ints,
    kernel_size: Ints | None,
    **rest: Any,
) -> Call:
    """The convolution `name` of `n` spatial dimensions; `rest` are the attributes beside the window."""
    size = None if kernel_size is None else repeated(kernel_size, n, name)
    return call(name, data, weight, **window_attrs(n, name, strides, padding, dilation), kernel_size=size, **rest)


def conv1d(
    data: Expr,
    weight: Expr,
    strides: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """1-D convolution; `padding` is one integer or (left, right)."""
    return conv_call("nn.conv1d", 1, data, weight, strides, padding, dilation, kernel_size, groups=groups,
                     channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                     out_dtype=out_dtype)  # fmt: skip


def conv2d(
    data: Expr,
    weight: Expr,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """2-D convolution; `padding` is one integer, (height, width) or (top, left, bottom, right).

    `groups` equal to the channels is a depthwise convolution.  Channels and kernel size are checked when given.
    """
    return conv_call("nn.conv2d", 2, data, weight, strides, padding, dilation, kernel_size, groups=groups,
                     channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                     out_dtype=out_dtype)  # fmt: skip


def conv3d(
    data: Expr,
    weight: Expr,
    strides: Ints = (1, 1, 1),
    padding: Ints = (0, 0, 0),
    dilation: Ints = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """3-D convolution; `padding` is one integer, three, or (front, top, left, back, bottom, right)."""
    return conv_call("nn.conv3d", 3, data, weight, strides, padding, dilation, kernel_size, groups=groups,
                     channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                     out_dtype=out_dtype)  # fmt: skip
