"""What the import refuses, each in one sentence that names the node; and how models reach it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.relay_lite.onnx_models import FAMILIES, Builder, compare, onnxruntime_run, operators


def refusal(model: Any, **options: Any) -> str:
    """The sentence; it is one line without the traces of other tools."""
    with pytest.raises(GraphError) as caught:
        from_onnx(model, **options)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


def small(opset: int = 13) -> tuple[Builder, onnx.ModelProto]:
    b = Builder(opset)
    return b, b.model(b.add("Relu", b.conv(b.input((2, 3, 6, 5)), 3, 4, 3, bias=True)))


def test_all_unsupported_operators_are_named_with_their_nodes() -> None:
    b = Builder(13)
    x = b.input((2, 3))
    a = b.add("Foo", b.add("Relu", x))
    c = b.add("Multinomial", a)
    out = b.add("Foo", b.add("Bar", c, domain="com.microsoft"))
    names = [n.name for n in b.nodes]
    text = refusal(b.model(out))
    assert f"Foo ('{names[1]}', '{names[4]}')" in text and f"Multinomial ('{names[2]}')" in text
    assert f"com.microsoft::Bar ('{names[3]}')" in text and "Relu" not in text


def test_nodes_that_no_output_needs_are_not_read() -> None:
    b = Builder(13)
    x = b.input((2, 3))
    b.add("Foo", x)
    module, _ = from_onnx(b.model(b.add("Relu", x)))
    assert operators(module) == ["nn.relu"]


@pytest.mark.parametrize("opset", [0, 26, 99])
def test_versions(opset: int) -> None:
    assert f"opset={opset}" in refusal(small()[1], opset=opset)


def test_the_opset_may_be_said_by_the_caller() -> None:
    b = Builder(13)
    model = b.model(b.add("Softmax", b.input((2, 3, 4)), axis=1))
    assert operators(from_onnx(model)[0]) == ["nn.softmax"]
    assert "reshape" in operators(from_onnx(model, opset=11)[0])


@pytest.mark.parametrize("given", ["path", "Path", "bytes", "proto"])
def test_a_model_may_be_a_path_bytes_or_a_proto(given: str, tmp_path: Path) -> None:
    b, model = small()
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    value = {"path": str(path), "Path": path, "bytes": path.read_bytes(), "proto": model}[given]
    module, params = from_onnx(value)
    np.testing.assert_allclose(run(module, b.feeds), onnxruntime_run(model, b.feeds)[0], rtol=0, atol=1e-5)
    assert params == {}


def test_weights_beside_the_model_are_found_by_the_path(tmp_path: Path) -> None:
    b = Builder(13)
    model = b.model(FAMILIES["resnet"](b))
    want = onnxruntime_run(model, b.feeds)[0]
    path = tmp_path / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="net.weights", size_threshold=0)
    module, _ = from_onnx(path)
    np.testing.assert_allclose(run(module, b.feeds), want, rtol=0, atol=1e-4)
    assert "its values are in another file" in refusal(path.read_bytes())
    (tmp_path / "net.weights").unlink()
    assert "must be readable" in refusal(path)


@pytest.mark.parametrize("bad", [b"no model", b"\x08\x07\x12", 3, None, "missing.onnx"])
def test_what_is_no_model(bad: Any) -> None:
    assert refusal(bad).startswith("ONNX model")


def test_a_cut_model_is_refused_or_read_never_worse() -> None:
    """A file cut at any place is a GraphError, or still a whole model."""
    model = small()[1]
    data = model.SerializeToString()
    rng = np.random.default_rng(0)
    refused = []
    for end in rng.integers(0, len(data), 60):
        try:
            from_onnx(data[: int(end)])
        except GraphError as error:
            refused.append(str(error))
    assert refused and not any("\n" in sentence for sentence in refused)


def test_random_bytes_in_a_model_are_refused_or_read_never_worse() -> None:
    model = small()[1]
    data = bytearray(model.SerializeToString())
    rng = np.random.default_rng(1)
    refused = []
    for _ in range(150):
        spoiled = bytearray(data)
        for at in rng.integers(0, len(data), 2):
            spoiled[int(at)] = int(rng.integers(256))
        try:
            from_onnx(bytes(spoiled))
        except GraphError as error:
            refused.append(str(error))
    assert refused and not any("\n" in sentence for sentence in refused)


def test_open_extents_are_asked_for() -> None:
    b = Builder(13)
    x = b.input((2, 3), declared=["batch", 3])
    model = b.model(b.add("Relu", x))
    assert f"shape={{'{x}': (...)}}" in refusal(model)
    compare(model, b.feeds, shape={x: (2, 3)})
    assert "must have as many extents as the model's" in refusal(model, shape={x: (2, 3, 1)})
    assert "unknown=['y']" in refusal(model, shape={x: (2, 3), "y": (1,)})
    assert "unknown=['y']" in refusal(model, shape={x: (2, 3)}, dtype={"y": "float32"})


def test_inputs_that_are_initializers_are_weights() -> None:
    b, model = small()
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    module = compare(model, b.feeds, shape=None)
    assert len(module["main"].params) == 1


def test_functions_of_the_model_are_written_out() -> None:
    node = helper.make_node("Relu", ["a"], ["b"])
    twice = helper.make_node("Add", ["b", "b"], ["c"])
    function = helper.make_function("own", "Twice", ["a"], ["c"], [node, twice], [helper.make_opsetid("", 17)])
    b = Builder(17)
    x = b.input((2, 3))
    model = b.model(b.add("Twice", x, domain="own"))
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert operators(compare(model, b.feeds)) == ["nn.relu", "add"]


def node_of(op: str, *shapes: Any, opset: int = 13, **attrs: Any) -> Callable[[], onnx.ModelProto]:
    """A model of one node: inputs are shapes, or arrays that become initializers, or None."""

    def make() -> onnx.ModelProto:
        b = Builder(opset)
        inputs = [
            "" if s is None else b.array(s) if isinstance(s, np.ndarray) else b.input(s)
            for s in shapes
        ]  # fmt: skip
        return b.model(b.add(op, *inputs, **attrs))

    return make


X = (2, 4, 6, 5)
MALFORMED = {
    "Conv no weight": node_of("Conv", X),
    "Conv rank": node_of("Conv", X, (4, 4, 3)),
    "Conv channels": node_of("Conv", X, (4, 3, 3, 3)),
    "Conv group": node_of("Conv", X, (4, 2, 3, 3), group=3),
    "Conv kernel_shape": node_of("Conv", X, (4, 4, 3, 3), kernel_shape=[2, 3]),
    "Conv strides": node_of("Conv", X, (4, 4, 3, 3), strides=[1]),
    "Conv strides zero": node_of("Conv", X, (4, 4, 3, 3), strides=[0, 1]),
    "Conv pads": node_of("Conv", X, (4, 4, 3, 3), pads=[0, 1]),
    "Conv negative pads": node_of("Conv", X, (4, 4, 3, 3), pads=[0, 0, -1, 0]),
    "Conv auto_pad": node_of("Conv", X, (4, 4, 3, 3), auto_pad="BOTH"),
    "Conv bias": node_of("Conv", X, (4, 4, 3, 3), (3,)),
    "Conv window": node_of("Conv", X, (4, 4, 9, 9)),
    "Conv attribute type": node_of("Conv", X, (4, 4, 3, 3), strides=1),
    "ConvTranspose output_padding": node_of("ConvTranspose", X, (4, 2, 3, 3), output_padding=[1, 1]),
    "ConvTranspose output_shape": node_of("ConvTranspose", X, (4, 2, 3, 3), output_shape=[99, 99]),
    "ConvTranspose channels": node_of("ConvTranspose", X, (3, 2, 3, 3)),
    "MaxPool kernel": node_of("MaxPool", X),
    "MaxPool rank": node_of("MaxPool", (2, 3), kernel_shape=[2]),
    "Gemm extents": node_of("Gemm", (2, 3), (4, 5)),
    "Gemm C": node_of("Gemm", (2, 3), (3, 5), (4,)),
    "Gemm rank": node_of("Gemm", (2, 3), (3,)),
    "MatMul extents": node_of("MatMul", (2, 3), (4, 5)),
    "MatMul batch": node_of("MatMul", (2, 2, 3), (3, 3, 5)),
    "MatMul scalar": node_of("MatMul", (), (3, 5)),
    "Add shapes": node_of("Add", (2, 3), (4,)),
    "Relu nothing": node_of("Relu"),
    "Softsign nothing": node_of("Softsign"),
    "Softsign more": node_of("Softsign", (2, 3), (2, 3)),
    "ThresholdedRelu attribute": node_of("ThresholdedRelu", (2, 3), beta=1.0),
    "ThresholdedRelu attribute type": node_of("ThresholdedRelu", (2, 3), alpha="large"),
    "CastLike nothing": node_of("CastLike", opset=18),
    "SequenceMap body": node_of("SequenceMap", (2, 3), opset=18),
    "Softmax axis": node_of("Softmax", (2, 3), axis=2),
    "Reshape size": node_of("Reshape", (2, 3), np.array([4, 2])),
    "Reshape floats": node_of("Reshape", (2, 3), np.array([3.0, 2.0], np.float32)),
    "Reshape two left": node_of("Reshape", (2, 3), np.array([-1, -1])),
    "Reshape beyond": node_of("Reshape", (2, 3), np.array([2, 3, 0])),
    "Squeeze extent": node_of("Squeeze", (2, 3), np.array([0])),
    "Unsqueeze none": node_of("Unsqueeze", (2, 3)),
    "Unsqueeze twice": node_of("Unsqueeze", (2, 3), np.array([1, -3])),
    "Transpose perm": node_of("Transpose", (2, 3), perm=[0, 0]),
    "Concat axis": node_of("Concat", (2, 3), (2, 3)),
    "Concat shapes": node_of("Concat", (2, 3), (3, 3), axis=1),
    "Split sizes": node_of("Split", (2, 6), np.array([2, 3]), axis=1),
    "Slice lengths": node_of("Slice", (2, 6), np.array([0, 1]), np.array([3])),
    "Slice steps": node_of("Slice", (2, 6), np.array([0]), np.array([3]), np.array([1]), np.array([0])),
    "Gather axis": node_of("Gather", (2, 6), np.array([0]), axis=3),
    "Gather index": node_of("Gather", (2, 6), np.array([2]), axis=0),
    "Expand": node_of("Expand", (2, 3), np.array([4, 3])),
    "Tile": node_of("Tile", (2, 3), np.array([2])),
    "Pad count": node_of("Pad", (2, 3), np.array([1, 1])),
    "Pad mode": node_of("Pad", (2, 3), np.array([1, 1, 0, 0]), mode="around"),
    "Cast to": node_of("Cast", (2, 3)),
    "Cast text": node_of("Cast", (2, 3), to=TensorProto.STRING),
    "Cast complex64": node_of("Cast", (2, 3), to=TensorProto.COMPLEX64),
    "Constant": node_of("Constant"),
    "Constant text": node_of("Constant", value_string="a"),
    "Range": node_of("Range", np.array(0), np.array(3), np.array(0)),
    "ReduceSum axis": node_of("ReduceSum", (2, 3), np.array([2])),
    "ReduceSum twice": node_of("ReduceSum", (2, 3), np.array([0, -2])),
    "BatchNormalization": node_of("BatchNormalization", X, (4,), (4,), (4,), (3,)),
    "LayerNormalization": node_of("LayerNormalization", X, (4,), opset=17),
    "Resize both": node_of("Resize", X, None, np.ones(4, np.float32), np.array([2, 4, 6, 5])),
    "Resize neither": node_of("Resize", X),
    "Resize count": node_of("Resize", X, None, np.ones(3, np.float32)),
    "Resize mode": node_of("Resize", X, None, np.ones(4, np.float32), mode="area"),
    "Resize crop": node_of("Resize", X, None, np.ones(4, np.float32),
                           coordinate_transformation_mode="tf_crop_and_resize"),
    "Resize unknown": node_of("Resize", X, None, np.ones(4, np.float32), opset=18, bogus=1),
    "Relu unknown": node_of("Relu", X, bogus=3),
    "SpaceToDepth later": node_of("SpaceToDepth", (1, 2, 4, 4), blocksize=2, mode="CRD"),
    "Relu input": node_of("Relu", X, X),
    "Resize to nothing": node_of("Resize", X, None, np.array([1, 1, 0.1, 1], np.float32)),
    "DepthToSpace": node_of("DepthToSpace", X, blocksize=3),
    "Dropout training": node_of("Dropout", X, np.array(0.5, np.float32), np.array(True)),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_node_is_named(name: str) -> None:
    model = MALFORMED[name]()
    text = refusal(model)
    assert text.startswith(f"ONNX {name.split()[0]} {model.graph.node[0].name!r}: "), text


def test_graphs_that_do_not_hang_together() -> None:
    b = Builder(13)
    x = b.input((2, 3))
    assert "inputs must be defined by an earlier node, got 'nowhere'" in refusal(b.model(b.add("Relu", "nowhere")))
    y = b.add("Relu", x)
    b.nodes.append(helper.make_node("Relu", [x], [y], name="again"))
    assert "every name must be defined once" in refusal(b.model(y))
    assert "output of the graph" in refusal(Builder(13).model("nothing"))
    model = b.model(y)
    del model.graph.output[:]
    assert "at least one output" in refusal(model)


def test_an_initializer_that_is_too_short() -> None:
    _, model = small()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-8]
    assert "initializer 'weight_" in refusal(model) and "the data must fit the shape" in refusal(model)


def test_relay_lite_works_without_onnx(tmp_path: Path) -> None:
    """With `onnx` hidden, the package imports, and the import of a model says what to install."""
    (tmp_path / "onnx.py").write_text("raise ImportError('hidden')\n")
    code = (
        "import relay_lite\n"
        "try:\n    relay_lite.frontend.from_onnx('net.onnx')\n"
        "except relay_lite.GraphError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code]
    root = Path(__file__).parent.parent.parent
    env = {"PYTHONPATH": f"{tmp_path}:{root}", "PATH": ""}
    result = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=root)
    assert "needs the package onnx" in result.stdout and result.stdout.count("\n") == 1, result.stderr


def test_onnx_is_not_imported_with_the_package() -> None:
    code = "import sys, relay_lite; sys.exit('onnx' in sys.modules)"
    root = Path(__file__).parent.parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
