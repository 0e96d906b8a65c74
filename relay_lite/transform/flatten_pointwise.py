"""Convolutions of 1 x 1 with the pixels of all images on one axis, where tensor cores multiply: products of matrices.

    relu(conv(x[N, H, W, C], w[1, 1, C, O]) + b)    ->    reshape(relu(conv(x[1, 1, N*H*W, C], w) + b), [N, H, W, O])

The rows of a product are one axis of its computation; the 14 columns of an image fill a tile of 16 badly, and one of 64
not at all.  What is elementwise follows, so that it stays in the kernel of the convolution, and the reshapes between
kernels move nothing.  A sum stays where it is if it also reads what has rows of its own and is computed in the same
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeGuard

from ansor.core.target.target import STRICT
from te_lite.expr.dtype import BYTES

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function, children, rebuild
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op, post_order, readers, with_body
from .alter_op_layout import on_tensor_cores, plain_nhwc
from .row_shapes import is_elementwise
from .sequential import Pass, acts_on

IMAGES = 4
"""The dimensions of images."""


@acts_on("nn.conv2d")
def FlattenPointwise(target: str = "c", precision: str = STRICT) -> Pass:
    """The pass for a kind of target and the precision of its products; level 3."""
    return Pass("FlattenPointwise", 3, (), lambda function: _Flattened(target, precision).run(function))


class _Flattened:
    """`flat` are the reshapes that were made, and what they read; `made` is what nodes of a function became."""

    def __init__(self, target: str, precision: str) -> None:
        self.target, self.precision = target, precision
        self.flat: dict[Expr, Expr] = {}
        self.made: dict[Expr, Expr] = {}

    def run(self, function: Function) -> Function:
        by = readers(function.body)
        for node in post_order(function.body):
            new = rebuild(node, [self.made[c] for c in children(node)])
            on_one_axis = self._on_one_axis(node, new, by)
            if on_one_axis is not None:
                new = call("reshape", on_one_axis, newshape=new.shape)
                self.flat[new] = on_one_axis
            self.made[node] = new
        return with_body(function, self.made[function.body])

    def _on_one_axis(self, old: Expr, node: Expr, by: Mapping[Expr, Sequence[Expr]]) -> Expr | None:
        """A node on one axis of pixels; None where it stays."""
        if is_op(node, "nn.conv2d"):
            data, kernel = node.args
            suits = on_tensor_cores(node, self.target, self.precision) and _is_pointwise(node)
            return Call(node.op, (self._flattened(data), kernel), node.attrs) if suits else None
        if not _is_of_pixels(node) or _widens(node):
            return None
        whole = [c for c, a in zip(children(old), node.args, strict=True) if a.shape == node.shape]
        small = all(a.shape == node.shape or prod(a.shape[:-1]) == 1 for a in node.args)
        if not small or not any(map(self._is_flat, whole)) or any(self._computed(c, by) for c in whole):
            return None
        args = [self._flattened(a) if a.shape == node.shape else a for a in node.args]
        return call(node.op.name, *args, **node.attrs)

    def _computed(self, e: Expr, by: Mapping[Expr, Sequence[Expr]]) -> bool:
        """Whether a node that has its own rows is computed in the kernel of what reads it, from which a reshape would
        cut it off."""
        if self._is_flat(e) or not isinstance(e, Call):
            return False
        if _widens(e):
            return self._computed(e.args[0], by)
        narrows = is_op(e, "cast") and BYTES[e.dtype] < BYTES[e.args[0].dtype]
        own = _is_of_pixels(e) or e.op.pattern == OpPattern.OUT_ELEMWISE_FUSABLE
        return own and not narrows and len(by[e]) == 1

    def _is_flat(self, e: Expr) -> bool:
        """Whether a node became one on one axis, or a cast to more bytes of one."""
        return self.made[e] in self.flat or (_widens(e) and self._is_flat(e.args[0]))

    def _flattened(self, e: Expr) -> Expr:
        """Images on one axis; casts to more bytes follow, and stay with what reads them."""
        if e in self.flat:
            return self.flat[e]
        if _widens(e):
            return call("cast", self._flattened(e.args[0]), **e.attrs)
        return call("reshape", e, newshape=(1, 1, prod(e.shape[:-1]), e.shape[-1]))


def _widens(e: Expr) -> TypeGuard[Call]:
    """A cast to more bytes, which is done where it is read."""
    return is_op(e, "cast") and BYTES[e.dtype] > BYTES[e.args[0].dtype]


def _is_of_pixels(node: Expr) -> TypeGuard[Call]:
    """An operator on images that is elementwise, or has an argument for each channel."""
    if not isinstance(node, Call) or not isinstance(node.type, TensorType) or len(node.shape) != IMAGES:
        return False
    of_channels = node.op.pattern <= OpPattern.BROADCAST and set(node.attrs) == {"axis"}
    return is_elementwise(node) or (of_channels and node.attrs["axis"] in (-1, IMAGES - 1))


def _is_pointwise(conv: Call) -> bool:
    steps = tuple(conv.attrs["strides"]) == (1, 1) and not any(conv.attrs["padding"])
    several = conv.shape[0] * conv.shape[1] > 1
    return plain_nhwc(conv) and steps and several and conv.args[1].shape[:2] == (1, 1)
