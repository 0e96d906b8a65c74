"""The convolution of packed tensors whose channels come in groups, which never leave their blocks of the machine.

    data     NCHW1n16c   (N / 1, C / 16, H, W, 1, 16)      int8
    weights              (C / 16, KH, KW, 16, 16)          int8, zero where a channel is of another group
    result   NCHW1n16c   (N / 1, C / 16, OH, OW, 1, 16)    int32

A block of output channels reads the block of input channels at the same place: depthwise convolutions, and groups of
as many channels as divide a block.  The machine multiplies by the zeros, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite import Tensor, compute, reduce_axis
from te_lite import sum as te_sum
from te_lite.errors import ExprError, require
from te_lite.expr.expr import Expr

from ..compiler.module import Array
from .framed import framed

TAG = "conv2d_grouped"


def conv2d_grouped_packed(data: Tensor, kernel: Tensor, strides: Sequence[int], padding: Sequence[int]) -> Tensor:
    """The convolution as the module says; `padding` is (rows, columns).  Raises ExprError for what does not fit."""
    subject = "conv2d_grouped_packed"
    ok = data.ndim == 6 and kernel.ndim == 5
    require(ok, ExprError, subject, "data have six dimensions, weights five", data=data.shape, weights=kernel.shape)
    ok = data.shape[1] == kernel.shape[0] and data.shape[5] == kernel.shape[4]
    require(ok, ExprError, subject, "the channels must agree", data=data.shape, weights=kernel.shape)
    dtypes = (data.dtype, kernel.dtype)
    require(dtypes == ("int8", "int8"), ExprError, subject, "data and weights are int8", dtypes=dtypes)
    n, blocks, _, _, batch, block = data.shape
    _, kh, kw, block_out, _ = kernel.shape
    image, out = framed(data, (kh, kw), strides, padding, subject)
    sh, sw = strides
    d_i, d_j, k_i = reduce_axis((0, kh), "d_i"), reduce_axis((0, kw), "d_j"), reduce_axis((0, block), "k_i")

    def element(bo: Expr, c: Expr, i: Expr, j: Expr, bi: Expr, cc: Expr) -> Expr:
        x = image[bo, c, i * sh + d_i, j * sw + d_j, bi, k_i].astype("int32")
        made: Expr = te_sum(x * kernel[c, d_i, d_j, cc, k_i].astype("int32"), axis=[d_i, d_j, k_i])
        return made

    shape = (n, blocks, *out, batch, block_out)
    made: Tensor = compute(shape, element, "conv2d", TAG, {"strides": tuple(strides), "padding": tuple(padding)})
    return made


def packed_groups(weights: Array, block: int) -> Array:
    """Weights (C, C / groups, KH, KW) as (C / block, KH, KW, block, block), with zeros between groups.

    Raises ExprError unless a block is whole groups and channels are whole blocks.
    """
    channels, inside, kh, kw = weights.shape
    ok = channels % block == 0 and block % inside == 0
    law = f"channels must be a multiple of {block}, and groups must divide {block} channels"
    require(ok, ExprError, "packed_groups", law, channels=channels, of_a_group=inside)
    out = np.zeros((channels // block, kh, kw, block, block), weights.dtype)
    for c in range(channels):
        first = c % block // inside * inside
        out[c // block, :, :, c % block, first : first + inside] = np.moveaxis(weights[c], 0, -1)
    return out
