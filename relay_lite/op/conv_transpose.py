"""Transposed convolutions in 1, 2 and 3 dimensions: what takes a convolution's result back to the size of its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import te_lite as te
from ansor.core.values.checks import require_tensor
from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.topi.nn.conv_transpose import transpose_padding

from ..ir.errors import GraphError
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .conv import DATA, Ints, check_named, conv_call, conv_defaults, window_attrs
from .define import Array, Shape, define, dtype_of, floats, integer, rank, same_dtype, tensors
from .numpy_windows import convolve_transposed
from .pick import strided_slice
from .window import SPATIAL, check_layout, pick, repeated, to_layout

KERNEL = {1: "IOW", 2: "IOHW", 3: "IODHW"}


def _amounts(attrs: Attrs, n: int, what: str) -> tuple[Shape, Shape, Shape]:
    """Strides, padding (all befores, then all afters) and output padding."""
    window = window_attrs(n, what, attrs["strides"], attrs["padding"], attrs["dilation"])
    extra = repeated(attrs["output_padding"], n, what)
    require(window["dilation"] == (1,) * n, GraphError, what, "dilation must be 1", dilation=window["dilation"])
    strides = window["strides"]
    small = len(strides) == len(extra) == n and all(0 <= e < s for e, s in zip(extra, strides, strict=True))
    law = "output_padding must be less than the stride"
    require(small, GraphError, what, law, output_padding=extra, strides=strides)
    return strides, window["padding"], extra


def _extents(size: Shape, kernel: Shape, attrs: Attrs, n: int, what: str) -> Shape:
    """The spatial extents of the result."""
    strides, padding, extra = _amounts(attrs, n, what)
    small = all(p < k for p, k in zip(padding, kernel * 2, strict=True))
    law = "padding must be less than the kernel"
    require(small, GraphError, what, law, padding=padding, kernel=kernel)
    rows = zip(size, strides, kernel, padding[:n], padding[n:], extra, strict=True)
    out = tuple((m - 1) * s + k - b - a + e for m, s, k, b, a, e in rows)
    require(min(out) > 0, GraphError, what, "nothing is left of the result", size=size, padding=padding)
    whole = [(m - 1) * s + 2 * k + e for m, s, k, e in zip(size, strides, kernel, extra, strict=True)]
    require_tensor(whole, "int8", f"{what}, the spread data")
    return out


def _type(types: Sequence[Type], attrs: Attrs, n: int, what: str) -> Type:
    data, weight = tensors(types, 2, what)
    rank(data, n + 2, what)
    rank(weight, n + 2, what)
    floats(data, what)
    same_dtype([data, weight], what)
    layout = check_layout(attrs["data_layout"], f"NC{SPATIAL[n]}", what)
    kernel_layout = check_layout(attrs["kernel_layout"], f"OI{SPATIAL[n]}", what)
    require(attrs["out_layout"] in ("", layout), GraphError, what, "a layout of the result of its own is not supported",
            out_layout=attrs["out_layout"])  # fmt: skip
    extents = _result_extents(data.shape, weight.shape, layout, kernel_layout, attrs, what)
    dtype = dtype_of(attrs["out_dtype"], data.dtype, what)
    return TensorType(tuple(extents[letter] for letter in layout), dtype)


def _result_extents(
    data: Shape, weight: Shape, layout: str, kernel_layout: str, attrs: Attrs, what: str
) -> dict[str, int]:
    """The extent of the result along each letter of the layout."""
    n = len(layout) - 2
    batch, channels, *size = pick(data, layout, f"NC{SPATIAL[n]}")
    o, i, *kernel = pick(weight, kernel_layout, f"OI{SPATIAL[n]}")
    groups = integer(attrs["groups"], what, "groups", 1)
    fits = i == channels and channels % groups == 0
    law = "the channels of data, weight and groups do not fit"
    require(fits, GraphError, what, law, data=data, weight=weight, groups=groups)
    check_named(attrs, o * groups, tuple(kernel), what)
    out = _extents(tuple(size), tuple(kernel), attrs, n, what)
    return dict(zip(f"NC{SPATIAL[n]}", (batch, o * groups, *out), strict=True))


def _numpy(args: Sequence[Any], attrs: Attrs, n: int, what: str) -> Array:
    plain, groups = f"NC{SPATIAL[n]}", attrs["groups"]
    dtype = attrs["out_dtype"] or args[0].dtype
    x = to_layout(args[0], attrs["data_layout"], plain).astype(dtype)
    w = to_layout(args[1], attrs["kernel_layout"], f"IO{SPATIAL[n]}").astype(dtype)
    strides, padding, extra = _amounts(attrs, n, what)
    parts = [
        convolve_transposed(data, weight, strides, padding, extra)
        for data, weight in zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True)
    ]
    return np.ascontiguousarray(to_layout(np.concatenate(parts, 1), plain, attrs["data_layout"]))


def _moved(x: Tensor, layout: str, target: str) -> Tensor:
    return x if layout == target else topi.transpose(x, [layout.index(letter) for letter in target])


def _te(args: Sequence[Any], attrs: Attrs, n: int, target: str) -> list[Tensor]:
    """Other layouts are transposed first; the passes have done so before, where the transposition is worth a kernel."""
    plain = DATA[n]
    data = _moved(args[0], attrs["data_layout"], plain)
    weight = _moved(args[1], attrs["kernel_layout"], KERNEL[n])
    strides, padding, extra = _amounts(attrs, n, f"nn.conv{n}d_transpose")
    rest = (strides, padding, attrs["out_dtype"] or data.dtype, extra)
    if n == 2 and (target == "cuda" or attrs["groups"] > 1):
        out = topi.cuda.conv2d_transpose_nchw(data, weight, *rest, groups=attrs["groups"])
    elif attrs["groups"] > 1:
        out = _in_groups(data, weight, attrs["groups"], *rest)
    else:
        nn = topi.nn
        transposed = (nn.conv1d_transpose_ncw, nn.conv2d_transpose_nchw, nn.conv3d_transpose_ncdhw)[n - 1]
        out = transposed(data, weight, *rest)
    return [_moved(out, plain, attrs["data_layout"])]


def _in_groups(
    data: Tensor, weight: Tensor, groups: int, strides: Shape, padding: Shape, dtype: str, extra: Shape
) -> Tensor:  # fmt: skip
    """[N, C, ...] with [C, CO / groups, kernel ...]: a grouped convolution of the spread data by the turned kernel."""
    n = data.ndim - 2
    inside, (_, filters, *kernel) = data.shape[1] // groups, weight.shape

    def turned(*i: te.Expr) -> te.Expr:
        place = [k - 1 - v for k, v in zip(kernel, i[2:], strict=True)]
        return weight(i[0] // filters * inside + i[1], i[0] % filters, *place)

    by_output = te.compute((filters * groups, inside, *kernel), turned, "kernel_transform", topi.tag.INJECTIVE)
    before, after = transpose_padding(tuple(kernel), strides, padding, extra)
    spread = topi.nn.dilate(data, (1, 1, *strides), name="data_dilate")
    return topi.nn.conv(spread, by_output, 1, (*before, *after), 1, groups, DATA[n], f"OI{SPATIAL[n]}", dtype)


def _define(n: int) -> None:
    name = f"nn.conv{n}d_transpose"
    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        lambda types, attrs: _type(types, attrs, n, name),
        lambda args, attrs: _numpy(args, attrs, n, name),
        lambda args, attrs, target: _te(args, attrs, n, target),
        **conv_defaults(n, DATA[n], KERNEL[n]),
        output_padding=(0,) * n,
    )


for _n in (1, 2, 3):
    _define(_n)


def _call(n: int, data: Expr, weight: Expr, strides: Ints, padding: Ints, dilation: Ints, kernel_size: Ints | None,
          output_padding: Ints, **rest: Any) -> Call:  # fmt: skip
    """The operator; what a padding as long as the kernel or longer cuts off is cut off its result."""
    name, kernel_layout, layout = f"nn.conv{n}d_transpose", rest["kernel_layout"], rest["data_layout"]
    given = window_attrs(n, name, strides, padding, dilation)["padding"]
    most = list(given)
    if sorted(kernel_layout) == sorted(f"OI{SPATIAL[n]}") and len(weight.shape) == n + 2:
        most = [k - 1 for k in pick(weight.shape, kernel_layout, SPATIAL[n])] * 2
    inner = tuple(map(min, given, most))
    made = conv_call(name, n, data, weight, strides, inner, dilation, kernel_size,
                     output_padding=repeated(output_padding, n, name), **rest)  # fmt: skip
    if inner == given:
        return made
    sides = [made.shape[layout.index(letter)] for letter in SPATIAL[n]]
    begin = tuple(p - i for p, i in zip(given[:n], inner, strict=False))
    end = tuple(d - p + i for d, p, i in zip(sides, given[n:], inner[n:], strict=True))
    left = all(b < e for b, e in zip(begin, end, strict=True))
    require(left, GraphError, name, "nothing is left of the result", size=tuple(sides), padding=given)
    return strided_slice(made, begin, end, axes=tuple(layout.index(letter) for letter in SPATIAL[n]))


def conv1d_transpose(
    data: Expr,
    weight: Expr,
    strides: Ints = (1,),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    channels: int | None = None,
    kernel_size: Ints | None = None,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str = "",
    output_padding: Ints = (0,),
    out_dtype: str = "",
) -> Call:
    """Transposed 1-D convolution: W becomes (W - 1) * stride + K - padding on both sides + output_padding."""
    return _call(1, data, weight, strides, padding, dilation, kernel_size, output_padding, groups=groups,
                 channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                 out_dtype=out_dtype)  # fmt: skip


def conv2d_transpose(
    data: Expr,
    weight: Expr,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    channels: int | None = None,
    kernel_size: Ints | None = None,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Ints = (0, 0),
    out_dtype: str = "",
) -> Call:
    """Transposed 2-D convolution: H becomes (H - 1) * stride + KH - padding on both sides + output_padding."""
    return _call(2, data, weight, strides, padding, dilation, kernel_size, output_padding, groups=groups,
                 channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                 out_dtype=out_dtype)  # fmt: skip


def conv3d_transpose(
    data: Expr,
    weight: Expr,
    strides: Ints = (1, 1, 1),
    padding: Ints = (0, 0, 0),
    dilation: Ints = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str = "",
    output_padding: Ints = (0, 0, 0),
    out_dtype: str = "",
) -> Call:
    """Transposed 3-D convolution: D becomes (D - 1) * stride + KD - padding on both sides + output_padding."""
    return _call(3, data, weight, strides, padding, dilation, kernel_size, output_padding, groups=groups,
                 channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                 out_dtype=out_dtype)  # fmt: skip
