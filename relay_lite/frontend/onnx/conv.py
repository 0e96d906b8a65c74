"""Convolution and its transpose: pads of every kind end up in the operator, so that one task stays one task."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.nodes import Call, Expr
from .emit import call, reshape, transpose
from .node import Converters, Node
from .select import pick
from .window import Window, auto_pad, bare_window, explicit_pads, halves, read_window

CONV = {1: "nn.conv1d", 2: "nn.conv2d", 3: "nn.conv3d"}
CONV_TRANSPOSE = {1: "nn.conv1d_transpose", 2: "nn.conv2d_transpose", 3: "nn.conv3d_transpose"}


def conv(node: Node) -> Expr:
    """Conv: X (N, C, spatial), W (CO, C / group, kernel), optional B (CO)."""
    x, weight = node.input(0), node.input(1)
    n = len(x.shape) - 2
    node.require(n in CONV, "the data must have 1 to 3 spatial axes", shape=x.shape)
    node.require(len(weight.shape) == n + 2, "the weight needs the rank of the data", data=x.shape, weight=weight.shape)
    group = node.integer("group", 1)
    window = read_window(node, x.shape[2:], weight.shape[2:])
    check_channels(node, x.shape[1], weight.shape, group, window)
    x, padding = _absorb_pad(x, window)
    out = call(
        CONV[n], x, weight, strides=window.strides, padding=padding, dilation=window.dilation,
        groups=group, channels=weight.shape[0], kernel_size=window.kernel,
    )  # fmt: skip
    return _with_bias(node, out)


def check_channels(node: Node, channels: int, weight: Sequence[int], group: int, window: Window) -> None:
    """Refuse a weight (CO, C / group, kernel) that does not fit the window or the channels of the data."""
    law = "kernel_shape must be the spatial extents of the weight"
    node.require(window.kernel == tuple(weight[2:]), law, kernel_shape=window.kernel, weight=tuple(weight))
    fits = group >= 1 and weight[1] * group == channels and weight[0] % group == 0
    law = "the channels of the data must be group times those of the weight, and group divide the outputs"
    node.require(fits, law, channels=channels, weight=tuple(weight), group=group)


def _absorb_pad(x: Expr, window: Window) -> tuple[Expr, tuple[int, ...]]:
    """Pads of zeros in front of a convolution belong to it."""
    if not (isinstance(x, Call) and x.op.name == "nn.pad" and x.attrs["pad_mode"] == "constant"):
        return x, window.padding
    widths = x.attrs["pad_width"]
    if x.attrs["pad_value"] != 0 or any(any(w) for w in widths[:2]):
        return x, window.padding
    before = tuple(p + w[0] for p, w in zip(window.before, widths[2:], strict=True))
    after = tuple(p + w[1] for p, w in zip(window.after, widths[2:], strict=True))
    return x.args[0], before + after


def _with_bias(node: Node, out: Expr) -> Expr:
    bias = node.optional(2)
    if bias is None:
        return out
    node.require(bias.shape == (out.shape[1],), "the bias needs one value per channel", bias=bias.shape, out=out.shape)
    return call("nn.bias_add", out, bias, axis=1)


def conv_transpose(node: Node) -> Expr:
    """ConvTranspose: X (N, C, spatial), W (C, CO / group, kernel), optional B (CO)."""
    x, weight = node.input(0), node.input(1)
    group = _transpose_groups(node, x, weight)
    strides, reach, *sides, extra = _transpose_window(node, x.shape[2:], weight.shape[2:])
    before, after = ([min(p, r - 1) for p, r in zip(side, reach, strict=True)] for side in sides)
    if reach != weight.shape[2:]:
        out = _of_dilated(x, weight, group, (strides, reach, tuple(before), tuple(after), extra))
    else:
        out = call(
            CONV_TRANSPOSE[len(x.shape) - 2], x, weight, strides=strides, padding=(*before, *after),
            output_padding=extra, groups=group, channels=weight.shape[1] * group, kernel_size=reach,
        )  # fmt: skip
    return _with_bias(node, _widened(node, _cropped(node, out, sides, (before, after)), strides))


def _cropped(node: Node, out: Expr, sides: Sequence[Sequence[int]], done: Sequence[Sequence[int]]) -> Expr:
    """The result without what pads cut off beyond the reach of the kernel, where `done` are those within."""
    left, right = ([p - d for p, d in zip(*pair, strict=True)] for pair in zip(sides, done, strict=True))
    kept = {a: range(b, out.shape[a] - e) for a, (b, e) in enumerate(zip(left, right, strict=True), 2) if b or e}
    node.require(all(kept.values()), "pads must leave something of the result", pads=(*sides[0], *sides[1]))
    return pick(out, kept)


def _widened(node: Node, out: Expr, strides: Sequence[int]) -> Expr:
    """The result with zeros behind it where a larger `output_shape` is asked for."""
    if not node.has("output_shape"):
        return out
    wanted = _output_shape(node, len(out.shape) - 2)
    widths = tuple((0, w - d) for w, d in zip(wanted, out.shape[2:], strict=True))
    fits = all(0 <= more < s for (_, more), s in zip(widths, strides, strict=True))
    law = "the output must be less than a stride larger than the convolution without pads"
    node.require(fits, law, output=wanted, largest=out.shape[2:])
    return call("nn.pad", out, pad_width=((0, 0), (0, 0), *widths)) if any(any(w) for w in widths) else out


def _transpose_groups(node: Node, x: Expr, weight: Expr) -> int:
    """The number of groups; data and weight are checked."""
    n = len(x.shape) - 2
    node.require(n in CONV_TRANSPOSE, "the data must have 1 to 3 spatial axes", shape=x.shape)
    fits = len(weight.shape) == n + 2 and weight.shape[0] == x.shape[1]
    law = "the weight needs the rank and the channels of the data"
    node.require(fits, law, data=x.shape, weight=weight.shape)
    group = node.integer("group", 1)
    node.require(group >= 1 and x.shape[1] % group == 0, "group must divide the channels", shape=x.shape, group=group)
    return group


def _transpose_window(node: Node, extents: Sequence[int], kernel: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Strides, extents of the dilated kernel, begins and ends of the pads, output padding."""
    n = len(extents)
    window = bare_window(node, n, kernel)
    node.require(window.kernel == tuple(kernel), "kernel_shape must be that of the weight", kernel_shape=window.kernel)
    extra = node.integers("output_padding", (0,) * n)
    fits = len(extra) == n and all(0 <= e < s for e, s in zip(extra, window.strides, strict=True))
    node.require(fits, f"output_padding must be {n} integers from 0 to below the strides", output_padding=extra)
    return window.strides, window.reach, *_transpose_pads(node, window, extents, extra), extra


