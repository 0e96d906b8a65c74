"""`AlterOpLayout`: the computation that a target prefers, in the layout that it prefers.

A convolution that is computed by winograd reads its weight transformed; the transformation is put on the weight as
operators, and vanishes in `FoldConstant` when the weight is a constant.  So is the transposition of a product's weight,
and what folds the strides of a convolution with few channels into these (`fold_stride.py`).
Layouts flow through the graph on the way (see `layout_rewriter`), which raises biases to the rank of their data.
"""

from __future__ import annotations

from ansor.core.target.target import STRICT, TF32

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function
from .context import PassContext, register_config
from .fold_stride import with_folded_stride
from .layout_rewriter import rewrite_layouts
from .sequential import Pass, acts_on
from .strategy import folds_stride, reads_turned, winograd_tile

WINOGRAD = "relay.AlterOpLayout.winograd"
"""Option of a `PassContext`: whether convolutions may be computed by Winograd's method."""
register_config(WINOGRAD, bool)


@acts_on("nn.conv2d", "nn.dense")
def AlterOpLayout(target: str = "c", precision: str = STRICT) -> Pass:  # a class in TVM, and written like one
    """The pass for a kind of target, `c` or `cuda`, and the precision of its products; level 3.

    In TF32 nothing is computed by winograd, whose transforms lose digits.
    """

    def choose(node: Call) -> Expr:
        if node.op.name == "nn.dense":
            return _of_turned(node) if reads_turned(node, target) else node
        if node.op.name == "nn.conv2d" and folds_stride(node, target, precision):
            return with_folded_stride(node)
        exact = precision != TF32 and PassContext.current().option(WINOGRAD, True)
        m = winograd_tile(node, target) if node.op.name == "nn.conv2d" and exact else None
        return node if m is None else _as_winograd(node, m)

    def run(function: Function) -> Function:
        return rewrite_layouts(function, finish=choose)

    return Pass("AlterOpLayout", 3, (), run)


def _as_winograd(conv: Call, m: int) -> Call:
    """An NHWC convolution as winograd over tiles of m x m; its weight becomes [m+2, m+2, CO, CI]."""
    data, kernel = conv.args
    by_output = call("transpose", kernel, axes=(3, 2, 0, 1))
    weight = call("nn.contrib_conv2d_winograd_weight_transform", by_output, tile_size=m)
    attrs = {**conv.attrs, "tile_size": m, "channels": kernel.shape[3]}
    return call("nn.contrib_conv2d_winograd_without_weight_transform", data, weight, **attrs)


def _of_turned(dense: Call) -> Call:
    """`nn.dense` of a weight [N, K] as a product with [K, N]."""
    data, weight = dense.args
    return call("nn.matmul", data, call("transpose", weight, axes=(1, 0)), **dense.attrs)
