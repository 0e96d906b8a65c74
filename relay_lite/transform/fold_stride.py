"""Strides of a convolution with few channels, folded into them: tensor cores sum over the channels of a window.

    [N, H, W, 3] * [7, 7, 3, O], stride 2, padded by 3    ->    [N, 115, 115, 16] * [4, 4, 16, O], stride 1

The channels of the new data are those of a block of stride x stride pixels, each with as many zeros behind it as make
them what tensor cores sum in one instruction and threads fetch in 16 bytes; the zeros of the padding are pixels, too.
The window is made of whole blocks, with zeros where it ends.  What makes the data only moves elements, in the kernel
that changes its layout or its dtype anyway; what makes a constant weight is folded.  A convolution whose windows do not
overlap, such as that of the patches of ViT, becomes a product of matrices.

The terms are those of the convolution and products with zero weights: a pixel that is infinite or no number also
reaches windows that end less than a stride before it, as it does in winograd's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod

from te_lite.expr.dtype import BYTES

from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..op.window import pads

VECTOR_BYTES, INSTRUCTION_BYTES = 16, 32
"""What a thread fetches, and what an instruction sums up, of the terms of a product."""


def with_folded_stride(conv: Call) -> Call:
    """An NHWC convolution of one group and no dilation as one of stride 1."""
    data, kernel = conv.args
    strides, out = tuple(conv.attrs["strides"]), conv.shape[1:3]
    blocks = tuple([-(-k // s) for k, s in zip(kernel.shape, strides, strict=False)])
    sizes = [s * (o + b - 1) for s, o, b in zip(strides, out, blocks, strict=True)]
    before = pads(conv.attrs["padding"], 2, "nn.conv2d")[0]
    channels = _channels(kernel.shape[2], prod(strides), BYTES[data.dtype])
    pixels = _of_size(data, (0, *before, 0), (data.shape[0], *sizes, channels))
    whole = [s * b for s, b in zip(strides, blocks, strict=True)]
    weights = _of_size(kernel, (0, 0, 0, 0), (*whole, channels, kernel.shape[3]))
    attrs = {**conv.attrs, "strides": (1, 1), "padding": (0, 0, 0, 0), "kernel_size": blocks}
    return Call(conv.op, (_in_blocks(pixels, strides, first=1), _in_blocks(weights, strides, first=0)), attrs)


def _channels(channels: int, pixels: int, nbytes: int) -> int:
    """The least number of channels, of so many bytes each, that suits tensor cores in blocks of so many pixels."""
    sizes = (c * pixels * nbytes for c in count(channels))
    return next(n for n in sizes if n % VECTOR_BYTES == 0 and n >= INSTRUCTION_BYTES) // (pixels * nbytes)


def _of_size(x: Expr, before: Sequence[int], sizes: Sequence[int]) -> Expr:
    """`x` with zeros before each axis, and with zeros behind it, or cut off, up to a size."""
    ends = tuple([min(n, size - b) for n, b, size in zip(x.shape, before, sizes, strict=True)])
    if ends != x.shape:
        x = call("strided_slice", x, begin=(0,) * len(ends), end=ends)
    width = tuple([(b, size - b - end) for b, size, end in zip(before, sizes, ends, strict=True)])
    return call("nn.pad", x, pad_width=width) if any(map(any, width)) else x


def _in_blocks(x: Expr, strides: Sequence[int], first: int) -> Expr:
    """[..., sh * h, sw * w, C, ...] as [..., h, w, sh * sw * C, ...]."""
    (sh, sw), (h, w, c) = strides, x.shape[first : first + 3]
    lead, rest = x.shape[:first], x.shape[first + 3 :]
    apart = call("reshape", x, newshape=(*lead, h // sh, sh, w // sw, sw, c, *rest))
    order = [first + k for k in (0, 2, 1, 3, 4)]
    turned = call("transpose", apart, axes=(*range(first), *order, *range(first + 5, len(apart.shape))))
    return call("reshape", turned, newshape=(*lead, h // sh, w // sw, sh * sw * c, *rest))
