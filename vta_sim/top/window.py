"""The largest, or the sum, of the pixels of a window of packed data: pooling, and the mean of an image.

    data     NCHW1n16c   (N / 1, C / 16, H, W, 1, 16)      int8
    result   NCHW1n16c   (N / 1, C / 16, OH, OW, 1, 16)    int32

Padding counts as 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from te_lite import Tensor, comm_reducer, compute, const, reduce_axis
from te_lite import sum as te_sum
from te_lite.errors import ExprError, require
from te_lite.expr.expr import Expr, maximum

from .framed import framed

TAG = "window"
KINDS = ("max", "sum")
LEAST = -128
"""No int8 number is less."""


def window_packed(
    data: Tensor, kind: str, size: Sequence[int], strides: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """Windows as the module says; `size`, `strides` and `padding` are (rows, columns).  Raises ExprError."""
    require(kind in KINDS, ExprError, "window_packed", f"the kind is one of {', '.join(KINDS)}", kind=kind)
    image, out = framed(data, size, strides, padding, "window_packed")
    n, c, _, _, batch, block = data.shape
    (kh, kw), (sh, sw) = size, strides
    d_i, d_j = reduce_axis((0, kh), "d_i"), reduce_axis((0, kw), "d_j")
    fold = te_sum if kind == "sum" else comm_reducer(maximum, lambda dtype: const(LEAST, dtype), "max")

    def element(bo: Expr, cb: Expr, i: Expr, j: Expr, bi: Expr, cc: Expr) -> Expr:
        made: Expr = fold(image[bo, cb, i * sh + d_i, j * sw + d_j, bi, cc].astype("int32"), axis=[d_i, d_j])
        return made

    made: Tensor = compute((n, c, *out, batch, block), element, "window", TAG)
    return made
