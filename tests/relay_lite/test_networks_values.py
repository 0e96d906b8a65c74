"""Networks of dense layers against the same thing written in plain NumPy, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from relay_lite import reference
from relay_lite.testing import bert, lstm, mlp
from tests.relay_lite.plain import Arrays, Plain, close

special = pytest.importorskip("scipy.special")


def scrambled(params: Arrays, rng: np.random.Generator) -> Arrays:
    """The parameters, those that are constants replaced by random ones."""

    def one(name: str, value: np.ndarray) -> np.ndarray:
        around = 1.0 if name.endswith("gamma") else 0.0
        return value if name.endswith("weight") else (around + rng.uniform(-0.4, 0.4, value.shape)).astype("float32")

    return {name: one(name, value) for name, value in params.items()}


class Bert(Plain):
    """A published BERT encoder layer after layer, one head of one sequence at a time."""

    def __init__(self, params: Arrays, heads: int) -> None:
        super().__init__(params)
        self.heads = heads

    def attention(self, x: np.ndarray, name: str, mask: np.ndarray) -> np.ndarray:
        query, key, value = (self.affine(x, f"{name}_{part}") for part in ("query", "key", "value"))
        width = x.shape[-1] // self.heads
        out = np.full_like(x, np.nan)
        for head in range(self.heads):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / np.sqrt(width) + mask
            out[:, part] = special.softmax(scores, axis=1) @ value[:, part]
        return self.affine(out, f"{name}_output")

    def layer(self, x: np.ndarray, name: str, mask: np.ndarray) -> np.ndarray:
        x = self.norm(x + self.attention(x, name, mask), f"{name}_attention_norm", 1e-12)
        wide = self.affine(x, f"{name}_ffn_in")
        wide = wide * special.ndtr(wide)
        return self.norm(x + self.affine(wide, f"{name}_ffn_out"), f"{name}_ffn_norm", 1e-12)


SIZE = {"batch_size": 2, "seq_len": 7, "num_layers": 3, "hidden": 24, "num_heads": 3, "ffn": 40}


def test_bert_encoder() -> None:
    rng = np.random.default_rng(1)
    graph, params = bert.get_workload(**SIZE)
    params = scrambled(params, rng)
    data = rng.normal(0, 1, (2, 7, 24)).astype("float32")
    plain = Bert(params, 3)
    expected = data.astype("float64")
    for index in range(3):
        expected = np.stack([plain.layer(x, f"layer{index}", np.zeros(7)) for x in expected])
    close(graph, {"data": data}, params, expected)


def test_bert_from_tokens() -> None:
    """Padding is masked: what is behind it changes nothing in front of it."""
    rng = np.random.default_rng(2)
    graph, params = bert.get_workload(**SIZE, vocab_size=31)
    params = scrambled(params, rng)
    ids = rng.integers(0, 31, (2, 7)).astype("int32")
    segments = rng.integers(0, 2, (2, 7)).astype("int32")
    mask = np.zeros((2, 7), "float32")
    mask[0, 5:] = -1e9
    plain = Bert(params, 3)
    expected = []
    for row in range(2):
        tables = plain.p
        x = tables["token_weight"][ids[row]] + tables["position_weight"] + tables["segment_weight"][segments[row]]
        x = plain.norm(x, "embedding_norm", 1e-12)
        for index in range(3):
            x = plain.layer(x, f"layer{index}", mask[row])
        expected.append(x)
    inputs = {"data": ids, "segments": segments, "mask": mask}
    close(graph, inputs, params, np.stack(expected))
    other = ids.copy()
    other[0, 5:] = (ids[0, 5:] + 1) % 31
    before, after = (reference.run(graph, inputs | {"data": tokens}, params) for tokens in (ids, other))
    assert np.array_equal(before[0, :5], after[0, :5]) and not np.array_equal(before[0, 5:], after[0, 5:])


def test_lstm() -> None:
    rng = np.random.default_rng(3)
    graph, params = lstm.get_workload(4, 5, batch_size=3)
    params = scrambled(params, rng)
    data = rng.normal(0, 1, (3, 5)).astype("float32")
    plain = Plain(params)
    hidden = memory = np.zeros((3, 5))
    for step in range(4):
        gates = plain.affine(data, f"i2h_{step}") + plain.affine(hidden, f"h2h_{step}")
        take, forget, content, out = gates[:, :5], gates[:, 5:10], gates[:, 10:15], gates[:, 15:]
        memory = special.expit(forget) * memory + special.expit(take) * np.tanh(content)
        hidden = special.expit(out) * np.tanh(memory)
    close(graph, {"data": data}, params, hidden)


def test_mlp() -> None:
    rng = np.random.default_rng(4)
    graph, params = mlp.get_workload(3, image_shape=(5, 7, 1))
    params = scrambled(params, rng)
    data = rng.normal(0, 1, (3, 5, 7, 1)).astype("float32")
    plain = Plain(params)
    x = data.reshape(3, 35)
    for name in ("fc1", "fc2"):
        x = np.maximum(plain.affine(x, name), 0)
    close(graph, {"data": data}, params, special.softmax(plain.affine(x, "fc3"), axis=1))
