"""`Legalize`: operators in forms that no target computes are put into forms that one does.

A transposed convolution exists for channels first only: one in NHWC is wrapped in transposes, its kernel becomes IOHW.
Many tensors are put together a few at a time: one kernel of all would ask for each element which of them it is of.
"""

from __future__ import annotations

from te_lite.topi.transform import MOST_PARTS

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function, Tuple
from ..ir.visit import is_op, rewrite
from ..op.annotation import stop_fusion
from .sequential import Pass, acts_on


@acts_on("concatenate", "stack", "nn.conv2d_transpose")
def Legalize() -> Pass:  # a class in TVM, and written like one
    """The pass; level 0."""

    def run(function: Function) -> Function:
        return rewrite(function, _legal)

    return Pass("Legalize", 0, (), run)


def _moved(x: Expr, src: str, dst: str) -> Expr:
    return x if src == dst else call("transpose", x, axes=tuple(src.index(letter) for letter in dst))


def _legal(node: Expr) -> Expr:
    if is_op(node, "concatenate", "stack") and isinstance(node.args[0], Tuple):
        return _few_at_a_time(node, node.args[0])
    return _channels_first(node) if is_op(node, "nn.conv2d_transpose") else node


def _few_at_a_time(node: Call, parts: Tuple) -> Expr:
    """The operator applied to at most `MOST_PARTS` tensors at a time, whose results are kept in memory."""
    fields, axis = list(parts.fields), int(node.attrs["axis"])
    if len(fields) <= MOST_PARTS:
        return node
    if is_op(node, "stack"):
        axis = axis % len(node.shape)
        fields = [call("expand_dims", e, axis=axis) for e in fields]
    while len(fields) > MOST_PARTS:
        groups = [fields[k : k + MOST_PARTS] for k in range(0, len(fields), MOST_PARTS)]
        fields = [stop_fusion(call("concatenate", Tuple(tuple(g)), axis=axis)) if len(g) > 1 else g[0] for g in groups]
    return call("concatenate", Tuple(tuple(fields)), axis=axis)


def _channels_first(node: Call) -> Expr:
    layout, kernel_layout = node.attrs["data_layout"], node.attrs["kernel_layout"]
    if (layout, kernel_layout) == ("NCHW", "IOHW"):
        return node
    data, kernel = node.args
    args = (_moved(data, layout, "NCHW"), _moved(kernel, kernel_layout, "IOHW"))
    conv = call("nn.conv2d_transpose", *args, **{**node.attrs, "data_layout": "NCHW", "kernel_layout": "IOHW"})
    return _moved(conv, "NCHW", layout)
