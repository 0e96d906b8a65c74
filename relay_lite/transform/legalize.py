"""`Legalize`: operators in forms that no target computes are put into forms that one does.

A transposed convolution exists for channels first only: one in NHWC is wrapped in transposes, its kernel becomes IOHW.
"""

from __future__ import annotations

from ..ir.make import call
from ..ir.nodes import Expr, Function
from ..ir.visit import is_op, rewrite
from .sequential import Pass


def Legalize() -> Pass:  # a class in TVM, and written like one
    """The pass; level 1."""

    def run(function: Function) -> Function:
        return rewrite(function, _legal)

    return Pass("Legalize", 1, (), run)


def _moved(x: Expr, src: str, dst: str) -> Expr:
    return x if src == dst else call("transpose", x, axes=tuple(src.index(letter) for letter in dst))


def _legal(node: Expr) -> Expr:
    if not is_op(node, "nn.conv2d_transpose"):
        return node
    layout, kernel_layout = node.attrs["data_layout"], node.attrs["kernel_layout"]
    if (layout, kernel_layout) == ("NCHW", "IOHW"):
        return node
    data, kernel = node.args
    args = (_moved(data, layout, "NCHW"), _moved(kernel, kernel_layout, "IOHW"))
    conv = call("nn.conv2d_transpose", *args, **{**node.attrs, "data_layout": "NCHW", "kernel_layout": "IOHW"})
    return _moved(conv, "NCHW", layout)
