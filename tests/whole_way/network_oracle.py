"""What a network means: plain NumPy in float64, each value with a bound of what float32 may add.

Passes regroup products and sums, so the bound of a sum grows with the sizes of its operands and not with its own.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from .bounded import Value
from .network import Network, arrays, given
from .operators import compare

Array = np.ndarray[Any, np.dtype[Any]]
EPS = 2.0**-22
"""Four units of float32: an operation, what it was folded from, and a constant that was rounded."""


def evaluate(network: Network) -> list[Any]:
    """The value of every node; of `split` and `nn.batch_norm` a list."""
    out: list[Any] = []
    known = arrays(network)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for k, node in enumerate(network.nodes):
            if given(node):
                out.append(Value(known[k].astype("float64"), np.zeros(known[k].shape), "float32"))
            else:
                out.append(_node(node[0], [out[i] for i in node[1]], node[2]))
    return out


def _float(v: Array, e: Array) -> Value:
    bad = ~np.isfinite(v) | ~(np.abs(v) + e < 1e30)
    return Value(np.where(bad, 0.0, v), np.where(bad, np.inf, e), "float32")


def _node(op: str, args: list[Any], attrs: dict[str, Any]) -> Any:
    if op in _MOVES:
        v = _MOVES[op]([a.v for a in args], attrs)
        e = _MOVES[op]([np.broadcast_to(a.e, a.v.shape) for a in args], attrs)
        return [Value(x, y, "float32") for x, y in zip(v, e, strict=True)] if op == "split" else Value(v, e, "float32")
    match op:
        case "item":
            return args[0][attrs["index"]]
        case "less" | "greater_equal":
            return compare({"less": "<", "greater_equal": ">="}[op], *args)
        case "where":
            c, a, b = args
            v, e = np.where(c.v, a.v, b.v), np.where(c.v, a.e, b.e)
            e = np.where(c.e > 0, np.maximum(a.e, b.e) + np.abs(a.v - b.v), e)
            return Value(v, e, "float32")
        case "sum" | "mean" | "max" | "min":
            return _reduced(op, args[0], attrs["axis"], attrs["keepdims"])
        case "nn.softmax" | "nn.log_softmax":
            return _softmax(args[0], attrs["axis"], op == "nn.log_softmax")
        case "nn.layer_norm":
            return _layer_norm(*args, attrs["epsilon"])
        case "nn.batch_norm":
            return [_batch_norm(args, attrs)]
        case "nn.bias_add":
            return _two("add", args[0], _along(args[1], args[0].v.ndim, attrs["axis"]))
        case "nn.dense":
            return _product(args[0], args[1], "ik,jk->ij")
        case "nn.batch_matmul":
            return _product(args[0], args[1], "bik,bjk->bij")
        case "nn.conv2d":
            return _conv(*args, attrs)
        case "nn.max_pool2d" | "nn.avg_pool2d":
            return _pool(args[0], attrs, op == "nn.max_pool2d")
        case "nn.global_avg_pool2d":
            axes = (2, 3) if attrs["layout"] == "NCHW" else (1, 2)
            return _reduced("mean", args[0], axes, True)
    return _two(op, *args) if len(args) == 2 else _one(op, args[0], attrs)


def _take(x: list[Array], a: dict[str, Any]) -> Array:
    return np.take(x[0], a["indices"], axis=a["axis"])


def _slice(x: list[Array], a: dict[str, Any]) -> Array:
    return x[0][tuple([slice(*t) for t in zip(a["begin"], a["end"], a["strides"], strict=True)])]


_MOVES: dict[str, Any] = {
    "transpose": lambda x, a: x[0].transpose(a["axes"]),
    "reshape": lambda x, a: x[0].reshape(a["newshape"]),
    "concatenate": lambda x, a: np.concatenate(x, a["axis"]),
    "strided_slice": _slice,
    "nn.pad": lambda x, a: np.pad(x[0], a["pad_width"]),
    "split": lambda x, a: np.split(x[0], a["indices_or_sections"], a["axis"]),
    "take": _take,
    "repeat": lambda x, a: np.repeat(x[0], a["repeats"], a["axis"]),
    "nn.batch_flatten": lambda x, a: x[0].reshape(len(x[0]), -1),
}


def _one(op: str, x: Value, attrs: dict[str, Any]) -> Value:
    v, e = x.v, x.e
    match op:
        case "nn.relu":
            return Value(np.maximum(v, 0), e, "float32")
        case "abs":
            return Value(np.abs(v), e, "float32")
        case "negative":
            return Value(-v, e, "float32")
        case "clip":
            return Value(np.clip(v, attrs["a_min"], attrs["a_max"]), e, "float32")
        case "nn.leaky_relu":
            return _float(np.where(v > 0, v, v * attrs["alpha"]), e + EPS * np.abs(v))
        case "floor":
            near = e + EPS * np.abs(v) * (e > 0)
            return _float(np.floor(v), np.floor(v + near) - np.floor(v - near))
        case "exp":
            return _float(np.exp(v), np.exp(v) * np.expm1(np.minimum(e, 50)) + 4 * EPS * np.exp(v))
        case "sqrt":
            low = np.sqrt(np.maximum(v - e, 0))
            return _float(np.sqrt(v), np.sqrt(v + e) - low + EPS * np.sqrt(v))
    f = {"tanh": np.tanh, "sigmoid": lambda t: 1 / (1 + np.exp(-t)), "erf": np.vectorize(math.erf)}[op]
    return _float(f(v), np.abs(f(v + e) - f(v - e)) + 8 * EPS)


def _two(op: str, x: Value, y: Value) -> Value:
    a, b, size = x.v, y.v, np.abs(x.v) + np.abs(y.v)
    match op:
        case "add" | "subtract":
            return _float(a + b if op == "add" else a - b, x.e + y.e + EPS * size)
        case "multiply":
            return _float(a * b, np.abs(a) * y.e + np.abs(b) * x.e + x.e * y.e + EPS * np.abs(a * b))
        case "divide":
            least = np.abs(b) - y.e
            e = np.where(least > 0, (x.e + np.abs(a / b) * y.e) / least, np.inf)
            return _float(a / b, e + EPS * np.abs(a / b))
    assert op in ("maximum", "minimum"), op
    return Value(
        getattr(np, op)(a, b), np.maximum(x.e, y.e) + np.zeros(np.broadcast_shapes(a.shape, b.shape)), "float32"
    )


def _reduced(op: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    e = np.broadcast_to(x.e, x.v.shape)
    if op in ("max", "min"):
        return Value(getattr(x.v, op)(axis=axes, keepdims=keep), e.max(axis=axes, keepdims=keep), "float32")
    n = math.prod([x.v.shape[a] for a in axes])
    v, size = x.v.sum(axis=axes, keepdims=keep), np.abs(x.v).sum(axis=axes, keepdims=keep)
    bound = e.sum(axis=axes, keepdims=keep) + n * EPS * size
    return _float(v / n, bound / n) if op == "mean" else _float(v, bound)


def _softmax(x: Value, axis: int, log: bool) -> Value:
    e = np.broadcast_to(x.e, x.v.shape)
    top = x.v.max(axis=axis, keepdims=True)
    power = np.exp(x.v - top)
    total = power.sum(axis=axis, keepdims=True)
    slip = 2 * e.max(axis=axis, keepdims=True) + EPS * (np.abs(x.v).max(axis=axis, keepdims=True) + x.v.shape[axis] + 8)
    if log:
        return _float(x.v - top - np.log(total), slip + EPS * np.abs(x.v - top))
    return _float(power / total, power / total * np.expm1(np.minimum(2 * slip, 50)))


def _layer_norm(x: Value, gamma: Value, beta: Value, epsilon: float) -> Value:
    """Normalised over the last axis; the variance may be of centred values or a difference of means."""
    n = x.v.shape[-1]
    mean = x.v.mean(axis=-1, keepdims=True)
    variance = x.v.var(axis=-1, keepdims=True)
    worst = np.broadcast_to(x.e, x.v.shape).max(axis=-1, keepdims=True)
    size = np.abs(x.v).max(axis=-1, keepdims=True)
    off = 2 * worst + n * EPS * size
    of_variance = 4 * off * np.sqrt(variance) + 4 * off**2 + n * EPS * size**2
    spread = np.sqrt(variance + epsilon)
    relative = np.where(variance + epsilon > 2 * of_variance, of_variance / (variance + epsilon), np.inf)
    scaled = Value((x.v - mean) / spread, off / spread + np.abs(x.v - mean) / spread * relative, "float32")
    return _two("add", _two("multiply", _float(scaled.v, scaled.e), gamma), beta)


def _along(x: Value, ndim: int, axis: int) -> Value:
    shape = [1] * ndim
    shape[axis] = -1
    return Value(x.v.reshape(shape), x.e.reshape(shape), "float32")


def _batch_norm(args: list[Value], attrs: dict[str, Any]) -> Value:
    """Folded or not: the bound counts the data and the mean by themselves."""
    x, gamma, beta, mean, variance = [args[0], *[_along(a, args[0].v.ndim, attrs["axis"]) for a in args[1:]]]
    spread = np.sqrt(variance.v + attrs["epsilon"])
    scale = (gamma.v if attrs["scale"] else 1.0) / spread
    shift = beta.v if attrs["center"] else 0.0
    v = (x.v - mean.v) * scale + shift
    return _float(v, np.abs(scale) * x.e + 4 * EPS * ((np.abs(x.v) + np.abs(mean.v)) * np.abs(scale) + np.abs(shift)))


def _product(x: Value, y: Value, formula: str) -> Value:
    n = x.v.shape[-1]

    def product(a: Array, b: Array) -> Array:
        return np.einsum(formula, a, b)

    size = product(np.abs(x.v), np.abs(y.v))
    error = product(x.e, np.abs(y.v)) + product(np.abs(x.v) + x.e, np.broadcast_to(y.e, y.v.shape))
    return _float(product(x.v, y.v), error + n * EPS * size)


def _conv(x: Value, w: Value, attrs: dict[str, Any]) -> Value:
    def conv(data: Array, weight: Array) -> Array:
        return _conv_of(data, weight, attrs)

    terms = w.v.size // attrs["channels"]
    size = conv(np.abs(x.v), np.abs(w.v))
    return _float(conv(x.v, w.v), conv(np.broadcast_to(x.e, x.v.shape), np.abs(w.v)) + (terms + 4) * EPS * size)


_KERNELS = {"OIHW": (0, 1, 2, 3), "HWIO": (3, 2, 0, 1), "HWOI": (2, 3, 0, 1)}


def _conv_of(x: Array, w: Array, attrs: dict[str, Any]) -> Array:
    nhwc = attrs["data_layout"] == "NHWC"
    x = x.transpose(0, 3, 1, 2) if nhwc else x
    w = w.transpose(_KERNELS[attrs["kernel_layout"]])
    groups, out = attrs["groups"], attrs["channels"]
    k, s, d, p = attrs["kernel_size"][0], attrs["strides"][0], attrs["dilation"][0], attrs["padding"][0]
    w = w.reshape(out, x.shape[1] // groups, k, k)
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    size = [(n - d * (k - 1) - 1) // s + 1 for n in x.shape[2:]]
    y = np.zeros((len(x), out, *size))
    each, inside = out // groups, x.shape[1] // groups
    for i in range(k):
        for j in range(k):
            part = x[:, :, i * d : i * d + s * (size[0] - 1) + 1 : s, j * d : j * d + s * (size[1] - 1) + 1 : s]
            for g in range(groups):
                rows = slice(g * each, (g + 1) * each)
                y[:, rows] += np.einsum("nchw,oc->nohw", part[:, g * inside : (g + 1) * inside], w[rows, :, i, j])
    return y.transpose(0, 2, 3, 1) if nhwc else y


def _pool(x: Value, attrs: dict[str, Any], largest: bool) -> Value:
    nhwc = attrs["layout"] == "NHWC"
    v, e = (a.transpose(0, 3, 1, 2) if nhwc else a for a in (x.v, np.broadcast_to(x.e, x.v.shape)))
    k, s, p = attrs["pool_size"][0], attrs["strides"][0], attrs["padding"][0]

    def windows(a: Array, fill: float) -> Array:
        a = np.pad(a, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=fill)
        return np.lib.stride_tricks.sliding_window_view(a, (k, k), (2, 3))[:, :, ::s, ::s]

    if largest:
        out, error = windows(v, -np.inf).max((-2, -1)), windows(e, 0.0).max((-2, -1))
    else:
        inside = windows(np.ones_like(v), float(attrs["count_include_pad"])).sum((-2, -1))
        out = windows(v, 0.0).sum((-2, -1)) / inside
        error = (windows(e, 0.0).sum((-2, -1)) + k * k * EPS * windows(np.abs(v), 0.0).sum((-2, -1))) / inside
    return _float(*(a.transpose(0, 2, 3, 1) if nhwc else a for a in (out, error)))
