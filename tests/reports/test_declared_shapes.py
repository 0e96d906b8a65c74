"""Shapes that a model declares and its nodes do not depend on may be others (`centerface`: any size of a picture)."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
from onnx import helper, numpy_helper

import relay_lite as relay
from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError


def detector(fixed: bool) -> Any:
    """Two convolutions, the input declared as 10 small pictures; `fixed`: then a product that needs this size."""
    rng = np.random.default_rng(0)
    w = [rng.standard_normal(s).astype("float32") for s in ((4, 3, 3, 3), (2, 4, 1, 1), (2 * 16 * 16, 5))]
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
             helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Conv", ["b", "w1"], ["c"]),
             helper.make_node("Flatten", ["c"], ["f"]), helper.make_node("MatMul", ["f", "w2"], ["m"])]  # fmt: skip
    out, used = ("m", nodes) if fixed else ("c", nodes[:3])
    ends = [[helper.make_tensor_value_info(n, 1, s)] for n, s in (("x", [10, 3, 32, 32]), (out, None))]
    values = [numpy_helper.from_array(a, f"w{k}") for k, a in enumerate(w[: 3 if fixed else 2])]
    model = helper.make_model(helper.make_graph(used, "g", *ends, values), opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    return model


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("shape", [(10, 3, 32, 32), (1, 3, 32, 32), (1, 3, 48, 20), (3, 3, 7, 9)])
def test_other_sizes_are_compiled_and_right(shape: tuple[int, ...]) -> None:
    model, x = detector(False), np.random.default_rng(1).standard_normal(shape).astype("float32")
    module, _ = from_onnx(model, shape={"x": shape})
    network = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    network.run(x=x)
    opened = detector(False)
    for d, name in enumerate("nchw"):
        opened.graph.input[0].type.tensor_type.shape.dim[d].dim_param = name
    want = onnxruntime.InferenceSession(opened.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(np.asarray(network.get_output(0)), want, rtol=1e-4, atol=1e-5)


def test_a_graph_that_depends_on_the_size_is_refused_with_what_is_declared() -> None:
    from_onnx(detector(True), shape={"x": (1, 3, 32, 32)})
    with pytest.raises(GraphError, match=r"MatMul.*; the model declares other shapes, x: \(10, 3, 32, 32\)"):
        from_onnx(detector(True), shape={"x": (1, 3, 48, 20)})


def test_the_rank_is_that_of_the_model() -> None:
    with pytest.raises(GraphError, match="must have as many extents as the model's, got given="):
        from_onnx(detector(False), shape={"x": (1, 3, 32)})
