"""Windows of packed data as an operator of graphs: `nn.window_packed`, int8 in, int32 out (`top/window.py`).

Importing this module makes the operator known to `relay_lite`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Array, Call, Constant, Expr
from relay_lite.ir.op_registry import Attrs, Op, OpPattern, register
from relay_lite.ir.types import TensorType, Type
from relay_lite.ir.visit import is_op
from relay_lite.op.define import tensors
from relay_lite.op.numpy_windows import windows
from te_lite.errors import require

from .. import top
from .packed_conv import out_size

WINDOW = "nn.window_packed"
KEEPS_SIGN = ("annotation.stop_fusion", "cast", "clip", "right_shift", "nn.max_pool2d")


def _type(types: Sequence[Type], attrs: Attrs) -> Type:
    (data,) = tensors(types, 1, WINDOW)
    ok = len(data.shape) == 6 and data.dtype == "int8"
    require(ok, GraphError, WINDOW, "data have six dimensions and are int8", data=data.shape, dtype=data.dtype)
    n, blocks, _, _, b, k = data.shape
    return TensorType((n, blocks, *out_size(data.shape, (blocks, blocks, *attrs["size"]), attrs), b, k), "int32")


def window_numpy(data: Array, kind: str, size: Sequence[int], strides: Sequence[int], padding: Sequence[int]) -> Array:
    """The largest number of each window, or the sum: int8 [N, C, H, W, b, k] to int32 [N, C, OH, OW, b, k]."""
    (ph, pw), last = padding, data.transpose(0, 1, 4, 5, 2, 3).astype("int32")
    view = windows(np.pad(last, [(0, 0)] * 4 + [(ph, ph), (pw, pw)]), tuple(size), tuple(strides), (1, 1))
    folded = view.sum((-2, -1)) if kind == "sum" else view.max((-2, -1))
    return np.ascontiguousarray(folded.transpose(0, 1, 4, 5, 2, 3).astype("int32"))


register(
    Op(
        WINDOW,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        _type,
        lambda args, attrs: window_numpy(args[0], attrs["kind"], attrs["size"], attrs["strides"], attrs["padding"]),
        lambda args, attrs, target: [
            top.window_packed(args[0], attrs["kind"], attrs["size"], attrs["strides"], attrs["padding"])
        ],
        {"kind": "max", "size": (1, 1), "strides": (1, 1), "padding": (0, 0)},
    )
)


def is_window(node: Expr) -> bool:
    """Whether an operator on plain int8 data is one of windows: the sum of whole images, or a pool, of numbers that are
    never negative where there is a frame of zeros, which must be the same on both sides."""
    if is_op(node, "sum"):
        summed = node.attrs["axis"] == (2, 3) and node.attrs["keepdims"] and not node.attrs["exclude"]
        return bool(summed) and is_op(node.args[0], "cast") and node.args[0].args[0].dtype == "int8"
    if not is_op(node, "nn.max_pool2d") or node.dtype != "int8":
        return False
    a = node.attrs
    plain = a["layout"] == "NCHW" and a["dilation"] == (1, 1) and not a["ceil_mode"]
    framed = any(a["padding"])
    return plain and a["padding"][:2] == a["padding"][2:] and not (framed and not _never_negative(node.args[0]))


def _never_negative(node: Expr) -> bool:
    """Whether a relu can be seen behind a number, with nothing in between that may make it negative."""
    while isinstance(node, Call):
        if is_op(node, "nn.relu"):
            return True
        more = node.args[-1]
        rounds = is_op(node, "add") and isinstance(more, Constant) and bool((more.value >= 0).all())
        if not (rounds or is_op(node, *KEEPS_SIGN)):
            return False
        node = node.args[0]
    return False


def window_packed(node: Expr, data: Expr) -> Call:
    """The operator `node`, for which `is_window` holds, on packed data; a sum is that of numbers before widening."""
    if not is_op(node, "nn.max_pool2d"):
        return call(WINDOW, data, kind="sum", size=tuple(data.shape[2:4]))
    a = node.attrs
    return call(WINDOW, data, kind="max", size=a["pool_size"], strides=a["strides"], padding=a["padding"][:2])
