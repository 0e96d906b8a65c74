"""A convolution on every b-th element, written as space-to-batch, convolution, batch-to-space, is a dilated one.

With block b, paddings (p, p'), crops (c, c') and convolution padding (q, q') on one axis, the result at i sums over
the elements i + b * r of the axis padded by p + b * q, after c elements are cut off: that is a convolution of
dilation b and padding p + b * q - c in front, and likewise behind.
"""

from __future__ import annotations

from ..ir.nodes import Call, Expr
from ..ir.visit import is_op, rewrite
from ..op.space_batch import JOIN, SPLIT
from ..op.window import pads
from .sequential import Pass


def FlattenAtrousConv() -> Pass:
    """Rewrite space_to_batch_nd, an NHWC conv2d of stride and dilation 1, and batch_to_space_nd into one conv2d."""
    return Pass("FlattenAtrousConv", 0, (), lambda function: rewrite(function, _flatten))


def _flatten(join: Expr) -> Expr:
    if not is_op(join, JOIN) or not is_op(join.args[0], "nn.conv2d") or not is_op(join.args[0].args[0], SPLIT):
        return join
    conv, split = join.args[0], join.args[0].args[0]
    assert isinstance(conv, Call) and isinstance(split, Call)
    block, attrs = split.attrs["block_shape"], conv.attrs
    same = join.attrs["block_shape"] == block and len(block) == 2 and split.attrs["pad_value"] == 0
    if not same or attrs["data_layout"] != "NHWC" or {attrs["strides"], attrs["dilation"]} - {1, (1, 1)}:
        return join
    padding = _padding(split, conv, join)
    if min(padding) < 0:
        return join
    return Call(conv.op, (split.args[0], conv.args[1]), {**attrs, "dilation": block, "padding": tuple(padding)})


def _padding(split: Call, conv: Call, join: Call) -> list[int]:
    """The pads of the one convolution: what is split off, plus what the convolution adds, minus what is cropped."""
    outside = list(zip(split.attrs["block_shape"], split.attrs["paddings"], join.attrs["crops"], strict=True))
    return [
        outer[side] + b * inner[k] - cut[side]
        for side, inner in enumerate(pads(conv.attrs["padding"], 2, "nn.conv2d"))
        for k, (b, outer, cut) in enumerate(outside)
    ]
