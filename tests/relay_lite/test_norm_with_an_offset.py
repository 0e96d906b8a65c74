"""Normalisations of data whose mean is a thousand times their spread: no farther from float64 than onnxruntime."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import codegen_c
import relay_lite as relay
import te_lite as te
from relay_lite.frontend import from_onnx
from relay_lite.ir.reference import run
from te_lite import topi
from te_lite.meaning.reference import evaluate
from tests.relay_lite.onnx_models import Builder, onnxruntime_run

Array = np.ndarray
OFFSETS = (0.0, 1e3, -1e4)


def normalised(x: Array, axes: tuple[int, ...]) -> Array:
    wide = x.astype("f8")
    mean = wide.mean(axes, keepdims=True)
    return (wide - mean) / np.sqrt(((wide - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


def error(got: Array, want: Array) -> float:
    return float(np.abs(got - want).max())


def compiled(module: relay.IRModule, feeds: dict[str, Array]) -> Array:
    net = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    net.run(**feeds)
    return np.asarray(net.get_output(0))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("kind", [
    "LayerNormalization",
    *(pytest.param(k, marks=pytest.mark.long) for k in ("InstanceNormalization", "MeanVarianceNormalization")),
])  # fmt: skip
def test_onnx_normalisations(kind: str) -> None:
    for offset in OFFSETS:
        b = Builder(17)
        layer = kind == "LayerNormalization"
        x = b.input((16, 768) if layer else (2, 3, 24, 24))
        channels = 768 if layer else 3
        scale, bias = b.array(np.ones(channels), np.float32), b.array(np.zeros(channels), np.float32)
        b.feeds[x] += np.float32(offset)
        plain = kind == "MeanVarianceNormalization"
        model = b.model(b.add(kind, x) if plain else b.add(kind, x, scale, bias, epsilon=1e-5))
        want = normalised(b.feeds[x], (-1,) if layer else (0, 2, 3) if plain else (2, 3))
        module, _ = from_onnx(model, shape={x: b.feeds[x].shape})
        limit = 2 * error(onnxruntime_run(model, b.feeds)[0], want) + 2e-6
        assert error(compiled(module, b.feeds), want) <= limit, offset
        assert error(run(module, b.feeds), want) <= limit, offset


@pytest.mark.parametrize("offset", OFFSETS)
def test_tensor_expressions(offset: float) -> None:
    """topi's own layer and instance norm: one pass with the mean of the squares lost everything at 1,000."""
    data = (np.random.default_rng(0).standard_normal((4, 6, 8, 8)) + offset).astype("f4")
    ones, zeros = np.ones((6,), "f4"), np.zeros((6,), "f4")
    x, g, b = te.placeholder(data.shape, name="x"), te.placeholder((6,), name="g"), te.placeholder((6,), name="b")
    for out, axes in (
        (topi.nn.instance_norm(x, g, b, 1, (2, 3), 1e-5), (2, 3)),
        (topi.nn.layer_norm(x, g, b, 1, 1e-5), (1,)),
    ):
        want = normalised(data, axes)
        assert error(evaluate([x, g, b, out], {x: data, g: ones, b: zeros})[out], want) < 5e-6
        got = np.zeros(data.shape, "f4")
        codegen_c.build(te.lower(te.create_schedule(out.op), [x, g, b, out]))(data, ones, zeros, got)
        assert error(got, want) < 5e-6


@pytest.mark.parametrize("offset", OFFSETS)
def test_graph_operators(offset: float) -> None:
    data = (np.random.default_rng(0).standard_normal((2, 6, 16, 16)) + offset).astype("f4")
    x, v = relay.var("x", data.shape), relay.var("v", (6,))
    calls = {"instance_norm": relay.nn.instance_norm(x, v, v, center=False),
             "group_norm": relay.nn.group_norm(x, v, v, num_groups=3, center=False),
             "layer_norm": relay.nn.layer_norm(x, v, v, axis=1, center=False)}  # fmt: skip
    split = data.reshape(2, 3, 2, 16, 16)
    wants = {"instance_norm": normalised(data, (2, 3)), "group_norm": normalised(split, (2, 3, 4)).reshape(data.shape),
             "layer_norm": normalised(data, (1,))}  # fmt: skip
    for name, call in calls.items():
        module = relay.IRModule({"main": relay.Function([x, v], call)})
        feeds = {"x": data, "v": np.ones(6, "f4")}
        assert error(run(module, feeds), wants[name]) < 5e-6, name
        simplified = relay.transform.SimplifyInference()(module)
        assert error(run(simplified, feeds), wants[name]) < 5e-6, name
