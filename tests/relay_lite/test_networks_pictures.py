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


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def gelu(x: Array) -> Array:
    return x * special.ndtr(x)


class MobileNet(Plain):
    """Inverted residuals."""

    def unit(self, x: Array, name: str, act: Act | None = None, stride: int = 1) -> Array:
        pad = self.p[f"{name}_weight"].shape[2] // 2
        x = self.batch_norm(self.conv(x, name, stride, pad), f"{name}_bn", 1e-5)
        return x if act is None else act(x)

    def block(self, x: Array, name: str, stride: int) -> Array:
        y = self.unit(x, f"{name}_expand", relu6) if f"{name}_expand_weight" in self.p else x
        y = self.unit(y, f"{name}_depthwise", relu6, stride)
        y = self.unit(y, f"{name}_project")
        return x + y if x.shape == y.shape else y


def mobilenet_v2(params: Any, x: Array) -> Array:
    """17 blocks; the image is halved at the second, fourth, seventh and fourteenth."""
    plain = MobileNet(params)
    x = plain.unit(x, "stem", relu6, 2)
    for index in range(1, 18):
        x = plain.block(x, f"block{index}", 2 if index in (2, 4, 7, 14) else 1)
    return plain.affine(plain.unit(x, "last", relu6).mean((2, 3)), "fc")


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


VIT = {"hidden": 24, "num_heads": 3, "num_layers": 2, "patch": 8}
CASES: dict[str, tuple[tuple[int, int], dict[str, Any], Callable[..., Array]]] = {
    "mobilenet_v2": ((33, 40), {}, mobilenet_v2),
    "vit_b_16": ((16, 24), VIT, lambda p, x: vit(p, x, 8, 3, 2)),
    "deit_tiny": ((32, 16), {"num_layers": 2}, lambda p, x: vit(p, x, 16, 3, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    size, options, plain = CASES[name]
    rng = np.random.default_rng(len(name))
    graph, params = testing.get_workload(name, 2, "NCHW", (3, *size), num_classes=7, **options)
    params = live_params(graph, params, rng)
    inputs = live_inputs(graph, params, rng)
    expected = plain(params, inputs["data"].astype("float64"))
    apart(expected)
    close(graph, inputs, params, expected)
