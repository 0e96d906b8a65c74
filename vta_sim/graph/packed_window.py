"""Pools and means of graphs as windows that the machine can fold, and these on packed data."""

from __future__ import annotations

from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Constant, Expr
from relay_lite.ir.visit import is_op

from .packed_operators import WINDOW

KEEPS_SIGN = ("annotation.stop_fusion", "cast", "clip", "right_shift", "nn.max_pool2d")


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
