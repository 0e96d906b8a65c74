"""Convolutions whose channels fill no block, such as the first one of three colours: in a form that fills more of it.

    stride 2, 7x7, 3 channels     =     stride 1, 4x4, 12 channels of an image of half the rows and columns

The four pixels of a square become channels (space to depth), and taps that the kernel lacks are zero.  A block is
multiplied whole whatever is in it, so this takes 16 products where the plain form takes 49.  What is still left of the
block are channels of zeros.
"""

from __future__ import annotations

import numpy as np

from relay_lite.ir.make import call
from relay_lite.ir.nodes import Array, Call, Constant, Expr, Function
from relay_lite.ir.visit import is_op, rewrite
from relay_lite.op.pick import strided_slice


def whole_blocks(function: Function, block: int) -> Function:
    """The function with int8 convolutions of whole blocks of input channels, which give the same.

    Weights must be constants; convolutions in groups are left alone.
    """

    def change(node: Expr) -> Expr:
        simple = is_op(node, "nn.conv2d") and node.args[0].dtype == "int8" and node.attrs["groups"] == 1
        if not (simple and isinstance(node, Call) and isinstance(node.args[1], Constant)):
            return node
        return node if node.args[0].shape[1] % block == 0 else _filled(node, node.args[1].value, block)

    return rewrite(function, change)


def _filled(node: Call, weight: Array, block: int) -> Expr:
    data, attrs = node.args[0], dict(node.attrs)
    stride, channels = attrs["strides"][0], weight.shape[1]
    folds = attrs["strides"] == (stride, stride) and stride > 1 and channels * stride**2 <= block
    if folds and attrs["dilation"] == (1, 1):
        data, weight = _folded(data, weight, attrs["padding"], node.shape[2:], stride)
        attrs.update(strides=(1, 1), padding=(0, 0, 0, 0), kernel_size=weight.shape[2:])
    more = -weight.shape[1] % block
    data = call("nn.pad", data, pad_width=((0, 0), (0, more), (0, 0), (0, 0)), pad_value=0.0)
    return Call(node.op, (data, Constant(np.pad(weight, ((0, 0), (0, more), (0, 0), (0, 0))))), attrs)


def _folded(data: Expr, weight: Array, padding: tuple[int, ...], out: tuple[int, ...], s: int) -> tuple[Expr, Array]:
    """Data (N, C s s, H / s, W / s), weight (O, C s s, ceil(KH / s), ceil(KW / s)) of the convolution at stride 1."""
    _, channels, kh, kw = weight.shape
    taps = [-(-k // s) for k in (kh, kw)]
    sizes = [s * (o + t - 1) for o, t in zip(out, taps, strict=True)]
    top, left = padding[:2]
    bottom, right = (n - m - p for n, m, p in zip(sizes, data.shape[2:], (top, left), strict=True))
    frame = ((0, 0), (0, 0), (top, max(bottom, 0)), (left, max(right, 0)))
    image = call("nn.pad", data, pad_width=frame, pad_value=0.0)
    if image.shape[2:] != tuple(sizes):
        image = strided_slice(image, (0, 0, 0, 0), (*image.shape[:2], *sizes))
    wide = np.pad(weight, ((0, 0), (0, 0), (0, s * taps[0] - kh), (0, s * taps[1] - kw)))
    parts = wide.reshape(-1, channels, taps[0], s, taps[1], s).transpose(0, 3, 5, 1, 2, 4)
    return call("nn.space_to_depth", image, block_size=s), parts.reshape(-1, s * s * channels, *taps)
