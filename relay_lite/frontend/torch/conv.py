"""Convolutions and their transposes, of 1 to 3 spatial axes.

A transpose adds element `i` of the data times element `k` of the kernel at place `stride i + dilation k - padding`.
Where both steps have a common factor, most places get nothing: a transpose with steps that are as much smaller is
computed, and what it gives is moved apart.  One of stride 1 is a convolution with the kernel turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from ...ir.nodes import Expr
from ..onnx.emit import call, reshape, transpose
from ..onnx.select import pick
from .node import Aten, Converters


def convolution(node: Aten) -> Expr:
    """convolution and its transpose."""
    x, weight, bias = node.tensor("input"), node.tensor("weight"), node.optional("bias")
    n, groups = len(weight.shape) - 2, node.integer("groups")
    strides, dilation, pads = (node.each(name, n) for name in ("stride", "dilation", "padding"))
    extra = node.each("output_padding", n, (0,))
    if node.flag("transposed"):
        rows = zip(strides, dilation, weight.shape[2:], pads, extra, strict=True)
        return _transposed(node, [_Axis.of(*row) for row in rows], x, weight, bias, groups)
    window: dict[str, Any] = {"strides": strides, "dilations": dilation, "pads": (*pads, *pads), "group": groups}
    return node.onnx("Conv", x, weight, bias, **window)[0]


@dataclass(frozen=True)
class _Axis:
    """A spatial axis of a transpose with smaller steps; its result is moved `apart`, and begins behind `skipped`."""

    stride: int
    dilation: int
    kernel: int
    pad: int
    extra: int
    apart: int
    skipped: int

    @staticmethod
    def of(stride: int, dilation: int, kernel: int, pad: int, extra: int) -> _Axis:
        """The axis of a transpose with these arguments of PyTorch."""
        apart = gcd(stride, dilation) if kernel > 1 else stride
        stride, dilation = stride // apart, dilation // apart if kernel > 1 else 1
        if apart == 1 and pad <= dilation * (kernel - 1) and extra < stride:
            return _Axis(stride, dilation, kernel, pad, extra, apart, 0)
        return _Axis(stride, dilation, kernel, 0, 0, apart, pad)

    @property
    def reach(self) -> int:
        """How far the dilated kernel reaches beyond an element."""
        return self.dilation * (self.kernel - 1)


def _transposed(
    node: Aten, axes: Sequence[_Axis], x: Expr, weight: Expr, bias: Expr | None, groups: int
) -> Expr:  # fmt: skip
    """A transposed convolution: data (N, C, spatial), weight (C, CO / groups, kernel)."""
    strides, pads = [a.stride for a in axes], [a.pad for a in axes]
    if max(strides) == 1:
        pads = [a.reach - a.pad for a in axes]
        window: dict[str, Any] = {"dilations": [a.dilation for a in axes], "pads": [*pads, *pads], "group": groups}
        out = node.onnx("Conv", x, _turned(weight, groups), **window)[0]
    else:
        spread = _apart(weight, [a.dilation for a in axes], [a.reach + 1 for a in axes], [0] * len(axes))
        window = {"strides": strides, "pads": [*pads, *pads], "output_padding": [a.extra for a in axes]}
        out = node.onnx("ConvTranspose", x, spread, **window, group=groups)[0]
    out = _apart(out, [a.apart for a in axes], node.shape[2:], [a.skipped for a in axes])
    return out if bias is None else call("nn.bias_add", out, bias, axis=1)


def _turned(weight: Expr, groups: int) -> Expr:
    """A weight (C, CO / groups, kernel) as the one of a convolution, (CO, C / groups, kernel), turned round."""
    channels, filters, *kernel = weight.shape
    apart = reshape(weight, (groups, channels // groups, filters, *kernel))
    swapped = transpose(apart, (0, 2, 1, *range(3, len(apart.shape))))
    joined = reshape(swapped, (groups * filters, channels // groups, *kernel))
    return pick(joined, {axis: range(k - 1, -1, -1) for axis, k in enumerate(kernel, 2) if k > 1})


def _apart(x: Expr, steps: Sequence[int], extents: Sequence[int], begins: Sequence[int]) -> Expr:
    """The elements of spatial axes `steps` apart, zeros between and behind: so many from `begins` on."""
    lead, size = x.shape[:2], x.shape[2:]
    if max(steps) > 1:
        widths = [(0, s - 1) for s in steps]
        x = _padded(reshape(x, (*lead, *[e for d in size for e in (d, 1)])), [w for p in widths for w in ((0, 0), p)])
        size = tuple([d * s for d, s in zip(size, steps, strict=True)])
        x = reshape(x, (*lead, *size))
    ends = [b + e for b, e in zip(begins, extents, strict=True)]
    x = _padded(x, [(0, max(end - d, 0)) for end, d in zip(ends, size, strict=True)])
    cut = [range(b, end) for b, end in zip(begins, ends, strict=True)]
    return pick(x, {axis: r for axis, r in enumerate(cut, 2) if len(r) < x.shape[axis]})


def _padded(x: Expr, widths: Sequence[tuple[int, int]]) -> Expr:
    """Zeros around spatial axes."""
    return call("nn.pad", x, pad_width=((0, 0), (0, 0), *widths)) if any(map(any, widths)) else x


CONVERTERS: Converters = {"aten.convolution": convolution}
