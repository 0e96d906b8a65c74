"""`SubPixelConvolutions`: transposed convolutions with strides as plain ones whose channels are then put side by side.

A transposed convolution with stride s is a convolution over data with s - 1 zeros between its elements: of s * s
products all but one are by zero.  Which taps of the kernel meet data depends only on the place of a result modulo s; so
the results of each such place are a convolution of the data with those taps, and become channels of one convolution
(Shi et al., Real-time single image and video super-resolution using an efficient sub-pixel convolutional neural
network, CVPR 2016).  With o + p = s q + r and k = s t + r, along each axis:

    out[o] = sum_t x[q - t] w[s t + r]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function
from ..ir.visit import is_op, rewrite
from ..op.window import SPATIAL
from .conv_axes import ConvAxis, axes_of, spelled_out
from .sequential import Pass

NAMES = {f"nn.conv{n}d_transpose": n for n in (1, 2, 3)}
LEAST_GAIN = 1.5
"""How many times as many products the plain form must have."""


class _Axis(ConvAxis):
    """An axis, with the numbers of the plain convolution along it."""

    @property
    def taps(self) -> int:
        """Those of each place modulo the stride."""
        return -(-self.kernel // self.stride)

    @property
    def first(self) -> int:
        """The least q; its results begin `before - first * stride` before the result."""
        return self.before // self.stride

    @property
    def last(self) -> int:
        return (self.out - 1 + self.before) // self.stride

    @property
    def pads(self) -> tuple[int, int]:
        """What the convolution is padded with; negative where it would be cut."""
        return self.taps - 1 - self.first, self.last - (self.size - 1)


def SubPixelConvolutions() -> Pass:  # a class, as those of TVM are, and written like one
    """The pass, for channels first; level 1."""

    def change(node: Expr) -> Expr:
        return _sub_pixel(node, NAMES[node.op.name]) if is_op(node, *NAMES) else node

    def run(function: Function) -> Function:
        return rewrite(function, change)

    return Pass("SubPixelConvolutions", 1, (), run)


def _sub_pixel(conv: Call, n: int) -> Expr:
    """The same values by a plain convolution, where that takes fewer products; else the node itself."""
    whole = spelled_out(conv, n)
    attrs, (data, weight) = whole.attrs, whole.args
    spatial = SPATIAL[n]
    plain = (attrs["data_layout"], attrs["kernel_layout"]) == (f"NC{spatial}", f"IO{spatial}")
    axes = axes_of(whole, n, _Axis)
    fits = plain and all(d == 1 for d in attrs["dilation"]) and all(p >= 0 for a in axes for p in a.pads)
    if not fits or prod([a.kernel for a in axes]) < LEAST_GAIN * prod([a.taps for a in axes]):
        return conv
    lefts, rights = zip(*[a.pads for a in axes], strict=True)
    taps, channels = tuple([a.taps for a in axes]), conv.shape[1] * prod([a.stride for a in axes])
    out = call(
        f"nn.conv{n}d", data, _weight(weight, axes, attrs["groups"]), strides=(1,) * n, padding=(*lefts, *rights),
        groups=attrs["groups"], channels=channels, kernel_size=taps, data_layout=f"NC{spatial}",
        kernel_layout=f"OI{spatial}", out_dtype=attrs["out_dtype"],
    )  # fmt: skip
    return _side_by_side(out, conv.shape, axes)


def _weight(weight: Expr, axes: Sequence[_Axis], groups: int) -> Expr:
    """[CI, CO / G, K...] as [CO * strides, CI / G, taps...]: the taps of each place, last ones first."""
    n, (inputs, outputs) = len(axes), weight.shape[:2]
    more = [(0, a.taps * a.stride - a.kernel) for a in axes]
    whole = call("nn.pad", weight, pad_width=((0, 0), (0, 0), *more)) if any(m for _, m in more) else weight
    split = [extent for a in axes for extent in (a.taps, a.stride)]
    parts = call("reshape", whole, newshape=(groups, inputs // groups, outputs, *split))
    for k in range(n):
        parts = call("reverse", parts, axis=3 + 2 * k)
    places, taps = [4 + 2 * k for k in range(n)], [3 + 2 * k for k in range(n)]
    parts = call("transpose", parts, axes=(0, 2, *places, 1, *taps))
    channels = groups * outputs * prod([a.stride for a in axes])
    return call("reshape", parts, newshape=(channels, inputs // groups, *[a.taps for a in axes]))


def _side_by_side(out: Expr, shape: Sequence[int], axes: Sequence[_Axis]) -> Expr:
    """The channels of each place modulo the strides put between each other, cut to `shape`."""
    n, counts = len(axes), out.shape[2:]
    parts = call("reshape", out, newshape=(*shape[:2], *[a.stride for a in axes], *counts))
    order = [axis for k in range(n) for axis in (2 + n + k, 2 + k)]
    parts = call("transpose", parts, axes=(0, 1, *order))
    whole = call("reshape", parts, newshape=(*shape[:2], *[c * a.stride for c, a in zip(counts, axes, strict=True)]))
    begin = [a.before - a.first * a.stride for a in axes]
    if whole.shape == tuple(shape):
        return whole
    end = [b + a.out for b, a in zip(begin, axes, strict=True)]
    return call("strided_slice", whole, begin=tuple(begin), end=tuple(end), axes=tuple(range(2, 2 + n)))
