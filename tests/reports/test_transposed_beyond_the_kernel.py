"""Transposed convolutions whose pads reach beyond the kernel: they cut off more of the result."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Function, Var
from relay_lite.ir.types import TensorType
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_graph, of_onnx
from tests.reports.test_dilated_transposed import scattered

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 7), (2, 3, 2), {"strides": (2,), "pads": (3, 4)}),
    ((1, 2, 7), (2, 3, 1), {"strides": (1,), "pads": (0, 2)}),
    ((2, 2, 4, 5), (2, 3, 1, 3), {"strides": (2, 1), "pads": (1, 2, 3, 3)}),
    ((2, 2, 4, 5), (2, 3, 2, 3), {"strides": (3, 2), "pads": (2, 5, 3, 1), "output_padding": (2, 1)}),
    ((1, 4, 5, 5), (4, 1, 2, 2), {"strides": (1, 2), "pads": (3, 0, 0, 4), "group": 2}),
    ((1, 2, 5, 4), (2, 2, 2, 3), {"strides": (2, 1), "dilations": (2, 1), "pads": (4, 3, 0, 1)}),
    ((1, 2, 3, 4, 3), (2, 2, 1, 2, 2), {"strides": (2, 1, 2), "pads": (1, 0, 2, 2, 2, 0)}),
]


def wanted(x: Array, w: Array, attrs: dict[str, Any]) -> Array:
    n = x.ndim - 2
    whole = scattered(x, w, attrs["strides"], attrs.get("dilations", (1,) * n), attrs.get("group", 1))
    extra, pads = attrs.get("output_padding", (0,) * n), attrs["pads"]
    whole = np.pad(whole, [(0, 0), (0, 0), *[(0, e) for e in extra]])
    inside: Any = [slice(b, d - e) for b, d, e in zip(pads[:n], whole.shape[2:], pads[n:], strict=True)]
    return np.asarray(whole[(slice(None), slice(None), *inside)])


def drawn(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_models(case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]) -> None:
    shape, kernel, attrs = case
    x, w = drawn(shape, 1), drawn(kernel, 2)
    for who, (got,) in nonempty(of_onnx(node_model("ConvTranspose", [x, w], **attrs), [x, w])):
        np.testing.assert_array_equal(got, wanted(x, w, attrs), who)


OPERATORS = {1: relay.nn.conv1d_transpose, 2: relay.nn.conv2d_transpose, 3: relay.nn.conv3d_transpose}


@pytest.mark.parametrize("case", [CASES[k] for k in (0, 4, 6)], ids=str)
def test_operators(case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]) -> None:
    shape, kernel, attrs = case
    x, w = drawn(shape, 1), drawn(kernel, 2)
    data, weight = (Var(name, TensorType(a.shape, "float32")) for name, a in (("x", x), ("w", w)))
    n, groups = len(shape) - 2, attrs.get("group", 1)
    out = OPERATORS[n](
        data, weight, strides=attrs["strides"], padding=attrs["pads"], groups=groups,
        output_padding=attrs.get("output_padding", (0,) * n),
    )  # fmt: skip
    for who, (got,) in nonempty(of_graph(Function((data, weight), out), [x, w])):
        np.testing.assert_array_equal(got, wanted(x, w, attrs), who)


def test_channels_last() -> None:
    x, w, attrs = drawn((1, 2, 5, 4), 3), drawn((2, 3, 2, 2), 4), {"strides": (2, 1), "pads": (3, 0, 1, 2)}
    data = Var("x", TensorType((1, 5, 4, 2), "float32"))
    weight = Var("w", TensorType(w.shape, "float32"))
    out = relay.nn.conv2d_transpose(data, weight, (2, 1), attrs["pads"], data_layout="NHWC")
    for who, (got,) in nonempty(of_graph(Function((data, weight), out), [x.transpose(0, 2, 3, 1).copy(), w])):
        np.testing.assert_array_equal(got.transpose(0, 3, 1, 2), wanted(x, w, attrs), who)


def test_nothing_is_left() -> None:
    x, w = drawn((1, 1, 3), 5), drawn((1, 1, 2), 6)
    with pytest.raises(GraphError, match="pads must leave something of the result"):
        list(of_onnx(node_model("ConvTranspose", [x, w], pads=[4, 0]), [x, w]))
    data, weight = (Var(name, TensorType(a.shape, "float32")) for name, a in (("x", x), ("w", w)))
    with pytest.raises(GraphError, match="nothing is left of the result"):
        relay.nn.conv1d_transpose(data, weight, padding=(0, 4))
