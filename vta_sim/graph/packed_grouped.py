"""The grouped convolution on packed data as an operator of graphs: `nn.conv2d_grouped_packed`, int8 in, int32 out.

Groups never leave a block of channels, as in depthwise convolutions (`top/grouped.py`).  Importing this module makes
the operator known to `relay_lite`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Array, Call, Expr
from relay_lite.ir.op_registry import Attrs, Op, OpPattern, register
from relay_lite.ir.types import TensorType, Type
from relay_lite.op.define import tensors
from te_lite.errors import require

from .. import top
from .packed_conv import conv2d_packed_numpy, out_size

GROUPED = "nn.conv2d_grouped_packed"


def _type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, kernel = tensors(types, 2, GROUPED)
    ranks = len(data.shape) == 6 and len(kernel.shape) == 5
    law = "data have six dimensions, the kernel five"
    require(ranks, GraphError, GROUPED, law, data=data.shape, kernel=kernel.shape)
    kinds = (data.dtype, kernel.dtype)
    require(kinds == ("int8", "int8"), GraphError, GROUPED, "int8 by int8 gives int32", dtypes=kinds)
    n, blocks, _, _, b, k = data.shape
    fits = kernel.shape[0] == blocks and kernel.shape[3:] == (k, k)
    require(fits, GraphError, GROUPED, "the channels of data and kernel must agree", data=data.shape,
            kernel=kernel.shape)  # fmt: skip
    return TensorType((n, blocks, *out_size(data.shape, (blocks, blocks, *kernel.shape[1:]), attrs), b, k), "int32")


def conv2d_grouped_numpy(data: Array, kernel: Array, strides: Sequence[int], padding: Sequence[int]) -> Array:
    """int8 [N, C, H, W, b, k] with int8 [C, KH, KW, k, k]: int32 [N, C, OH, OW, b, k], block by block."""
    blocks = [
        conv2d_packed_numpy(data[:, c : c + 1], kernel[c][None, None], strides, padding) for c in range(len(kernel))
    ]
    return np.concatenate(blocks, axis=1)


register(
    Op(
        GROUPED,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        _type,
        lambda args, attrs: conv2d_grouped_numpy(args[0], args[1], attrs["strides"], attrs["padding"]),
        lambda args, attrs, target: [top.conv2d_grouped_packed(args[0], args[1], attrs["strides"], attrs["padding"])],
        {"strides": (1, 1), "padding": (0, 0)},
    )
)


def conv2d_grouped_packed(data: Expr, kernel: Expr, strides: Sequence[int], padding: Sequence[int]) -> Call:
    """The convolution of packed data in groups; `strides` and `padding` are (vertical, horizontal)."""
    return call(GROUPED, data, kernel, strides=tuple(strides), padding=tuple(padding))
