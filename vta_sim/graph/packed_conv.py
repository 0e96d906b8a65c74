"""The convolution on packed data as an operator of graphs: `nn.conv2d_packed`, int8 in and int32 out.

Importing this module makes the operator known to `relay_lite`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Array, Call, Expr
from relay_lite.ir.op_registry import Attrs, Op, OpPattern, register
from relay_lite.ir.types import TensorType, Type
from relay_lite.op.define import integers, tensors
from relay_lite.op.numpy_windows import windows
from te_lite.errors import require

from .. import top

NAME = "nn.conv2d_packed"


def _type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, kernel = tensors(types, 2, NAME)
    ranks = len(data.shape) == len(kernel.shape) == 6
    require(ranks, GraphError, NAME, "data and kernel have six dimensions", data=data.shape, kernel=kernel.shape)
    kinds = (data.dtype, kernel.dtype, attrs["out_dtype"])
    require(kinds == ("int8", "int8", "int32"), GraphError, NAME, "int8 by int8 gives int32", dtypes=kinds)
    n, ci, _, _, b, k = data.shape
    co, ci_of_kernel, _, _, o, i = kernel.shape
    fits = (ci, k) == (ci_of_kernel, i) and o == k
    require(fits, GraphError, NAME, "the channels of data and kernel must agree", data=data.shape, kernel=kernel.shape)
    layouts = (f"NCHW{b}n{k}c", f"OIHW{o}o{i}i")
    given = (attrs["data_layout"], attrs["kernel_layout"])
    require(given == layouts, GraphError, NAME, f"the layouts are {layouts}", got=given)
    require(attrs["dilation"] == (1, 1), GraphError, NAME, "there is no dilation", dilation=attrs["dilation"])
    return TensorType((n, co, *out_size(data.shape, kernel.shape, attrs), b, o), "int32")


def out_size(data: tuple[int, ...], kernel: tuple[int, ...], attrs: Attrs) -> tuple[int, int]:
    """Rows and columns of the result."""
    pads, steps = integers(attrs["padding"], NAME), integers(attrs["strides"], NAME)
    pairs = len(pads) == len(steps) == 2 and min(pads) >= 0 and min(steps) >= 1
    law = "padding and strides are pairs (vertical, horizontal), strides of at least 1"
    require(pairs, GraphError, NAME, law, padding=pads, strides=steps)
    oh, ow = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(data[2:4], pads, kernel[2:4], steps, strict=True)]
    law = "the kernel must fit into the padded data"
    require(min(oh, ow) > 0, GraphError, NAME, law, data=data, kernel=kernel, padding=tuple(pads))
    return oh, ow


def conv2d_packed_numpy(data: Array, kernel: Array, strides: Sequence[int], padding: Sequence[int]) -> Array:
    """int8 [N, CI, H, W, b, i] with int8 [CO, CI, KH, KW, o, i]: int32 [N, CO, OH, OW, b, o], with wrap-around.

    `strides` and `padding` are (vertical, horizontal).  Sums of products are formed in float64, where they are exact.
    """
    n, ci, h, w, b, k = data.shape
    co, _, kh, kw, o, i = kernel.shape
    (ph, pw), (sh, sw) = padding, strides
    pixels = data.transpose(0, 4, 2, 3, 1, 5).reshape(n * b, h, w, ci * k)
    padded = np.pad(pixels, ((0, 0), (ph, ph), (pw, pw), (0, 0))).astype("float64").transpose(0, 3, 1, 2)
    view = windows(padded, (kh, kw), (sh, sw), (1, 1))
    taps = kernel.transpose(2, 3, 1, 5, 0, 4).reshape(kh, kw, ci * i, co * o).astype("float64")
    oh, ow = view.shape[2:4]
    total = np.zeros((n * b, oh, ow, co * o))
    for y, x in np.ndindex(kh, kw):
        total += view[..., y, x].transpose(0, 2, 3, 1) @ taps[y, x]
    out = total.astype("int64").astype("int32").reshape(n, b, oh, ow, co, o)
    return np.ascontiguousarray(out.transpose(0, 4, 2, 3, 1, 5))


register(
    Op(
        NAME,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        _type,
        lambda args, attrs: conv2d_packed_numpy(args[0], args[1], attrs["strides"], attrs["padding"]),
        lambda args, attrs, target: [
            top.conv2d_packed(args[0], args[1], attrs["strides"], attrs["padding"], layout=attrs["data_layout"])
        ],
        {
            "strides": (1, 1),
            "padding": (0, 0),
            "dilation": (1, 1),
            "data_layout": "NCHW1n16c",
            "kernel_layout": "OIHW16o16i",
            "out_dtype": "int32",
        },
    )
)


def conv2d_packed(data: Expr, kernel: Expr, **attrs: Any) -> Call:
    """The convolution of packed data; `strides`, `padding` and `dilation` are (vertical, horizontal)."""
    return call(NAME, data, kernel, **attrs)