def _transpose_pads(
    node: Node, window: Window, extents: Sequence[int], extra: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Begins and ends: as given, or what makes the output as large as it is asked to be."""
    n, mode, given = len(extents), auto_pad(node), explicit_pads(node, len(extents))
    if node.has("output_shape"):
        wanted = _output_shape(node, n)
    elif mode.startswith("SAME"):
        wanted = tuple(d * s for d, s in zip(extents, window.strides, strict=True))
    else:
        return ((0,) * n, (0,) * n) if mode == "VALID" else given
    full = [s * (d - 1) + e + r for s, d, e, r in zip(window.strides, extents, extra, window.reach, strict=True)]
    return halves([max(f - w, 0) for f, w in zip(full, wanted, strict=True)], upper=mode == "SAME_UPPER")


def _output_shape(node: Node, n: int) -> tuple[int, ...]:
    """The spatial extents that the output is asked to have."""
    wanted = node.integers("output_shape")
    law = f"output_shape must be {n} spatial extents, or these behind batch and channels"
    node.require(len(wanted) in (n, n + 2), law, output_shape=wanted)
    return wanted[-n:]


def _of_dilated(x: Expr, weight: Expr, group: int, window: Sequence[tuple[int, ...]]) -> Expr:
    """With a dilated kernel: a convolution of the data with zeros between its elements, and none in the kernel."""
    strides, reach, before, after, extra = window
    n, (batch, channels, *extents), kernel = len(strides), x.shape, weight.shape[2:]
    pads = [[r - 1 - p for r, p in zip(reach, side, strict=True)] for side in (before, after)]
    if any(s > 1 for s in strides):
        apart = reshape(x, (batch, channels, *[d for extent in extents for d in (extent, 1)]))
        widths = ((0, 0), (0, 0), *[w for s in strides for w in ((0, 0), (0, s - 1))])
        spread = [d * s for d, s in zip(extents, strides, strict=True)]
        x = reshape(call("nn.pad", apart, pad_width=widths), (batch, channels, *spread))
        end = tuple(d - s + 1 for d, s in zip(spread, strides, strict=True))
        x = call("strided_slice", x, begin=(0,) * n, end=end, axes=tuple(range(2, 2 + n)))
    outputs = weight.shape[1]
    parts = reshape(weight, (group, channels // group, outputs, *kernel))
    weight = reshape(transpose(parts, (0, 2, 1, *range(3, 3 + n))), (group * outputs, channels // group, *kernel))
    for axis in range(2, 2 + n):
        weight = call("reverse", weight, axis=axis)
    behind = [p + e for p, e in zip(pads[1], extra, strict=True)]
    return call(
        CONV[n], x, weight, strides=(1,) * n, padding=(*pads[0], *behind), groups=group, channels=group * outputs,
        dilation=tuple((r - 1) // max(k - 1, 1) or 1 for r, k in zip(reach, kernel, strict=True)), kernel_size=kernel,
    )  # fmt: skip


CONVERTERS: Converters = {"Conv": {1: conv}, "ConvTranspose": {1: conv_transpose}}
