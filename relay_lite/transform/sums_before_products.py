"""`SumsBeforeProducts`: sums and means of what a product or a convolution gives, taken of its operands instead.

    sum(dense(x[N, K], w[O, K]) + b[O], axis=1)    ->    dense(x, sum(w, axis=0)) + sum(b)
    mean(conv(x[N, C, H, W], w[O, C, R, S]), axis=(2, 3))    ->    dense(s[N, C * R * S], w) / (H * W)
    avg_pool(conv(x, w[O, C, 1, 1]))    ->    conv(avg_pool(x), w)

Products are linear, so the sum of results is the product of sums; what is added or multiplied in between moves with
it.  Along an axis of an image each tap of the kernel meets a range of the data, so `s` holds the sum of each range;
taps that meet the same range share one.  Sums of constant weights are folded.

As with Winograd's method, floats are rounded elsewhere, and an infinite input gives other non-finite results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import pairwise
from math import prod

import numpy as np

from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr, Function, Tuple, children, rebuild
from ..ir.op_registry import Attrs
from ..ir.visit import expand_to, is_op, post_order, reference_counts, with_body
from ..op.define import Shape, some_axes
from ..op.window import SPATIAL
from .conv_axes import ConvAxis, axes_of, spelled_out
from .sequential import Pass

FLOATS = "float32", "float64"
"""In shorter floats the sum of a weight would be rounded."""
LEAST_GAIN = 4
"""How many results a sum must have, since it becomes a few small kernels of its own."""
MATMULS = "nn.dense", "nn.matmul", "nn.batch_matmul"
CONVOLUTIONS = {f"nn.conv{n}d{kind}": n for n in (1, 2, 3) for kind in ("", "_transpose")}
POOLS = {f"nn.avg_pool{n}d": n for n in (1, 2, 3)}
WHOLE = {f"nn.global_avg_pool{n}d": n for n in (1, 2, 3)}
"""Means of whole images."""
Ranges = Sequence[tuple[int, int]]


def SumsBeforeProducts() -> Pass:  # a class, as those of TVM are, and written like one
    """The pass, for channels first; level 3."""
    return Pass("SumsBeforeProducts", 3, (), _run)


def _run(function: Function) -> Function:
    counts, made, once = reference_counts(function.body), dict[Expr, Expr](), set[Expr]()
    for node in post_order(function.body):
        new = rebuild(node, [made[c] for c in children(node)])
        if is_op(new, "sum", "mean", *WHOLE, *POOLS) and new.dtype in FLOATS:
            moved = _averaged_before(new, once) if is_op(new, *POOLS) else _summed_before(new, once)
            new = new if moved is None else moved
        made[node] = new
        if counts[node] == 1:
            once.add(new)
    return with_body(function, made[function.body])


def _summed_before(node: Call, once: set[Expr]) -> Expr | None:
    """A sum or mean by sums of operands; None where nothing is gained."""
    (data,) = node.args
    axes = _reduced(node)
    count = prod([data.shape[a] for a in axes])
    total = _sum(data, axes, once) if count >= LEAST_GAIN else None
    if total is None:
        return None
    if not is_op(node, "sum"):
        total = call("multiply", total, _number(1 / count, node.dtype))
    return total if total.shape == node.shape else call("reshape", total, newshape=node.shape)


def _reduced(node: Call) -> Shape:
    rank = len(node.args[0].shape)
    if is_op(node, *WHOLE):
        return tuple(range(2, rank)) if node.attrs["layout"].startswith("NC") else ()
    return some_axes(node.attrs["axis"], rank, node.op.name, node.attrs["exclude"])


def _sum(node: Expr, axes: Shape, once: set[Expr]) -> Expr | None:
    """The sum of a node over axes, which stay as 1, without computing the node; None where that cannot be."""
    if node not in once or not isinstance(node, Call):
        return None
    if is_op(node, *MATMULS):
        return _of_matmul(node, axes)
    if is_op(node, *CONVOLUTIONS):
        return _of_convolution(node, axes)
    if is_op(node, "negative"):
        inner = _sum(node.args[0], axes, once)
        return None if inner is None else call("negative", inner)
    if is_op(node, "nn.bias_add", "add", "subtract", "multiply", "divide"):
        return _of_binary(node, axes, once)
    return None


def _of_binary(node: Call, axes: Shape, once: set[Expr]) -> Expr | None:
    """What is added is summed up, too; a factor must be the same along the axes."""
    left, right = node.args
    name = "add" if is_op(node, "nn.bias_add") else node.op.name
    if is_op(node, "nn.bias_add"):
        right = expand_to(right, len(node.shape), node.attrs["axis"])
    sides = [_sum(x, axes, once) if x.shape == node.shape else None for x in (left, right)]
    if all(side is None for side in sides):
        return None
    if name in ("add", "subtract"):
        return call(name, *[side or _plain(x, node.shape, axes) for x, side in zip((left, right), sides, strict=True)])
    for total, factor in ((sides[0], right), (sides[1] if name == "multiply" else None, left)):
        if total is not None and all(_ranked(factor, len(node.shape)).shape[a] == 1 for a in axes):
            return call(name, total, factor)
    return None


def _number(value: float, dtype: str) -> Constant:
    return Constant(np.asarray(value, dtype))


def _ranked(x: Expr, rank: int) -> Expr:
    missing = rank - len(x.shape)
    return call("reshape", x, newshape=(*(1,) * missing, *x.shape)) if missing else x


def _plain(x: Expr, shape: Shape, axes: Shape) -> Expr:
    """The sum over axes of what is broadcast to a shape."""
    x = _ranked(x, len(shape))
    own = tuple([a for a in axes if x.shape[a] != 1])
    times = prod([shape[a] for a in axes if a not in own])
    x = call("sum", x, axis=own, keepdims=True) if own else x
    return call("multiply", x, _number(times, x.dtype)) if times != 1 else x


def _of_matmul(node: Call, axes: Shape) -> Expr | None:
    """Rows are summed in the left operand, columns in the right one."""
    rank, (left, right) = len(node.shape), node.args
    if any(a < rank - 2 for a in axes) or left.dtype != node.dtype:
        return None
    turned = (False, True) if is_op(node, "nn.dense") else (node.attrs["transpose_a"], node.attrs["transpose_b"])
    if rank - 2 in axes:
        left = call("sum", left, axis=(rank - 1 if turned[0] else rank - 2,), keepdims=True)
    if rank - 1 in axes:
        right = call("sum", right, axis=(rank - 2 if turned[1] else rank - 1,), keepdims=True)
    attrs = {name: value for name, value in node.attrs.items() if name != "units"}
    return call(node.op.name, left, right, **attrs)


# ------------------------------------------------------------------------------------------------ convolutions


class _Axis(ConvAxis):
    """An axis, and what the taps of the kernel meet along it."""

    def ranges(self, transposed: bool) -> list[tuple[int, int]]:
        """The data that each tap of the kernel meets: first one, and one behind the last."""
        return [self._range(tap, transposed) for tap in range(self.kernel)]

    def _range(self, tap: int, transposed: bool) -> tuple[int, int]:
        if transposed:
            first, last = -((tap - self.before) // self.stride), (self.out - 1 + self.before - tap) // self.stride
        else:
            first = tap * self.dilation - self.before
            last = first + self.out - 1
        first = min(max(first, 0), self.size)
        return first, max(first, min(last + 1, self.size))


def _of_convolution(conv: Call, axes: Shape) -> Expr | None:
    conv = spelled_out(conv, CONVOLUTIONS[conv.op.name])
    n, attrs, (data, weight) = CONVOLUTIONS[conv.op.name], conv.attrs, conv.args
    transposed, spatial = conv.op.name.endswith("_transpose"), SPATIAL[n]
    order, groups = ("IO" if transposed else "OI"), attrs["groups"]
    plain = (attrs["data_layout"], attrs["kernel_layout"]) == (f"NC{spatial}", f"{order}{spatial}")
    sides, reduced = axes_of(conv, n, _Axis), [a - 2 for a in axes if a >= 2]
    strided = not transposed and any(sides[k].stride != 1 for k in reduced)
    if not plain or strided or conv.dtype != data.dtype:
        return None
    if not transposed and weight.shape[1] * groups != data.shape[1]:  # [C, M, ...] of a depthwise one
        weight = call("reshape", weight, newshape=(conv.shape[1], 1, *weight.shape[2:]))
    if 0 in axes:
        data = call("sum", data, axis=(0,), keepdims=True)
    if 1 in axes:
        weight, groups = _one_channel(weight, groups, transposed), 1
    for k in reduced:
        data, weight = _along(data, weight, 2 + k, sides[k].ranges(transposed))
    data, weight, kept = _as_channels(data, weight, n, reduced, transposed)
    out = _convolved(conv, data, weight, [sides[k] for k in kept], kept, groups)
    return call("reshape", out, newshape=tuple([1 if a in axes else e for a, e in enumerate(conv.shape)]))


def _one_channel(weight: Expr, groups: int, transposed: bool) -> Expr:
    """The kernel of the sum of all channels, in one group."""
    if transposed:
        return call("sum", weight, axis=(1,), keepdims=True)
    filters, inputs, *kernel = weight.shape
    split = call("reshape", weight, newshape=(groups, filters // groups, inputs, *kernel))
    return call("reshape", call("sum", split, axis=(1,)), newshape=(1, groups * inputs, *kernel))


def _along(data: Expr, weight: Expr, axis: int, ranges: Ranges) -> tuple[Expr, Expr]:
    """Data with its sums over distinct ranges along an axis, and the kernel with what its taps there come to."""
    distinct = list(dict.fromkeys(ranges))
    if len(distinct) < len(ranges):
        first = [ranges.index(r) for r in distinct]
        ends = [*first[1:], len(ranges)]
        parts = [_part_sum(weight, axis, begin, end) for begin, end in zip(first, ends, strict=True)]
        weight = _joined(parts, axis)
    bounds = sorted({bound for one in distinct for bound in one})
    sums = {begin: _part_sum(data, axis, begin, end) for begin, end in pairwise(bounds)}
    add = partial(call, "add")
    totals = [[sums[b] for b in bounds[:-1] if begin <= b < end] for begin, end in distinct]
    return _joined([reduce(add, total) if total else _zeros(data, axis) for total in totals], axis), weight


def _part_sum(x: Expr, axis: int, begin: int, end: int) -> Expr:
    whole = (begin, end) == (0, x.shape[axis])
    part = x if whole else call("strided_slice", x, begin=(begin,), end=(end,), axes=(axis,))
    return part if end - begin == 1 else call("sum", part, axis=(axis,), keepdims=True)


def _zeros(x: Expr, axis: int) -> Expr:
    """For a tap that meets no data."""
    return call("zeros", shape=tuple([1 if a == axis else e for a, e in enumerate(x.shape)]), dtype=x.dtype)


def _joined(parts: Sequence[Expr], axis: int) -> Expr:
    return parts[0] if len(parts) == 1 else call("concatenate", Tuple(tuple(parts)), axis=axis)


def _as_channels(
    data: Expr, weight: Expr, n: int, reduced: Sequence[int], transposed: bool
) -> tuple[Expr, Expr, list[int]]:
    """Both with reduced axes among the input channels, behind them, and the axes that are kept."""
    kept = [k for k in range(n) if k not in reduced]
    taps, rest = [2 + k for k in reduced], [2 + k for k in kept]
    more = prod([data.shape[a] for a in taps])
    moved = _transposed(data, (0, 1, *taps, *rest))
    data = call("reshape", moved, newshape=(data.shape[0], data.shape[1] * more, *[data.shape[a] for a in rest]))
    places = (0, *taps, 1, *rest) if transposed else (0, 1, *taps, *rest)
    channels = (weight.shape[0] * more, weight.shape[1]) if transposed else (weight.shape[0], weight.shape[1] * more)
    moved = _transposed(weight, places)
    return data, call("reshape", moved, newshape=(*channels, *[weight.shape[a] for a in rest])), kept


def _transposed(x: Expr, axes: Sequence[int]) -> Expr:
    return x if list(axes) == sorted(axes) else call("transpose", x, axes=tuple(axes))


def _convolved(
    conv: Call, data: Expr, weight: Expr, sides: Sequence[_Axis], kept: Sequence[int], groups: int
) -> Expr:  # fmt: skip
    """The convolution along the axes that are left; a product where there are none."""
    transposed = conv.op.name.endswith("_transpose")
    if not kept and groups == 1:
        return call("nn.matmul" if transposed else "nn.dense", data, weight)
    if not kept:
        data, weight = [call("reshape", x, newshape=(*x.shape, 1)) for x in (data, weight)]
    n = max(len(kept), 1)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    attrs: Attrs = dict(strides=tuple([s.stride for s in sides]) or (1,), padding=_padding(conv, kept) or (0, 0),
                        dilation=tuple([s.dilation for s in sides]) or (1,), groups=groups, channels=channels,
                        kernel_size=weight.shape[2:])  # fmt: skip
    if transposed:
        extra = conv.attrs["output_padding"]
        attrs = {**attrs, "output_padding": tuple([extra[k] for k in kept]) or (0,)}
    return call(f"nn.conv{n}d{'_transpose' if transposed else ''}", data, weight, **attrs)


def _padding(conv: Call, kept: Sequence[int]) -> Shape:
    """Of the axes that are kept, all befores and then all afters."""
    n, padding = CONVOLUTIONS[conv.op.name], conv.attrs["padding"]
    return tuple([padding[side * n + k] for side in (0, 1) for k in kept])


# ------------------------------------------------------------------------------------------------ average pools


def _averaged_before(pool: Call, once: set[Expr]) -> Expr | None:
    """The pool of a convolution of single points, with what is added to its channels, on the data instead."""
    n = POOLS[pool.op.name]
    attrs, inner = spelled_out(pool, n).attrs, pool.args[0]
    bias = inner if is_op(inner, "nn.bias_add") and inner in once and inner.attrs["axis"] % (n + 2) == 1 else None
    inner = inner if bias is None else bias.args[0]
    whole_windows = not any(attrs["padding"]) and not attrs["ceil_mode"]
    if not (whole_windows and inner in once and is_op(inner, f"nn.conv{n}d") and prod(attrs["strides"]) >= LEAST_GAIN):
        return None
    points, (data, weight) = spelled_out(inner, n).attrs, inner.args
    layouts = points["data_layout"], attrs["layout"], points["kernel_layout"]
    plain = layouts == (f"NC{SPATIAL[n]}", f"NC{SPATIAL[n]}", f"OI{SPATIAL[n]}")
    single = {*weight.shape[2:], *points["strides"]} == {1} and not any(points["padding"])
    if not (plain and single and data.dtype == pool.dtype):
        return None
    conv = call(inner.op.name, call(pool.op.name, data, **attrs), weight, **points)
    return conv if bias is None else call("nn.bias_add", conv, bias.args[1], axis=bias.attrs["axis"])
