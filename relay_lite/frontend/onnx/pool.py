"""Pools, with the window arithmetic of ONNX: SAME pads, ceil_mode with its clamp, pads that count or do not."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from te_lite.expr.expr import FLOATS

from ...ir.nodes import Expr
from .emit import add, binary, call, cast, const, mul, reshape
from .node import Converters, Node
from .window import Window, read_window

MAX = {1: "nn.max_pool1d", 2: "nn.max_pool2d", 3: "nn.max_pool3d"}
AVG = {1: "nn.avg_pool1d", 2: "nn.avg_pool2d", 3: "nn.avg_pool3d"}


def max_pool(node: Node) -> list[Expr]:
    """MaxPool; pads are smaller than every number.  The second output says where in the flat data the maxima are."""
    x, window = _window(node)
    columns = node.integer("storage_order", 0)
    window = _with_tail(window, x.shape[2:], node.integer("ceil_mode", 0))
    out = _pool(MAX[len(window.kernel)], x, window)
    return [out] if len(node.outputs) < 2 else [out, _indices(x, out.shape, window, bool(columns))]


def _indices(x: Expr, shape: tuple[int, ...], window: Window, columns: bool) -> Expr:
    """Where the maxima are, as positions in the flat data (with `columns` the first spatial axis runs fastest)."""
    taps = np.indices(window.kernel).reshape(len(window.kernel), -1)
    at, seen = np.zeros((taps.shape[1], 1), np.int64), np.ones((taps.shape[1], 1), bool)
    number = at
    steps = np.cumprod([1, *x.shape[2:-1]]) if columns else np.cumprod([1, *x.shape[:2:-1]])[::-1]
    for d, extent in enumerate(x.shape[2:]):
        place = np.arange(shape[d + 2])[None] * window.strides[d] - window.before[d]
        place = place + taps[d][:, None] * window.dilation[d]
        inside, real = (place >= 0) & (place < extent), np.clip(place, 0, extent - 1)
        at = (at[:, :, None] * extent + real[:, None, :]).reshape(len(at), -1)
        number = (number[:, :, None] + real[:, None, :] * steps[d]).reshape(len(number), -1)
        seen = (seen[:, :, None] & inside[:, None, :]).reshape(len(seen), -1)
    size = prod(x.shape[2:])
    read = call("take", reshape(x, (prod(x.shape[:2]), size)), const(at, "int32"), axis=1)
    low = -np.inf if x.dtype in FLOATS else np.iinfo(x.dtype).min
    best = call("argmax", call("where", const(seen, "bool"), read, const(low, x.dtype)), axis=(1,), keepdims=True)
    places = const(np.arange(len(at)).reshape(1, -1, 1), "int32")
    here = call("where", binary("equal", best, places), const(number[None], "int32"), const(0, "int32"))
    flat = call("sum", here, axis=(1,), keepdims=False)
    start = const(np.arange(prod(x.shape[:2]))[:, None] * size, "int32")
    return cast(reshape(add(flat, start), shape), "int64")


def avg_pool(node: Node) -> Expr:
    """AveragePool; the pads count when count_include_pad is set, the tail that ceil_mode adds never does."""
    x, window = _window(node)
    longer = _with_tail(window, x.shape[2:], node.integer("ceil_mode", 0))
    name = AVG[len(window.kernel)]
    if not node.integer("count_include_pad", 0):
        return _pool(name, x, longer, count_include_pad=False)
    if longer == window or not any(window.padding):
        return _pool(name, x, longer, count_include_pad=longer == window)
    widths = ((0, 0), (0, 0), *zip(window.before, window.after, strict=True))
    padded = call("nn.pad", x, pad_width=widths)
    tail = tuple(more - a for more, a in zip(longer.after, window.after, strict=True))
    inside = replace(window, before=(0,) * len(tail), after=tail)
    return _pool(name, padded, inside, count_include_pad=False)


def lp_pool(node: Node) -> Expr:
    """LpPool: the p-norm of every window; pads are 0."""
    x, window = _window(node)
    p = node.integer("p", 2)
    node.require(p >= 1, "p must be at least 1", p=p)
    node.require(x.dtype in FLOATS, "floats are needed", dtype=x.dtype)
    window = _with_tail(window, x.shape[2:], node.integer("ceil_mode", 0))
    mean = _pool(AVG[len(window.kernel)], _to_power(call("abs", x), p), window, count_include_pad=True)
    return _root(mul(mean, prod(window.kernel)), p)


def _to_power(x: Expr, p: int) -> Expr:
    return x if p == 1 else mul(x, x) if p == 2 else binary("power", x, p)


def _root(x: Expr, p: int) -> Expr:
    return x if p == 1 else call("sqrt", x) if p == 2 else binary("power", x, 1 / p)


def global_lp_pool(node: Node) -> Expr:
    """GlobalLpPool: the p-norm of every channel; spatial axes stay with extent 1."""
    x, p = node.input(0), node.integer("p", 2)
    node.require(len(x.shape) >= 3 and p >= 1, "spatial axes and a p of at least 1 are needed", shape=x.shape, p=p)
    total = call("sum", _to_power(call("abs", x), p), axis=tuple(range(2, len(x.shape))), keepdims=True)
    return _root(total, p)


def _window(node: Node) -> tuple[Expr, Window]:
    x = node.input(0)
    node.require(len(x.shape) - 2 in MAX, "the data must have 1 to 3 spatial axes", shape=x.shape)
    return x, read_window(node, x.shape[2:])


def _with_tail(window: Window, extents: tuple[int, ...], ceil_mode: int) -> Window:
    """The window whose pads at the end give the number of outputs that ceil_mode asks for.

    A last output whose window begins beyond the data and its leading pad is dropped, as PyTorch does.
    """
    if not ceil_mode:
        return window
    after = []
    columns = zip(extents, window.strides, window.reach, window.before, window.after, strict=True)
    for extent, stride, reach, head, tail in columns:
        count = -(-(extent + head + tail - reach) // stride) + 1
        if (count - 1) * stride >= extent + head:
            count -= 1
        after.append(max((count - 1) * stride + reach - extent - head, tail))
    return replace(window, after=tuple(after))


def _pool(name: str, x: Expr, window: Window, **attrs: bool) -> Expr:
    return call(name, x, pool_size=window.kernel, strides=window.strides, dilation=window.dilation,
                padding=window.padding, **attrs)  # fmt: skip


def global_avg_pool(node: Node) -> Expr:
    """GlobalAveragePool: spatial axes stay with extent 1."""
    x = node.input(0)
    node.require(len(x.shape) >= 3, "the data needs spatial axes", shape=x.shape)
    if len(x.shape) == 4:
        return call("nn.global_avg_pool2d", x)
    return call("mean", x, axis=tuple(range(2, len(x.shape))), keepdims=True)


def global_max_pool(node: Node) -> Expr:
    """GlobalMaxPool: spatial axes stay with extent 1."""
    x = node.input(0)
    node.require(len(x.shape) >= 3, "the data needs spatial axes", shape=x.shape)
    return call("max", x, axis=tuple(range(2, len(x.shape))), keepdims=True)


CONVERTERS: Converters = {
    "MaxPool": {1: max_pool},
    "AveragePool": {1: avg_pool},
    "GlobalAveragePool": {1: global_avg_pool},
    "LpPool": {2: lp_pool},
    "GlobalLpPool": {2: global_lp_pool},
    "GlobalMaxPool": {1: global_max_pool},
}
