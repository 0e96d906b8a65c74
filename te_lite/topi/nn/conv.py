"""Direct convolutions in 1, 2 and 3 dimensions, of any layout, with groups and dilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, cast
from ..utils import conv_extent, layout_axes, per_dim
from .pad import pad
from .utils import Padding, get_pad_tuple_generic

Ints = int | Sequence[int]

SPATIAL_AXES = ("yy", "xx", "zz")
REDUCE_AXES = ("ry", "rx", "rz")


def _kernel_axes(kernel_layout: str, data_layout: str, ndim: int) -> tuple[int, int, list[int]]:
    """The positions of O, of I and of the spatial dimensions in a kernel."""
    if kernel_layout:
        ok = len(kernel_layout) == ndim and "O" in kernel_layout and "I" in kernel_layout
        law = "the kernel layout must name O, I and the spatial dimensions"
        require(ok, ExprError, "conv", law, kernel_layout=kernel_layout)
        spatial = [d for d, letter in enumerate(kernel_layout) if letter not in "OI"]
        return kernel_layout.index("O"), kernel_layout.index("I"), spatial
    _, channel, spatial = layout_axes(data_layout, ndim, "conv")
    channels_first = channel < spatial[0]
    return (0, 1, list(range(2, ndim))) if channels_first else (ndim - 1, ndim - 2, list(range(ndim - 2)))


@dataclass(frozen=True)
class _Axes:
    """The positions of N, C and the spatial dimensions in the data, and of O, I and the spatial ones in the weight."""

    n: int
    c: int
    spatial: list[int]
    o: int
    i: int
    kernel: list[int]

    def names(self, ndim: int) -> list[str]:
        """The names of the axes of the convolution."""
        names = [""] * ndim
        names[self.n], names[self.c] = "nn", "ff"
        for d, name in zip(self.spatial, SPATIAL_AXES, strict=False):
            names[d] = name
        return names


def _axes_of(inp: Tensor, filt: Tensor, data_layout: str, kernel_layout: str, groups: int) -> _Axes:
    """The positions in `inp` and `filt`, which are found to fit together."""
    require(filt.ndim == inp.ndim, ExprError, "conv", "data and weight must have as many dimensions",
            data=inp.shape, weight=filt.shape)  # fmt: skip
    layout = layout_axes(data_layout, inp.ndim, "conv")
    at = _Axes(*layout, *_kernel_axes(kernel_layout, data_layout, inp.ndim))
    filters, channels = filt.shape[at.o], inp.shape[at.c]
    fits = groups > 0 and channels % groups == 0 and filters % groups == 0 and filt.shape[at.i] == channels // groups
    require(fits, ExprError, "conv", "the channels of data, weight and groups do not fit",
            data=inp.shape, weight=filt.shape, groups=groups)  # fmt: skip
    return at


def _window_sum(
    data: Tensor, filt: Tensor, at: _Axes, strides: Sequence[int], dilations: Sequence[int], groups: int, dtype: str
) -> Callable[..., Expr]:
    """The element of a convolution: the sum over the channels of its group and the window at its place."""
    channels, filters = filt.shape[at.i], filt.shape[at.o] // groups
    rc = reduction.reduce_axis((0, channels), "rc")
    rs = [reduction.reduce_axis((0, filt.shape[d]), name) for d, name in zip(at.kernel, REDUCE_AXES, strict=False)]

    def element(*i: Expr) -> Expr:
        channel = rc if groups == 1 else i[at.c] // filters * channels + rc
        read: dict[int, Expr] = {at.n: i[at.n], at.c: channel}
        weight: dict[int, Expr] = {at.o: i[at.c], at.i: rc}
        for d, r, s, step, k in zip(at.spatial, rs, strides, dilations, at.kernel, strict=True):
            read[d], weight[k] = i[d] * s + r * step, r
        inner = [rc if d == at.c else rs[at.spatial.index(d)] for d in range(data.ndim) if d != at.n]
        product = cast(dtype, data[_in_order(read)]) * cast(dtype, filt[_in_order(weight)])
        return reduction.sum(product, axis=inner)

    return element


def _in_order(by_place: Mapping[int, Expr]) -> list[Expr]:
    return [by_place[d] for d in range(len(by_place))]


def conv(
    inp: Tensor,
    filt: Tensor,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
    layout_free: bool = False,
) -> Tensor:
    """Convolution of `inp` (layout like "NHWC") with `filt` (like "HWIO"; derived from the data layout when empty).

    Stages `pad_temp` and `[group_]conv<n>d_<layout>`.  `layout_free` marks the weight as free to be stored in
    another order.  Raises ExprError when ranks, channels or groups do not fit.
    """
    at = _axes_of(inp, filt, data_layout, kernel_layout, groups)
    n = inp.ndim - 2
    strides, dilations = per_dim(stride, n, "conv stride"), per_dim(dilation, n, "conv dilation")
    kernel = [filt.shape[d] for d in at.kernel]
    before, after = get_pad_tuple_generic(padding, [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)])
    padded = pad(inp, _spread(before, at.spatial, inp.ndim), _spread(after, at.spatial, inp.ndim), name="pad_temp")
    shape = list(inp.shape)
    shape[at.c] = filt.shape[at.o]
    for d, k, s, b, a, step in zip(at.spatial, kernel, strides, before, after, dilations, strict=True):
        shape[d] = conv_extent(inp.shape[d], k, s, b, a, step)
    element = _window_sum(padded, filt, at, strides, dilations, groups, out_dtype or inp.dtype)
    stage = f"{'group_' if groups > 1 else ''}conv{n}d_{data_layout.lower()}"
    attrs = {"layout_free_placeholders": [filt]} if layout_free else {}
    return compute(shape, element, stage, stage, attrs, at.names(inp.ndim))


def _spread(values: Sequence[int], where: Sequence[int], ndim: int) -> list[int]:
    out = [0] * ndim
    for d, value in zip(where, values, strict=True):
        out[d] = value
    return out


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Ints = 1,
    padding: Padding = "VALID",
    dilation: Ints = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """1-D convolution; weight OIW for NCW, WIO for NWC."""
    return conv(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


def conv1d_ncw(data: Tensor, kernel: Tensor, strides: Ints = 1, padding: Padding = "VALID", dilation: Ints = 1,
               out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """1-D convolution of [N, C, W] with [O, I, W]."""
    return conv(data, kernel, strides, padding, dilation, 1, "NCW", "", out_dtype)


def conv1d_nwc(data: Tensor, kernel: Tensor, strides: Ints = 1, padding: Padding = "VALID", dilation: Ints = 1,
               out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """1-D convolution of [N, W, C] with [W, I, O]."""
    return conv(data, kernel, strides, padding, dilation, 1, "NWC", "", out_dtype)


def group_conv1d_ncw(data: Tensor, kernel: Tensor, strides: Ints = 1, padding: Padding = "VALID", dilation: Ints = 1,
                     groups: int = 1, out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """Grouped 1-D convolution of [N, C, W] with [O, I / groups, W]."""
    return conv(data, kernel, strides, padding, dilation, groups, "NCW", "", out_dtype)


def group_conv1d_nwc(data: Tensor, kernel: Tensor, strides: Ints = 1, padding: Padding = "VALID", dilation: Ints = 1,
                     groups: int = 1, out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """Grouped 1-D convolution of [N, W, C] with [W, I / groups, O]."""
    return conv(data, kernel, strides, padding, dilation, groups, "NWC", "", out_dtype)


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: Ints,
    padding: Padding,
    dilation: Ints,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """2-D convolution; weight OIHW for NCHW, HWIO for NHWC and HWCN."""
    return conv(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv2d_nchw(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints,
                out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """2-D convolution of [N, C, H, W] with [O, I, H, W]."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NCHW", "", out_dtype)


def conv2d_nhwc(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints,
                out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """2-D convolution of [N, H, W, C] with [H, W, I, O], whose order in memory is free."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NHWC", "", out_dtype, layout_free=True)


def conv2d_hwcn(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints,
                out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """2-D convolution of [H, W, C, N] with [H, W, I, O]."""
    return conv(Input, Filter, stride, padding, dilation, 1, "HWCN", "", out_dtype)


def group_conv2d_nchw(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints, groups: int,
                      out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """Grouped 2-D convolution of [N, C, H, W] with [O, I / groups, H, W]."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCHW", "", out_dtype)


def group_conv2d_nhwc(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints, groups: int,
                      out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """Grouped 2-D convolution of [N, H, W, C] with [H, W, I / groups, O]."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NHWC", "", out_dtype)


def conv3d_ncdhw(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints, groups: int = 1,
                 out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """3-D convolution of [N, C, D, H, W] with [O, I / groups, D, H, W]."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCDHW", "", out_dtype)


def conv3d_ndhwc(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints, groups: int = 1,
                 out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """3-D convolution of [N, D, H, W, C] with [D, H, W, I / groups, O], whose order in memory is free."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NDHWC", "", out_dtype, layout_free=True)
