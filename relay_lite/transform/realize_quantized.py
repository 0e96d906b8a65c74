"""`RealizeQuantized`: products of dequantised tensors run on the integers themselves.

    conv(dequantize(x, sx, zx), dequantize(w, sw, zw))   ->   cast(conv(x - zx, w - zw)) * (sx * sw)

Sums are exact in int32.  What follows (a bias, an activation, the quantisation of the result) works on the floats of
the sums element by element and becomes part of the same kernel, so that integers are what kernels hand to each other.
A tensor that is only moved, pooled for its maxima or cut at 0 stays integer; every other reader gets floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ..ir.make import call
from ..ir.nodes import Array, Call, Constant, Expr, Tuple, children, const, rebuild
from ..ir.visit import constant_value, expand_to, is_op, post_order, with_body
from ..op.quantized import centred, dequantized_form, quantized_form
from .fold_constant import fold
from .sequential import Pass, acts_on

MOST = 1 << 31
"""Sums of magnitudes must stay below this."""


@acts_on("qnn.quantize", "qnn.dequantize")
def RealizeQuantized() -> Pass:  # a class in TVM, and written like one
    """The pass; level 0, for no target has `qnn.quantize` and `qnn.dequantize`."""
    return Pass("RealizeQuantized", 0, (), lambda function: with_body(function, _Walk().run(function.body)))


@dataclass(frozen=True, eq=False)
class Affine:
    """The real numbers `(expr - zero) * scale`: numbers, or vectors along `axis` (counted from the front)."""

    expr: Expr
    scale: Array
    zero: Array
    axis: int | None

    @property
    def centre(self) -> Expr | None:
        """The zero point, in a shape that broadcasts with the tensor; None for 0."""
        if not self.zero.any():
            return None
        found = Constant(self.zero)
        return found if self.axis is None else expand_to(found, len(self.expr.shape), self.axis)

    @property
    def reach(self) -> Array:
        """The largest magnitudes without the zero point: one number, or of a constant one an element."""
        value = constant_value(self.expr)
        if value is not None:
            zero = self.zero.astype(np.int64)
            shape = [1] * value.ndim
            if self.axis is not None:
                shape[self.axis] = -1
            return np.asarray(np.abs(value.astype(np.int64) - zero.reshape(shape if zero.ndim else ())))
        info = np.iinfo(self.expr.dtype)
        zero = self.zero.astype(np.int64)
        return np.asarray(np.maximum(info.max - zero, zero - info.min).max())


class _Walk:
    """What every node of the old graph became: floats (or what they were), and integers where they say the same."""

    def __init__(self) -> None:
        self.plain: dict[Expr, Expr] = {}
        self.integers: dict[Expr, Affine] = {}

    def run(self, body: Expr) -> Expr:
        for node in post_order(body):
            found = self.affine(node) if isinstance(node, Call) else None
            if found is not None:
                self.integers[node] = found
            else:
                self.plain[node] = self.converted(node)
        return self.of(body)

    def of(self, node: Expr) -> Expr:
        """The node in its own dtype; integers are written as floats for the first reader that needs them."""
        if node not in self.plain:
            found = self.integers[node]
            scale, zero = Constant(found.scale), Constant(found.zero)
            self.plain[node] = dequantized_form(found.expr, scale, zero, found.axis or 0)
        return self.plain[node]

    def affine(self, node: Call) -> Affine | None:
        """The node as integers; None for one that has to be computed with floats."""
        if is_op(node, "qnn.dequantize"):
            return self.dequantized(node)
        first = node.args[0] if node.args else None
        if is_op(node, "concatenate") and isinstance(first, Tuple):
            return self.joined(node, first.fields)
        held = self.integers.get(first) if first is not None else None
        if held is None:
            return None
        if is_op(node, "transpose") and held.axis is not None:
            axes = node.attrs["axes"] or tuple(range(len(node.shape)))[::-1]
            axis = [a % len(axes) for a in axes].index(held.axis)
            return replace(held, expr=fold(call("transpose", held.expr, axes=axes)), axis=axis)
        made = _moved(node, held, [self.of(a) for a in node.args[1:]]) if held.axis is None else None
        return None if made is None else replace(held, expr=made)

    def dequantized(self, node: Call) -> Affine | None:
        data, scale, zero = node.args
        known = constant_value(scale), constant_value(zero)
        if known[0] is None or known[1] is None or node.dtype != "float32" or not np.all(known[0] > 0):
            return None
        axis = node.attrs["axis"] % len(data.shape) if known[0].ndim else None
        return Affine(self.of(data), known[0], known[1], axis)

    def joined(self, node: Call, fields: Sequence[Expr]) -> Affine | None:
        """A concatenation of tensors that mean the same by their integers."""
        held = [self.integers[f] for f in fields if f in self.integers]
        if len(held) < len(fields) or not all(_alike(h, held[0]) for h in held):
            return None
        return replace(held[0], expr=Call(node.op, (Tuple(tuple(h.expr for h in held)),), node.attrs))

    def converted(self, node: Expr) -> Expr:
        """A node that stays in floats, or goes from them to integers or back."""
        if is_op(node, "qnn.quantize"):
            return self.quantized(node)
        if is_op(node, "qnn.dequantize"):
            data, scale, zero = (self.of(a) for a in node.args)
            return dequantized_form(data, scale, zero, node.attrs["axis"])
        if isinstance(node, Call) and (made := self.product(node)) is not None:
            return made
        return rebuild(node, [self.of(c) for c in children(node)])

    def quantized(self, node: Call) -> Expr:
        """Integers of the same meaning as they are; else quantised in front of a reshape, next to what made them."""
        data, scale, zero = node.args
        held, known = self.integers.get(data), (constant_value(scale), constant_value(zero))
        if held is not None and known[0] is not None and known[1] is not None and held.axis is None:
            same = Affine(held.expr, known[0], known[1], None)
            if held.expr.dtype == node.dtype and not scale.shape and _alike(held, same):
                return held.expr
        given, scale, zero = (self.of(a) for a in node.args)
        if is_op(given, "reshape") and not scale.shape:
            return call("reshape", quantized_form(given.args[0], scale, zero, -1), newshape=node.shape)
        return quantized_form(given, scale, zero, node.attrs["axis"])

    def product(self, node: Call) -> Expr | None:
        """The integer form of a product of integers; None for any other node."""
        ways = PRODUCTS.get(node.op.name)
        if ways is None or node.dtype != "float32":
            return None
        data, weight = (self.integers.get(a) for a in node.args)
        if data is None or weight is None or data.axis is not None:
            return None
        by, into = ways(node)
        if weight.axis not in (None, by) or _bound(node, data, weight, by) >= MOST:
            return None
        operands = tuple(centred(side.expr, side.centre) for side in (data, weight))
        sums = Call(node.op, operands, {**node.attrs, "out_dtype": ""})
        scale = const(data.scale * weight.scale, "float32")
        spread = scale if weight.axis is None else expand_to(scale, len(node.shape), into)
        return call("multiply", call("cast", sums, dtype="float32"), spread)


def _alike(a: Affine, b: Affine) -> bool:
    """Whether equal integers mean equal numbers."""
    return a.axis is b.axis is None and a.expr.dtype == b.expr.dtype and bool(a.scale == b.scale and a.zero == b.zero)


def _bound(node: Call, data: Affine, weight: Affine, by: int) -> int:
    """No sum of the product is larger than this."""
    reach = weight.reach
    if reach.ndim:
        return int(data.reach * reach.sum(tuple(a for a in range(reach.ndim) if a != by)).max())
    kernel = node.args[1].shape
    summed = kernel if "kernel_layout" in node.attrs else kernel[-2:]
    depth = prod(summed) // kernel[by]
    return int(data.reach * reach) * depth


# ------------------------------------------------------------- which axis of a weight makes which of the result


def _convolved(node: Call) -> tuple[int, int]:
    return node.attrs["kernel_layout"].index("O"), node.attrs["data_layout"].index("C")


def _multiplied(node: Call) -> tuple[int, int]:
    rank = len(node.args[1].shape)
    turned = is_op(node, "nn.dense") or node.attrs["transpose_b"]
    return rank - 2 if turned else rank - 1, rank - 1


PRODUCTS: Mapping[str, Callable[[Call], tuple[int, int]]] = {
    **dict.fromkeys(("nn.conv1d", "nn.conv2d", "nn.conv3d"), _convolved),
    **dict.fromkeys(("nn.dense", "nn.matmul", "nn.batch_matmul"), _multiplied),
}
"""By operator: the axis of the weight along which scales may vary, and the axis of the result that it makes."""


# ------------------------------------------------------------------------------------------ what keeps integers

SAME = ("reshape", "transpose", "squeeze", "expand_dims", "strided_slice", "nn.batch_flatten", "take")
LARGEST = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")


def _moved(node: Call, held: Affine, rest: Sequence[Expr]) -> Expr | None:
    """What an operator makes of integers with one scale, which is positive; `rest` are its other arguments."""
    if is_op(node, "nn.relu"):
        return call("maximum", held.expr, Constant(held.zero))
    if not is_op(node, *SAME, *LARGEST):
        return None
    return fold(Call(node.op, (held.expr, *rest), node.attrs))
