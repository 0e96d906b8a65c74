"""What ONNX's operators of rows and windows mean, from its pages: folds, norms, products, pools, running sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .blocks import (
    Value,
    absent,
    add,
    axes_of,
    chosen_floats,
    contracted,
    div,
    f,
    folded,
    joined,
    looser,
    mean,
    moved,
    mul,
    number,
    padded,
    product,
    rows_of,
    softmax,
    spread,
    standard,
    sub,
    windows,
)
from .bounded import DIGITS, Array, exact, floats, unknown_where
from .folds import fold
from .onnx_elements import Args, Attrs, Meaning
from .operators import binary, call, cast, choose, compare

# ------------------------------------------------------------------------------------------------------ folds


def _reduced(kind: str) -> Meaning:
    def meaning(args: Args, attrs: Attrs) -> Value:
        x, given = args[0], [*args, None][1]
        axes = None if given is None else given.v.tolist()
        if axes is None and attrs.get("noop_with_empty_axes"):
            places: tuple[int, ...] = ()
        else:
            places = axes_of(axes, x.v.ndim)
        return _fold(kind, x, places, bool(attrs.get("keepdims", 1)))

    return meaning


def _fold(kind: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    match kind:
        case "L1":
            return folded("sum", f("abs", x), axes, keep)
        case "L2":
            return _root(folded("sum", mul(x, x), axes, keep))
        case "SumSquare":
            return folded("sum", mul(x, x), axes, keep)
        case "LogSum":
            return f("log", folded("sum", x, axes, keep))
        case "LogSumExp":
            return _log_sum_exp(x, axes, keep)
        case "Mean":
            return _kept(mean(x, axes), axes, keep)
    return folded(kind.lower(), x, axes, keep)


def _root(x: Value) -> Value:
    return f("sqrt", x) if x.is_float else cast(f("sqrt", cast(x, "float64")), x.dtype)


def _kept(x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return x if keep else moved(x, lambda y: y.reshape([n for a, n in enumerate(y.shape) if a not in axes]))


def _log_sum_exp(x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """Of an infinite maximum it is that, as the limit is."""
    top = folded("max", x, axes)
    level = replace(top, v=np.where(np.isfinite(top.v), top.v, 0.0), e=np.where(np.isfinite(top.v), top.e, 0.0))
    out = add(f("log", folded("sum", f("exp", sub(x, level)), axes)), level)
    return _kept(chosen_floats(np.isinf(top.v) & top.known, top, out), axes, keep)


def _first(kind: str) -> Meaning:
    def meaning(args: Args, attrs: Attrs) -> Value:
        (x,) = args
        axis, last = attrs.get("axis", 0) % x.v.ndim, attrs.get("select_last_index", 0)
        rows, shape = rows_of(x, (axis,))
        n = rows.v.shape[1]
        rows = moved(rows, lambda y: y[:, ::-1]) if last else rows
        places = exact(np.broadcast_to(np.arange(n, dtype="int64"), rows.v.shape), "int64")
        found = fold(kind, [places, rows], np.ones(rows.v.shape, bool), np.zeros(rows.v.shape))[0]
        if last:
            nan = np.isnan(rows.v).any(axis=1) if x.is_float else False
            found = unknown_where(n - 1 - found.v, (found.e > 0) | nan, "int64")
        return moved(found, lambda y: np.expand_dims(y.reshape(shape), axis) if attrs.get("keepdims", 1)
                     else y.reshape(shape))  # fmt: skip

    return meaning


def _running(args: Args, attrs: Attrs) -> Value:
    """CumSum: every place has the sum of those up to it."""
    x, axis = args[0], int(args[1].v.reshape(()))
    rows, shape = rows_of(x, (axis % x.v.ndim,))
    n, exclusive, backward = rows.v.shape[1], attrs.get("exclusive", 0), attrs.get("reverse", 0)
    rows = moved(rows, lambda y: y[:, ::-1]) if backward else rows
    sums = [folded("sum", moved(rows, lambda y, k=k: y[:, : k + 1 - exclusive]), (1,)) for k in range(n)]
    out = joined(sums, lambda parts: np.concatenate(parts, 1))
    out = moved(out, lambda y: y[:, ::-1]) if backward else out
    return _in_place(out, shape, axis % x.v.ndim)


def _in_place(rows: Value, shape: list[int], axis: int) -> Value:
    return moved(rows, lambda y: np.moveaxis(y.reshape([*shape, y.shape[1]]), -1, axis))


def _top(args: Args, attrs: Attrs) -> list[Value]:
    """TopK: sorted, of equals the first ones; rows with NaN or with rounding that may decide are open."""
    x, k = args[0], int(args[1].v.reshape(()))
    axis, largest = attrs.get("axis", -1) % x.v.ndim, attrs.get("largest", 1)
    rows, shape = rows_of(x, (axis,))
    descending = ~rows.v if not x.is_float else -rows.v
    order = np.argsort(descending if largest else rows.v, axis=1, kind="stable")[:, :k]
    nan = np.isnan(rows.v).any(axis=1, keepdims=True) if x.is_float else np.zeros((len(rows.v), 1), bool)
    worst = np.asarray(rows.e).max(axis=1, keepdims=True)
    values = np.take_along_axis(rows.v, order, 1)
    e = np.where(nan, np.inf, np.broadcast_to(worst, values.shape))
    found = floats(values, e, x.dtype) if x.is_float else Value(values, np.where(e > 0, np.inf, 0.0), x.dtype)
    places = unknown_where(order.astype("int64"), np.broadcast_to(nan | (worst > 0), order.shape), "int64")
    return [_in_place(y, shape, axis) for y in (found, places)]


def _hardmax(args: Args, attrs: Attrs) -> Value:
    x, axis = args[0], attrs.get("axis", -1)
    at = _first("argmax")([x], {"axis": axis, "keepdims": 1})
    places = np.arange(x.v.shape[axis]).reshape([-1 if a == axis % x.v.ndim else 1 for a in range(x.v.ndim)])
    v = (places == at.v).astype("float64")
    return Value(v, np.broadcast_to(np.where(at.e > 0, np.inf, 0.0), v.shape), x.dtype)


# ------------------------------------------------------------------------------------------------------ norms


def _from(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(range(axis % rank, rank))


def _layer_norm(args: Args, attrs: Attrs) -> Value:
    x, scale, bias = [*args, None][:3]
    out = mul(standard(x, _from(attrs.get("axis", -1), x.v.ndim), attrs.get("epsilon", absent(1e-5))), scale)
    return out if bias is None else add(out, bias)


def _rms_norm(args: Args, attrs: Attrs) -> Value:
    x, scale = args
    size = f(
        "sqrt",
        add(mean(mul(x, x), _from(attrs.get("axis", -1), x.v.ndim)), number(attrs.get("epsilon", absent(1e-5)), x)),
    )
    return mul(div(x, size), scale)


def _channels(x: Value, rank: int) -> Value:
    return moved(x, lambda y: y.reshape([1, -1, *[1] * (rank - 2)]))


def _instance_norm(args: Args, attrs: Attrs) -> Value:
    x, scale, bias = args
    rank = x.v.ndim
    out = standard(x, tuple(range(2, rank)), attrs.get("epsilon", absent(1e-5)))
    return add(mul(out, _channels(scale, rank)), _channels(bias, rank))


def _group_norm(args: Args, attrs: Attrs) -> Value:
    x, scale, bias = args
    shape, groups = x.v.shape, attrs["num_groups"]
    rows = moved(x, lambda y: y.reshape(shape[0], groups, -1))
    out = moved(standard(rows, (2,), attrs.get("epsilon", absent(1e-5))), lambda y: y.reshape(shape))
    return add(mul(out, _channels(scale, len(shape))), _channels(bias, len(shape)))


def _batch_norm(args: Args, attrs: Attrs) -> Value:
    """In the end it may be one product and one sum: the bound counts data and mean by themselves."""
    x, scale, bias, center, variance = [args[0], *[_channels(a, args[0].v.ndim) for a in args[1:]]]
    factor = div(scale, f("sqrt", add(variance, number(attrs.get("epsilon", absent(1e-5)), variance))))
    out = add(mul(sub(x, center), factor), bias)
    size = (np.abs(x.v) + np.abs(center.v)) * np.abs(factor.v) + np.abs(bias.v)
    more = 8 * 2.0 ** -DIGITS[x.dtype] * np.where(np.isfinite(size), size, 0.0)
    return looser(out, more)


def _lrn(args: Args, attrs: Attrs) -> Value:
    (x,), n = args, attrs["size"]
    before = (n - 1) // 2
    around = [(0, 0), (before, n - 1 - before), *[(0, 0)] * (x.v.ndim - 2)]
    near = moved(padded(mul(x, x), around), lambda y: np.lib.stride_tricks.sliding_window_view(y, n, 1))
    total = folded("sum", near, (near.v.ndim - 1,), keep=False)
    level = add(number(attrs.get("bias", 1.0), x), mul(number(attrs.get("alpha", absent(1e-4)) / n, x), total))
    return div(x, call("pow", [level, number(attrs.get("beta", absent(0.75)), x)]))


def _mean_variance(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    axes = attrs.get("axes", (0, 2, 3))
    off = sub(x, mean(x, axes))
    return div(off, add(f("sqrt", mean(mul(off, off), axes)), number(1e-9, x)))


def _lp_norm(args: Args, attrs: Attrs) -> Value:
    """Where the norm is 0, so is the result."""
    (x,), axes = args, (attrs.get("axis", -1) % args[0].v.ndim,)
    norm = _fold("L1" if attrs.get("p", 2) == 1 else "L2", x, axes, True)
    return choose(compare("==", norm, number(0, x)), number(0, x), div(x, norm))


# --------------------------------------------------------------------------------------- products and windows


def _matmul(args: Args, attrs: Attrs) -> Value:
    a, b = args
    left = moved(a, lambda x: x[None]) if a.v.ndim == 1 else a
    right = moved(b, lambda x: x[:, None]) if b.v.ndim == 1 else b
    out = product(left, right)
    out = moved(out, lambda x: x[..., 0, :]) if a.v.ndim == 1 else out
    return moved(out, lambda x: x[..., 0]) if b.v.ndim == 1 else out


def _gemm(args: Args, attrs: Attrs) -> Value:
    a, b, c = [*args, None][:3]
    a = moved(a, np.transpose) if attrs.get("transA") else a
    b = moved(b, np.transpose) if attrs.get("transB") else b
    alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    out = product(a, b) if alpha == 1 else mul(number(alpha, a), product(a, b))
    if c is None:
        return out
    return add(out, c if beta == 1 else mul(number(beta, a), c))


def _integer_product(args: Args, attrs: Attrs) -> Value:
    a, b = (cast(x, "int32") for x in args[:2])
    if len(args) > 2:
        a = binary("-", a, cast(args[2], "int32"))
    if len(args) > 3:
        b = binary("-", b, cast(args[3], "int32"))
    return product(a, b)


def _conv(args: Args, attrs: Attrs) -> Value:
    x, w, bias = [*args, None][:3]
    rank = x.v.ndim - 2
    kernel, groups = w.v.shape[2:], attrs.get("group", 1)
    x = padded(x, _widths(attrs, rank))
    seen = windows(x, kernel, attrs.get("strides", (1,) * rank), attrs.get("dilations", (1,) * rank))
    n, c, *places = seen.v.shape[: 2 + rank]
    out_channels, each = w.v.shape[0], c // groups
    order = (0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    rows = moved(seen, lambda y: y.reshape(n, groups, each, *places, *kernel).transpose(order)
                 .reshape(n, groups, 1, *places, -1))  # fmt: skip
    filters = moved(w, lambda y: y.reshape(1, groups, out_channels // groups, *[1] * rank, -1))
    out = moved(contracted(rows, filters), lambda y: y.reshape(n, out_channels, *places))
    return out if bias is None else add(out, _channels(bias, rank + 2))


def _widths(attrs: Attrs, rank: int) -> list[tuple[int, int]]:
    pads = attrs.get("pads", (0,) * (2 * rank))
    return [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]


def _conv_transposed(args: Args, attrs: Attrs) -> Value:
    """The convolution of the data, spread apart by the strides, with the filters turned around."""
    x, w, bias = [*args, None][:3]
    rank = x.v.ndim - 2
    strides, dilations = attrs.get("strides", (1,) * rank), attrs.get("dilations", (1,) * rank)
    pads, groups = attrs.get("pads", (0,) * (2 * rank)), attrs.get("group", 1)
    more = attrs.get("output_padding", (0,) * rank)
    shape = [(n - 1) * s + 1 for n, s in zip(x.v.shape[2:], strides, strict=True)]
    at = (slice(None), slice(None), *[slice(None, None, s) for s in strides])

    def apart(y: Array) -> Array:
        out = np.zeros((*y.shape[:2], *shape), y.dtype)
        out[at] = y
        return out

    full = [(k - 1) * d for k, d in zip(w.v.shape[2:], dilations, strict=True)]
    around = [(0, 0), (0, 0), *[(a, a + m) for a, m in zip(full, more, strict=True)]]
    c, each = w.v.shape[:2]

    def turned(y: Array) -> Array:
        y = y.reshape(groups, c // groups, each, *y.shape[2:]).swapaxes(1, 2)
        return y.reshape(groups * each, c // groups, *y.shape[3:])[(..., *[slice(None, None, -1)] * rank)]

    out = _conv([padded(moved(x, apart), around), moved(w, turned)], {"dilations": dilations, "group": groups})
    cut = tuple([slice(a, n - b) for a, b, n in zip(pads[:rank], pads[rank:], out.v.shape[2:], strict=True)])
    out = moved(out, lambda y: y[(slice(None), slice(None), *cut)])
    return out if bias is None else add(out, _channels(bias, rank + 2))


def _pool(kind: str) -> Meaning:
    def meaning(args: Args, attrs: Attrs) -> Value:
        (x,) = args
        rank, kernel = x.v.ndim - 2, attrs["kernel_shape"]
        strides, dilations = attrs.get("strides", (1,) * rank), attrs.get("dilations", (1,) * rank)
        around = _widths(attrs, rank)
        axes = tuple(range(2 + rank, 2 + 2 * rank))

        def seen(y: Value, fill: float) -> Value:
            return windows(padded(y, around, fill), kernel, strides, dilations)

        if kind == "max":
            low = -np.inf if x.is_float else np.iinfo(x.dtype).min
            return folded("max", seen(x, low), axes, keep=False)
        if kind == "lp":
            return f("sqrt", folded("sum", mul(seen(x, 0), seen(x, 0)), axes, keep=False))
        ones = exact(np.ones(x.v.shape), x.dtype)
        count = seen(ones, float(attrs.get("count_include_pad", 0))).v.sum(axes)
        return div(folded("sum", seen(x, 0), axes, keep=False), exact(count, x.dtype))

    return meaning


def _global(kind: str) -> Meaning:
    def meaning(args: Args, attrs: Attrs) -> Value:
        (x,), axes = args, tuple(range(2, args[0].v.ndim))
        return _fold("L2" if kind == "lp" else kind, x, axes, True)

    return meaning


def _einsum(args: Args, attrs: Attrs) -> Value:
    """Of two tensors: their product over all letters, summed over those that are not in the result."""
    given, result = attrs["equation"].split("->")
    letters = given.split(",")
    summed = sorted(set(given) - {","} - set(result))
    order = [*result, *summed]
    sizes = {c: n for word, x in zip(letters, args, strict=True) for c, n in zip(word, x.v.shape, strict=True)}

    def placed(x: Value, word: str) -> Value:
        shape = [sizes[c] if c in word else 1 for c in order]
        axes = [word.index(c) for c in order if c in word]
        return spread(moved(x, lambda y: y.transpose(axes).reshape(shape)), [sizes[c] for c in order])

    terms = [placed(x, word) for x, word in zip(args, letters, strict=True)]
    out = terms[0] if len(terms) == 1 else binary("*", *terms)
    return folded("sum", out, tuple(range(len(result), len(order))), keep=False) if summed else out


_KINDS = ("L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Mean", "Sum", "Prod", "Max", "Min")
ROWS: dict[str, Any] = {
    **{f"Reduce{kind}": _reduced(kind) for kind in _KINDS},
    "ArgMax": _first("argmax"), "ArgMin": _first("argmin"), "CumSum": _running, "TopK": _top, "Hardmax": _hardmax,
    "Softmax": lambda args, attrs: softmax(args[0], attrs.get("axis", -1)),
    "LogSoftmax": lambda args, attrs: softmax(args[0], attrs.get("axis", -1), log=True),
    "LayerNormalization": _layer_norm, "RMSNormalization": _rms_norm, "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm, "BatchNormalization": _batch_norm, "LRN": _lrn,
    "MeanVarianceNormalization": _mean_variance, "LpNormalization": _lp_norm,
    "MatMul": _matmul, "Gemm": _gemm, "MatMulInteger": _integer_product, "Einsum": _einsum,
    "Conv": _conv, "ConvTranspose": _conv_transposed, "MaxPool": _pool("max"), "AveragePool": _pool("mean"),
    "LpPool": _pool("lp"), "GlobalAveragePool": _global("Mean"), "GlobalMaxPool": _global("Max"),
    "GlobalLpPool": _global("lp"),
}  # fmt: skip
"""By the name of the operator: its result of the values of its inputs and its attributes."""
