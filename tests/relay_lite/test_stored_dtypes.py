"""Graphs whose tensors are bfloat16 or of another stored dtype: from ONNX to C, files of parameters, refusals."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import relay_lite as relay
from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Var
from relay_lite.ir.param_dict import load_param_dict, save_param_dict
from relay_lite.ir.reference import run
from relay_lite.ir.types import TensorType

NAMES = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "uint16", "uint64"]


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, of two the even one, in float64."""
    exponent = np.floor(np.log2(np.abs(np.where(x == 0, 1, x))))
    step = 2.0 ** (exponent - 7)
    return np.asarray(np.rint(x / step) * step)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_node_of_bfloat16_rounds_once() -> None:
    """A product of 96 terms with a bias and a softmax: sums are not rounded, and results are within one step."""
    rng = np.random.default_rng(5)
    x, w, b = [rounded(rng.standard_normal(s)) for s in ((3, 96), (96, 20), (20,))]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"]), helper.make_node("Softmax", ["y"], ["p"], axis=-1)]
    values = [numpy_helper.from_array(a.astype("bfloat16"), n) for a, n in ((w, "w"), (b, "b"))]
    ends = [[helper.make_tensor_value_info(n, TensorProto.BFLOAT16, s) for n, s in group]
            for group in ([("x", (3, 96))], [("y", (3, 20)), ("p", (3, 20))])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", *ends, values)
    module, _ = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    network = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    network.run(x=x.astype("bfloat16"))
    y, p = [np.asarray(network.get_output(k)) for k in range(2)]
    assert y.dtype == p.dtype == np.dtype("bfloat16")
    np.testing.assert_allclose(y.astype(np.float64), rounded(x @ w + b), rtol=2.0**-7, atol=1e-4)
    power = np.exp(y.astype(np.float64))
    np.testing.assert_allclose(p.astype(np.float64), rounded(power / power.sum(1, keepdims=True)), rtol=2.0**-7)
    assert (y.astype(np.float64) == rounded(x @ w + b)).mean() > 0.95


@pytest.mark.parametrize("dtype", NAMES)
def test_files_keep_bits_and_dtypes(dtype: str) -> None:
    given = np.arange(-6, 6).reshape(3, 4).astype(dtype)
    found = load_param_dict(save_param_dict({"w": given}))["w"]
    assert found.dtype == given.dtype and found.tobytes() == given.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "int4"])
def test_graphs_say_what_to_cast_to(dtype: str) -> None:
    x = Var("x", TensorType((2, 2), dtype))
    with pytest.raises(GraphError, match=f"add: {dtype} is only stored: cast to (float32|int8) first"):
        str(call("add", x, x).type)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_every_width_and_beyond(bits: int, direction: str) -> None:
    kind, most = helper.np_dtype_to_tensor_dtype(np.dtype(f"uint{bits}")), (1 << bits) - 1
    numbers, amounts = [most, 1, most // 3, 0], [0, 1, bits - 1, bits, bits + 3]
    pairs = [(x, k) for x in numbers for k in amounts]
    values = [helper.make_tensor_value_info(n, kind, [len(pairs)]) for n in "xky"]
    graph = helper.make_graph(
        [helper.make_node("BitShift", ["x", "k"], ["y"], direction=direction)], "g", values[:2], values[2:]
    )
    module, _ = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    x, k = [np.array([p[i] for p in pairs], f"uint{bits}") for i in range(2)]
    got = run(module, {"x": x, "k": k})
    want = [(a << b) & most if direction == "LEFT" else a >> b for a, b in pairs]
    np.testing.assert_array_equal(got, np.array(want, f"uint{bits}"))
