"""Operators of graphs on packed data: convolutions, convolutions in groups, and windows; int8 in and int32 out.

Importing this module makes them known to `relay_lite`.  Their tensor expressions (`top`) say which shapes fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Array
from relay_lite.ir.op_registry import Attrs, Op, OpPattern
from relay_lite.ir.types import TensorType, Type
from relay_lite.op.define import define, tensors
from relay_lite.op.numpy_windows import windows
from te_lite import Tensor, placeholder
from te_lite.errors import require

from .. import top

CONV = "nn.conv2d_packed"
GROUPED = "nn.conv2d_grouped_packed"
"""Groups never leave a block of channels, as in depthwise convolutions (`top/grouped.py`)."""
WINDOW = "nn.window_packed"


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


def conv2d_grouped_numpy(data: Array, kernel: Array, strides: Sequence[int], padding: Sequence[int]) -> Array:
    """int8 [N, C, H, W, b, k] with int8 [C, KH, KW, k, k]: int32 [N, C, OH, OW, b, k], block by block."""
    blocks = [
        conv2d_packed_numpy(data[:, c : c + 1], kernel[c][None, None], strides, padding) for c in range(len(kernel))
    ]
    return np.concatenate(blocks, axis=1)


def window_numpy(data: Array, kind: str, size: Sequence[int], strides: Sequence[int], padding: Sequence[int]) -> Array:
    """The largest number of each window, or the sum: int8 [N, C, H, W, b, k] to int32 [N, C, OH, OW, b, k]."""
    (ph, pw), last = padding, data.transpose(0, 1, 4, 5, 2, 3).astype("int32")
    view = windows(np.pad(last, [(0, 0)] * 4 + [(ph, ph), (pw, pw)]), tuple(size), tuple(strides), (1, 1))
    folded = view.sum((-2, -1)) if kind == "sum" else view.max((-2, -1))
    return np.ascontiguousarray(folded.transpose(0, 1, 4, 5, 2, 3).astype("int32"))


def _conv(data: Tensor, kernel: Tensor, attrs: Attrs) -> Tensor:
    fits = f"OIHW{kernel.shape[-2]}o{kernel.shape[-1]}i"
    law = f"the layout of this kernel is {fits}, with as many channels out as in"
    ok = attrs["kernel_layout"] == fits and kernel.shape[-2] == kernel.shape[-1]
    require(ok, GraphError, CONV, law, kernel_layout=attrs["kernel_layout"])
    about = (attrs[name] for name in ("strides", "padding", "dilation", "data_layout", "out_dtype"))
    return top.conv2d_packed(data, kernel, *about)


def _operator(
    name: str, count: int, numpy: Callable[..., Array], compute: Callable[..., Tensor], **defaults: Any
) -> Op:
    """Register an operator of `count` tensors; `compute` takes them and the attributes, and knows what fits."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        made = compute(*[placeholder(t.shape, t.dtype) for t in tensors(types, count, name)], attrs)
        return TensorType(made.shape, made.dtype)

    return define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        infer,
        lambda args, attrs: numpy(*args, attrs),
        lambda args, attrs, target: [compute(*args, attrs)],
        **defaults,
    )


_operator(
    CONV, 2, lambda x, w, a: conv2d_packed_numpy(x, w, a["strides"], a["padding"]), _conv, strides=(1, 1),
    padding=(0, 0), dilation=(1, 1), data_layout="NCHW1n16c", kernel_layout="OIHW16o16i", out_dtype="int32",
)  # fmt: skip
_operator(
    GROUPED, 2, lambda x, w, a: conv2d_grouped_numpy(x, w, a["strides"], a["padding"]),
    lambda x, w, a: top.conv2d_grouped_packed(x, w, a["strides"], a["padding"]), strides=(1, 1), padding=(0, 0),
)  # fmt: skip
_operator(
    WINDOW, 1, lambda x, a: window_numpy(x, a["kind"], a["size"], a["strides"], a["padding"]),
    lambda x, a: top.window_packed(x, a["kind"], a["size"], a["strides"], a["padding"]),
    kind="max", size=(1, 1), strides=(1, 1), padding=(0, 0),
)  # fmt: skip
