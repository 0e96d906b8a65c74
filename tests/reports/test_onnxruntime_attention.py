"""Attention and the quantised LSTM of onnxruntime as loops in float64, and by onnxruntime where it has them."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import pytest

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from tests.reports.everywhere import Array
from tests.reports.test_onnxruntime_operators import check, floats, model_of, sigmoid, weight

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++"),
              pytest.mark.one_in(3)]  # fmt: skip
BATCH, ROWS, HEADS, SIZE = 2, 4, 3, 4
HIDDEN = HEADS * SIZE


def attended(q: Array, k: Array, v: Array, added: Array, causal: bool, scale: float) -> Array:
    """Attention of (batch, heads, positions, size), a row and a head at a time."""
    out = np.zeros((*q.shape[:3], v.shape[3]))
    behind = k.shape[2] - q.shape[2]
    for b, h, i in np.ndindex(q.shape[:3]):
        seen = range(i + behind + 1) if causal else range(k.shape[2])
        scores = [scale * float(q[b, h, i] @ k[b, h, j]) + float(added[b, h, i, j]) for j in seen]
        e = [math.exp(s - max(scores)) for s in scores]
        out[b, h, i] = sum(w / sum(e) * v[b, h, j] for w, j in zip(e, seen, strict=True))
    return out


def by_heads(x: Array) -> Array:
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3).astype("float64")


def side_by_side(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def masks(columns: int) -> dict[str, tuple[Array, Array]]:
    """Every form of a mask, and which keys count by it."""
    rng, places = np.random.default_rng(1), np.arange(columns)
    ends, starts = np.array([columns - 1, columns], "int32"), np.array([0, 1], "int32")
    flags = np.ones((BATCH, columns), "int32")
    flags[0, -2:] = 0
    square = (rng.random((BATCH, ROWS, columns)) < 0.7).astype("int32")
    square[:, :, 0] = 1
    return {
        "ends": (ends, np.broadcast_to((places < ends[:, None])[:, None, None], (BATCH, 1, ROWS, columns))),
        "ends and starts": (
            np.concatenate([ends, starts]),
            np.broadcast_to(((places < ends[:, None]) & (places >= starts[:, None]))[:, None, None],
                            (BATCH, 1, ROWS, columns)),
        ),
        "flags": (flags, np.broadcast_to((flags > 0)[:, None, None], (BATCH, 1, ROWS, columns))),
        "matrix": (square, (square > 0)[:, None]),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["none", "ends", "ends and starts", "flags", "matrix"])
def test_masks(form: str) -> None:
    x, w, bias = floats(1, BATCH, ROWS, 5), weight(floats(2, 5, 3 * HIDDEN)), weight(floats(3, 3 * HIDDEN))
    given, counts = masks(ROWS)[form] if form != "none" else (None, np.ones((BATCH, 1, ROWS, ROWS), bool))
    q, k, v = (by_heads(p) for p in np.split(x.astype("float64") @ w + bias, 3, axis=2))
    added = np.broadcast_to(np.where(counts, 0, -10000.0), (BATCH, HEADS, ROWS, ROWS))
    want = side_by_side(attended(q, k, v, added, False, 1 / math.sqrt(SIZE)))
    check("Attention", [x, w, bias, given], [want, np.stack([k, v])], ["y", "present"], tol=1e-4, num_heads=HEADS)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("causal", [0, 1])
def test_the_past(past: int, causal: int) -> None:
    x, w, bias = floats(4, BATCH, ROWS, 5), weight(floats(5, 5, 3 * HIDDEN)), weight(floats(6, 3 * HIDDEN))
    old = floats(7, 2, BATCH, HEADS, past, SIZE)
    extra = floats(8, 1, HEADS, ROWS, ROWS + past)
    q, k, v = (by_heads(p) for p in np.split(x.astype("float64") @ w + bias, 3, axis=2))
    k, v = np.concatenate([old[0], k], 2), np.concatenate([old[1], v], 2)
    added = np.broadcast_to(extra, (BATCH, HEADS, ROWS, ROWS + past))
    want = side_by_side(attended(q, k, v, added, bool(causal), 0.3))
    check("Attention", [x, w, bias, None, old if past else None, extra], [want, np.stack([k, v])], ["y", "present"],
          tol=1e-4, num_heads=HEADS, unidirectional=causal, scale=0.3)  # fmt: skip


def test_values_of_another_size() -> None:
    x, w = floats(9, BATCH, ROWS, 5), weight(floats(10, 5, 2 * HIDDEN + 6))
    q, k, v = (by_heads(p) for p in np.split(x.astype("float64") @ w, [HIDDEN, 2 * HIDDEN], axis=2))
    none = np.zeros((BATCH, HEADS, ROWS, ROWS))
    want = side_by_side(attended(q, k, v, none, False, 1 / math.sqrt(SIZE)))
    bias = weight(np.zeros(2 * HIDDEN + 6, "float32"))
    check("Attention", [x, w, bias], [want], tol=1e-4, num_heads=HEADS, qkv_hidden_sizes=[HIDDEN, HIDDEN, 6])


@pytest.mark.parametrize("columns", [False, True])
def test_quantised_projections(columns: bool) -> None:
    rng = np.random.default_rng(11)
    codes = rng.integers(0, 256, (BATCH, ROWS, 5)).astype("uint8")
    w = rng.integers(-127, 128, (5, 3 * HIDDEN)).astype("int8")
    scale, zero = np.float32(0.02), np.uint8(130)
    factors = rng.uniform(0.005, 0.01, 3 * HIDDEN if columns else ()).astype("float32")
    points = rng.integers(-5, 5, 3 * HIDDEN if columns else ()).astype("int8")
    bias, ends = weight(floats(12, 3 * HIDDEN)), np.array([3, 4], "int32")
    real = (codes.astype("float64") - 130) * float(scale)
    joined = real @ ((w.astype("float64") - points) * factors) + bias
    q, k, v = (by_heads(p) for p in np.split(joined, 3, axis=2))
    added = np.where(np.arange(ROWS) < ends[:, None], 0, -10000.0)[:, None, None]
    want = side_by_side(attended(q, k, v, np.broadcast_to(added, (BATCH, HEADS, ROWS, ROWS)), False, 0.5))
    inputs = [codes, weight(w), bias, weight(scale), weight(factors), ends, weight(zero), weight(points)]
    check("QAttention", inputs, [want], tol=1e-4, num_heads=HEADS)


@pytest.mark.parametrize("packed", ["no", "keys and values", "all"])
def test_heads_of_given_projections(packed: str) -> None:
    columns = ROWS if packed == "all" else 6
    q = floats(13, BATCH, ROWS, HIDDEN)
    k, v = floats(14, BATCH, columns, HIDDEN), floats(15, BATCH, columns, HIDDEN)
    extra = floats(16, BATCH, HEADS, ROWS, columns)
    bias = weight(floats(17, 3 * HIDDEN)) if packed == "no" else None
    shift = np.zeros(3 * HIDDEN) if bias is None else bias.astype("float64")
    parts = [by_heads(p + s) for p, s in zip((q, k, v), np.split(shift, 3), strict=True)]
    split = [p.reshape(BATCH, -1, HEADS, SIZE) for p in (q, k, v)]
    inputs: list[Array | None] = [q, k, v]
    if packed == "all":
        inputs = [np.stack(split, 3), None, None]
    elif packed == "keys and values":
        inputs = [q, np.stack(split[1:], 3), None]
    want = side_by_side(attended(*parts, extra, False, 1 / math.sqrt(SIZE)))
    check("MultiHeadAttention", [*inputs, bias, None, extra], [want], tol=1e-4, num_heads=HEADS)


def test_the_past_of_given_projections() -> None:
    q, k, v = (floats(20 + i, BATCH, ROWS, HIDDEN) for i in range(3))
    old = [floats(23 + i, BATCH, HEADS, 3, SIZE) for i in range(2)]
    flags = np.ones((BATCH, ROWS + 3), "int32")
    flags[1, :2] = 0
    keys, values = (np.concatenate([a, by_heads(b)], 2) for a, b in zip(old, (k, v), strict=True))
    added = np.broadcast_to(np.where(flags > 0, 0, -100.0)[:, None, None], (BATCH, HEADS, ROWS, ROWS + 3))
    want = side_by_side(attended(by_heads(q), keys, values, added, False, 0.5))
    check("MultiHeadAttention", [q, k, v, None, flags, None, *old], [want, keys, values], ["y", "k", "v"], tol=1e-4,
          num_heads=HEADS, mask_filter_value=-100.0)  # fmt: skip


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"do_rotary": 1}, "do_rotary must be 0"),
        ({"past_present_share_buffer": 1}, "past_present_share_buffer must be 0"),
        ({"num_heads": 5}, "num_heads must divide the hidden size"),
        ({"qkv_hidden_sizes": [4, 4, 4]}, "qkv_hidden_sizes must be three that fill the projection"),
    ],
)
def test_what_is_no_attention_is_refused(attrs: dict[str, Any], said: str) -> None:
    inputs = [floats(1, BATCH, ROWS, 5), weight(floats(2, 5, 3 * HIDDEN)), weight(floats(3, 3 * HIDDEN))]
    with pytest.raises(GraphError, match=said):
        from_onnx(model_of("Attention", inputs, ["y"], **({"num_heads": HEADS} | attrs))[0])
    with pytest.raises(GraphError, match=r"masks are \(2,\), \(4,\), \(2, 4\), \(2, 4, 4\) or \(2, 1, M, M\)"):
        from_onnx(model_of("Attention", [*inputs, np.zeros(3, "int32")], ["y"], num_heads=HEADS)[0])


def in_8_bits(x: Array) -> Array:
    """What numbers are after they were quantised by their least and largest, as DynamicQuantizeLinear does."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    step = float((high - low) / np.float32(255)) or 1.0
    zero = np.rint(-float(low) / step)
    return (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_lstm(direction: str, kind: str) -> None:
    rng, steps, batch, size, hidden = np.random.default_rng(30), 5, 2, 3, 4
    count = 2 if direction == "bidirectional" else 1
    x = floats(31, steps, batch, size)
    low, high = (-100, 100) if kind == "int8" else (20, 230)
    weights = [rng.integers(low, high, (count, n, 4 * hidden)).astype(kind) for n in (size, hidden)]
    by_column = direction != "reverse"
    scales = [rng.uniform(0.002, 0.01, (count, 4 * hidden) if by_column else (count,)).astype("float32") for _ in "ab"]
    zeros = [np.zeros(s.shape, kind) if kind == "int8" else np.full(s.shape, 120, kind) for s in scales]
    real = [
        (w.astype("float64") - z.reshape(count, 1, -1)) * s.reshape(count, 1, -1)
        for w, z, s in zip(weights, zeros, scales, strict=True)
    ]
    bias, h0, c0 = floats(32, count, 8 * hidden), floats(33, count, batch, hidden), floats(34, count, batch, hidden)
    every, last = np.zeros((steps, count, batch, hidden)), [np.zeros((count, batch, hidden)) for _ in range(2)]
    data = in_8_bits(x)
    for d in range(count):
        h, c = h0[d].astype("float64"), c0[d].astype("float64")
        backwards = direction == "reverse" or d == 1
        for t in range(steps)[:: -1 if backwards else 1]:
            gates = data[t] @ real[0][d] + in_8_bits(h) @ real[1][d] + bias[d, : 4 * hidden] + bias[d, 4 * hidden :]
            i, o, f, g = np.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            every[t, d] = h
        last[0][d], last[1][d] = h, c
    inputs = [x, weight(weights[0]), weight(weights[1]), weight(bias), None, h0, c0, None,
              weight(scales[0]), weight(zeros[0]), weight(scales[1]), weight(zeros[1])]  # fmt: skip
    # where a number is rounded the other way, it is off by a step of 8 bits
    check("DynamicQuantizeLSTM", inputs, [every, *last], ["y", "h", "c"], tol=5e-3, direction=direction,
          hidden_size=hidden)  # fmt: skip
