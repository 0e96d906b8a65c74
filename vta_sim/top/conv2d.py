"""The convolution of packed tensors, and its schedule for the accelerator.

    data     NCHW1n16c   (N / 1, CI / 16, H, W, 1, 16)           int8
    weights  OIHW16o16i  (CO / 16, CI / 16, KH, KW, 16, 16)      int8
    result   NCHW1n16c   (N / 1, CO / 16, OH, OW, 1, 16)         int32

The result goes through element-wise operators to an output of int8.
"""

from __future__ import annotations

from collections.abc import Sequence

from te_lite import Schedule, Tensor, compute, reduce_axis
from te_lite import sum as te_sum
from te_lite.computation.tensor import ComputeOp
from te_lite.errors import ExprError, require
from te_lite.expr.expr import Expr

from ..core.config import Config
from ..core.errors import CompileError
from .framed import framed
from .fused import Fused, fused, in_memories
from .tiled import tiled
from .validity import ConvKnobs, ConvShape, broken_rule

TAG = "conv2d_dense"


def conv2d_packed(
    data: Tensor,
    kernel: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    layout: str = "NCHW1n16c",
    out_dtype: str = "int32",
) -> Tensor:
    """The convolution as `layout` and the module say.  `padding` is (rows, columns), or all four sides.

    Raises ExprError for another layout, a dilation, padding that is not symmetric, and shapes that do not fit.
    """
    _check_arguments(data, kernel, layout, out_dtype)
    (ph, pw), (sh, sw) = _symmetric(padding), strides
    require(tuple(dilation) == (1, 1), ExprError, "conv2d_packed", "there is no dilation", dilation=tuple(dilation))
    n, ci, _, _, batch, block_in = data.shape
    co, _, kh, kw, block_out, _ = kernel.shape
    image, out = framed(data, (kh, kw), (sh, sw), (ph, pw), "conv2d_packed")
    k_o, d_i = reduce_axis((0, ci), "k_o"), reduce_axis((0, kh), "d_i")
    d_j, k_i = reduce_axis((0, kw), "d_j"), reduce_axis((0, block_in), "k_i")

    def element(bo: Expr, c: Expr, i: Expr, j: Expr, bi: Expr, cc: Expr) -> Expr:
        x = image[bo, k_o, i * sh + d_i, j * sw + d_j, bi, k_i].astype(out_dtype)
        y = kernel[c, k_o, d_i, d_j, cc, k_i].astype(out_dtype)
        made: Expr = te_sum(x * y, axis=[k_o, d_i, d_j, k_i])
        return made

    shape = (n, co, *out, batch, block_out)
    made: Tensor = compute(shape, element, "conv2d", TAG, {"strides": (sh, sw), "padding": (ph, pw)})
    return made


def _symmetric(padding: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of padding on each side.  Raises ExprError for sides that differ."""
    sides = tuple(padding) if len(padding) == 4 else (*padding, *padding)
    ok = len(sides) == 4 and sides[:2] == sides[2:]
    require(ok, ExprError, "conv2d_packed", "padding must be the same on both sides", padding=tuple(padding))
    return sides[0], sides[1]


def _check_arguments(data: Tensor, kernel: Tensor, layout: str, out_dtype: str) -> None:
    subject = "conv2d_packed"
    ok = data.ndim == 6 and kernel.ndim == 6
    require(ok, ExprError, subject, "data and weights have six dimensions", data=data.shape, weights=kernel.shape)
    fits = f"NCHW{data.shape[4]}n{data.shape[5]}c"
    require(layout == fits, ExprError, subject, f"the layout of this data is {fits}", layout=layout)
    ok = data.shape[1] == kernel.shape[1] and data.shape[5] == kernel.shape[5]
    law = "the input channels of data and weights must agree"
    require(ok, ExprError, subject, law, data=data.shape, weights=kernel.shape)
    dtypes = (data.dtype, kernel.dtype, out_dtype)
    require(dtypes == ("int8", "int8", "int32"), ExprError, subject, "int8 by int8 gives int32", dtypes=dtypes)


def product_flop(product: Tensor) -> int:
    """Operations of a convolution or matrix product itself: two for each product of numbers, padding included."""
    op = product.op
    assert isinstance(op, ComputeOp)
    total = 2
    for axis in (*op.axis, *op.reduce_axis):
        assert isinstance(axis.extent, int)
        total *= axis.extent
    return total


def conv_shape(f: Fused) -> ConvShape:
    """The sizes of the convolution of a program."""
    weights = f.weights.shape
    strides, pad = f.core.attrs["strides"], f.core.attrs["padding"]
    _, ci, h, w, *_ = f.inputs.shape
    extra = tuple([(t.shape[1], t.shape[2], t.shape[3]) for t in f.extra])
    height, width = h - 2 * pad[0], w - 2 * pad[1]
    return ConvShape(height, width, ci, weights[0], (weights[2], weights[3]), pad, strides, extra)


def schedule_conv2d_packed(knobs: ConvKnobs, output: Tensor, config: Config | None = None) -> Schedule:
    """The schedule of a convolution with what is fused to it, for one configuration.

    Tiles of the output are computed one after the other, their rows and channels split among virtual threads; for
    each tile blocks of input channels are loaded and multiplied one after the other.
    Raises CompileError, with the reason, for a configuration that is no program; this takes no time worth naming.
    """
    f = fused(output, TAG)
    broken = broken_rule(conv_shape(f), knobs, config or Config())
    require(broken is None, CompileError, "conv2d_packed", "" if broken is None else broken[1])
    s, operands, kept = in_memories(f)
    lengths = {1: knobs.tile_co, 2: knobs.tile_h, 3: knobs.tile_w}
    tile = tiled(s[output], lengths, (0, 2, 1, 3), {1: knobs.oc_nthread, 2: knobs.h_nthread})
    for t in kept:
        s[t].compute_at(s[output], tile)
    conv = s[f.core]
    bo, co, i, j, bi, ci = conv.op.axis
    k_o, d_i, d_j, k_i = conv.op.reduce_axis
    conv.reorder(bo, k_o, j, d_j, d_i, co, i, bi, ci, k_i)
    block, _ = conv.split(k_o, factor=knobs.tile_ci)
    for t in operands:
        s[t].compute_at(conv, block)
    conv.tensorize(bi)
    return s
