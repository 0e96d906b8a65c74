"""Networks of tokens against the same thing written in plain NumPy, one head of one sequence at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relay_lite.testing import gpt2, llama
from relay_lite.testing.live import live_inputs, live_params
from tests.relay_lite.plain import Array, Arrays, Plain, apart, close

special = pytest.importorskip("scipy.special")


def drawn(workload: Any, vocab: int = 0) -> tuple[Any, Arrays, Arrays]:
    """A network with live parameters and inputs; tokens are among `vocab`."""
    graph, params = workload
    rng = np.random.default_rng(11)
    params = live_params(graph, params, rng)
    inputs = live_inputs(graph, params, rng)
    if vocab:
        inputs["data"] = rng.integers(0, vocab, inputs["data"].shape).astype("int32")
    return graph, params, inputs


def heads_of(x: Array, heads: int) -> list[Array]:
    return np.split(x, heads, axis=1)


def attended(query: Array, key: Array, value: Array, bias: Any) -> Array:
    return special.softmax(query @ key.T + bias, axis=1) @ value


def later(seq: int) -> Array:
    """Minus infinity for the tokens that a token does not see."""
    return np.where(np.arange(seq)[None, :] > np.arange(seq)[:, None], -np.inf, 0.0)


def test_gpt2() -> None:
    graph, params, inputs = drawn(gpt2.get_workload(3, 7, 2, 24, 3, 31, 9), 31)
    plain = Plain(params)
    rows = []
    for ids in inputs["data"]:
        x = plain.p["token_weight"][ids] + plain.p["position_weight"][:7]
        for name in ("layer0", "layer1"):
            packed = plain.affine(plain.norm(x, f"{name}_attention_norm", 1e-5), f"{name}_qkv")
            parts = [heads_of(p, 3) for p in heads_of(packed, 3)]
            mixed = [attended(q / np.sqrt(8), k, v, later(7)) for q, k, v in zip(*parts, strict=True)]
            x = x + plain.affine(np.concatenate(mixed, axis=1), f"{name}_output")
            wide = plain.affine(plain.norm(x, f"{name}_ffn_norm", 1e-5), f"{name}_ffn_in")
            wide = wide * special.expit(2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))
            x = x + plain.affine(wide, f"{name}_ffn_out")
        rows.append(plain.norm(x, "norm", 1e-5))
    apart(np.stack(rows))
    close(graph, inputs, params, np.stack(rows))


def turned(x: Array) -> Array:
    """Coordinates `i` and `i + half` of each row as a complex number, turned by the angle of the row's position."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], axis=1)


def test_llama() -> None:
    graph, params, inputs = drawn(llama.get_workload(2, 9, 2, 24, 6, 2, 20, 31), 31)
    plain = Plain(params)
    rows = []
    for ids in inputs["data"]:
        x = plain.p["token_weight"][ids]
        for name in ("layer0", "layer1"):
            normed = plain.rms(x, f"{name}_attention_norm", 1e-5)
            query, key, value = (plain.affine(normed, f"{name}_{part}") for part in ("query", "key", "value"))
            keys, values = heads_of(key, 2), heads_of(value, 2)
            mixed = [
                attended(turned(q) / 2, turned(keys[head // 3]), values[head // 3], later(9))
                for head, q in enumerate(heads_of(query, 6))
            ]
            x = x + plain.affine(np.concatenate(mixed, axis=1), f"{name}_output")
            normed = plain.rms(x, f"{name}_ffn_norm", 1e-5)
            gate, up = plain.affine(normed, f"{name}_gate"), plain.affine(normed, f"{name}_up")
            x = x + plain.affine(gate * special.expit(gate) * up, f"{name}_down")
        rows.append(plain.rms(x, "norm", 1e-5))
    apart(np.stack(rows))
    close(graph, inputs, params, np.stack(rows))
