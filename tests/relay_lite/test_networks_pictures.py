"""Networks of pictures, of their published widths or small ones, against the same thing written in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relay_lite import testing
from relay_lite.testing.live import live_inputs, live_params
from tests.relay_lite.plain import Array, Plain, apart, close

special = pytest.importorskip("scipy.special")

Act = Callable[[Array], Array]


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def hard_swish(x: Array) -> Array:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def silu(x: Array) -> Array:
    return x * special.expit(x)


def gelu(x: Array) -> Array:
    return x * special.ndtr(x)


class Residuals(Plain):
    """Inverted residuals, their squeeze-and-excite as two matrix products."""

    epsilon = 1e-5
    inner: Act = staticmethod(relu)
    gate: Act = staticmethod(lambda x: np.clip(x / 6 + 0.5, 0, 1))

    def unit(self, x: Array, name: str, act: Act | None, stride: int = 1) -> Array:
        pad = self.p[f"{name}_weight"].shape[2] // 2
        x = self.batch_norm(self.conv(x, name, stride, pad), f"{name}_bn", self.epsilon)
        return x if act is None else act(x)

    def block(self, x: Array, name: str, act: Act, stride: int) -> Array:
        y = self.unit(x, f"{name}_expand", act) if f"{name}_expand_weight" in self.p else x
        y = self.unit(y, f"{name}_depthwise", act, stride)
        if f"{name}_squeeze_weight" in self.p:
            small = self.inner(self.one_by_one(y.mean((2, 3)), f"{name}_squeeze"))
            y = y * self.gate(self.one_by_one(small, f"{name}_excite"))[:, :, None, None]
        y = self.unit(y, f"{name}_project", None)
        return x + y if x.shape == y.shape else y

    def one_by_one(self, x: Array, name: str) -> Array:
        return x @ self.p[f"{name}_weight"][:, :, 0, 0].T + self.p[f"{name}_bias"]

    def net(self, x: Array, act: Act, blocks: list[tuple[Act, int]]) -> Array:
        """The means of the channels of the last convolution."""
        x = self.unit(x, "stem", act, 2)
        for index, (inside, stride) in enumerate(blocks, 1):
            x = self.block(x, f"block{index}", inside, stride)
        return self.unit(x, "last", act).mean((2, 3))


def ones(count: int, *strided: int) -> list[int]:
    """The strides of some blocks: 2 at the places that are named, counted from 1."""
    return [2 if index in strided else 1 for index in range(1, count + 1)]


def mobilenet_v2(params: Any, x: Array) -> Array:
    """17 blocks; the image is halved at the second, fourth, seventh and fourteenth."""
    plain = Residuals(params)
    return plain.affine(plain.net(x, relu6, [(relu6, s) for s in ones(17, 2, 4, 7, 14)]), "fc")


def mobilenet_v3(params: Any, x: Array, relus: int, strides: list[int]) -> Array:
    """The first `relus` blocks have relu, the others hard swish."""
    plain = Residuals(params)
    plain.epsilon = 1e-3
    blocks = [(relu if index < relus else hard_swish, s) for index, s in enumerate(strides)]
    return plain.affine(hard_swish(plain.affine(plain.net(x, hard_swish, blocks), "fc1")), "fc2")


def efficientnet(params: Any, x: Array) -> Array:
    """16 blocks; the image is halved at the second, fourth, sixth and twelfth."""
    plain = Residuals(params)
    plain.inner, plain.gate = silu, special.expit
    return plain.affine(plain.net(x, silu, [(silu, s) for s in ones(16, 2, 4, 6, 12)]), "fc")


def convnext(params: Any, x: Array, depths: tuple[int, ...]) -> Array:
    """Layer norms and 1x1 convolutions as what they are with the channels last."""
    plain = Plain(params)

    def last(x: Array, name: str) -> Array:
        return plain.norm(x.transpose(0, 2, 3, 1), name, 1e-6)

    for stage, count in enumerate(depths, 1):
        if stage == 1:
            x = last(plain.conv(x, "stem", 4), "stem_norm").transpose(0, 3, 1, 2)
        else:
            x = plain.conv(last(x, f"down{stage}_norm").transpose(0, 3, 1, 2), f"down{stage}", 2)
        for index in range(1, count + 1):
            name = f"stage{stage}_block{index}"
            y = last(plain.conv(x, f"{name}_depthwise", 1, 3), f"{name}_norm")
            y = gelu(y @ plain.p[f"{name}_widen_weight"][:, :, 0, 0].T + plain.p[f"{name}_widen_bias"])
            y = y @ plain.p[f"{name}_narrow_weight"][:, :, 0, 0].T + plain.p[f"{name}_narrow_bias"]
            x = x + (y * plain.p[f"{name}_gamma"]).transpose(0, 3, 1, 2)
    return plain.affine(plain.norm(x.mean((2, 3)), "norm", 1e-6), "fc")


class Attending(Plain):
    """Layers of attention in one set of tokens [tokens, hidden]."""

    def attention(self, x: Array, name: str, heads: int, bias: Any = 0) -> Array:
        """`bias` is [heads, tokens, tokens], or a number."""
        query, key, value = np.split(self.affine(x, f"{name}_qkv"), 3, axis=1)
        out = []
        for head, (q, k, v) in enumerate(zip(*(np.split(t, heads, axis=1) for t in (query, key, value)), strict=True)):
            scores = q @ k.T / np.sqrt(q.shape[1]) + (bias[head] if np.ndim(bias) else bias)
            out.append(special.softmax(scores, axis=1) @ v)
        return self.affine(np.concatenate(out, axis=1), f"{name}_output")

    def fed(self, x: Array, name: str, epsilon: float) -> Array:
        inside = gelu(self.affine(self.norm(x, f"{name}_ffn_norm", epsilon), f"{name}_ffn_in"))
        return x + self.affine(inside, f"{name}_ffn_out")


def vit(params: Any, x: Array, patch: int, heads: int, layers: int) -> Array:
    plain = Attending(params)
    out = []
    for tokens in plain.conv(x, "patch", patch).reshape(len(x), params["patch_weight"].shape[0], -1):
        t = np.concatenate([plain.p["class_weight"], tokens.T]) + plain.p["position_weight"]
        for name in [f"layer{index}" for index in range(layers)]:
            t = t + plain.attention(plain.norm(t, f"{name}_attention_norm", 1e-6), name, heads)
            t = plain.fed(t, name, 1e-6)
        out.append(plain.affine(plain.norm(t, "norm", 1e-6)[0], "head"))
    return np.stack(out)


def swin_layer(plain: Attending, x: Array, name: str, heads: int, size: int, shift: int) -> Array:
    """Window by window of one image [h, w, c]: the tokens that are looked up, and who may see whom."""
    h, w, _ = x.shape
    normed, out = plain.norm(x, f"{name}_attention_norm", 1e-5), x.copy()
    table = plain.p[f"{name}_place_weight"].reshape(2 * size - 1, 2 * size - 1, heads)
    own = [(i, j) for i in range(size) for j in range(size)]
    bias = np.array([[table[i - k + size - 1, j - m + size - 1] for k, m in own] for i, j in own]).transpose(2, 0, 1)
    for top in range(0, h, size):
        for left in range(0, w, size):
            places = [(top + i + shift, left + j + shift) for i, j in own]
            wraps = [(i >= h, j >= w) for i, j in places]
            seen = np.array([[0.0 if a == b else -100.0 for b in wraps] for a in wraps])
            at = tuple(np.array([(i % h, j % w) for i, j in places]).T)
            out[at] += plain.attention(normed[at], name, heads, bias + seen)
    return plain.fed(out.reshape(h * w, -1), name, 1e-5).reshape(h, w, -1)


def swin(params: Any, x: Array, depths: tuple[int, ...], heads: tuple[int, ...], size: int) -> Array:
    plain = Attending(params)
    out = []
    for t in plain.conv(x, "patch", 4).transpose(0, 2, 3, 1):
        t = plain.norm(t, "patch_norm", 1e-5)
        for stage, (count, parts) in enumerate(zip(depths, heads, strict=True), 1):
            if stage > 1:
                corners = [t[0::2, 0::2], t[1::2, 0::2], t[0::2, 1::2], t[1::2, 1::2]]
                t = plain.affine(plain.norm(np.concatenate(corners, 2), f"merge{stage}_norm", 1e-5), f"merge{stage}")
            for index in range(count):
                shift = size // 2 if index % 2 and size < min(t.shape[:2]) else 0
                t = swin_layer(plain, t, f"stage{stage}_layer{index}", parts, size, shift)
        out.append(plain.affine(plain.norm(t, "norm", 1e-5).mean((0, 1)), "head"))
    return np.stack(out)


VIT = {"hidden": 24, "num_heads": 3, "num_layers": 2, "patch": 8}
SWIN = {"hidden": 12, "depths": (2, 2), "heads": (2, 3), "window": 3}
CASES: dict[str, tuple[tuple[int, int], dict[str, Any], Callable[..., Array]]] = {
    "mobilenet_v2": ((33, 40), {}, mobilenet_v2),
    "mobilenet_v3_large": ((40, 33), {}, lambda p, x: mobilenet_v3(p, x, 6, ones(15, 2, 4, 7, 13))),
    "mobilenet_v3_small": ((47, 33), {}, lambda p, x: mobilenet_v3(p, x, 3, ones(11, 1, 2, 4, 9))),
    "efficientnet_b0": ((33, 47), {}, efficientnet),
    "convnext_tiny": ((18, 25), {"depths": (1, 2), "widths": (16, 24)}, lambda p, x: convnext(p, x, (1, 2))),
    "vit_b_16": ((16, 24), VIT, lambda p, x: vit(p, x, 8, 3, 2)),
    "deit_tiny": ((32, 16), {"num_layers": 2}, lambda p, x: vit(p, x, 16, 3, 2)),
    "swin_t": ((24, 48), SWIN, lambda p, x: swin(p, x, (2, 2), (2, 3), 3)),
}


MARKS = {"mobilenet_v2": pytest.mark.long, "mobilenet_v3_large": pytest.mark.slow}
"""Networks of nothing that others lack."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in CASES])
def test_values(name: str) -> None:
    size, options, plain = CASES[name]
    rng = np.random.default_rng(len(name))
    graph, params = testing.get_workload(name, 2, "NCHW", (3, *size), num_classes=7, **options)
    params = live_params(graph, params, rng)
    inputs = live_inputs(graph, params, rng)
    expected = plain(params, inputs["data"].astype("float64"))
    apart(expected)
    close(graph, inputs, params, expected)
