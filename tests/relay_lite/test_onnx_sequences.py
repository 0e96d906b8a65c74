"""Sequences of tensors, which are taken apart when the model is read, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.nonempty import nonempty
from tests.relay_lite.onnx_models import Builder, compare, onnxruntime_run


@pytest.mark.parametrize("seed", range(8))
def test_a_sequence_taken_apart_and_joined(seed: int) -> None:
    """Cut into parts of drawn extents, one put in, one taken out, positions from either end; joined, and counted."""
    rng, b = np.random.default_rng(seed), Builder(13, seed)
    x, axis = b.input((6, 6, 2)), int(rng.integers(-3, 2))
    split = (b.array(2, np.int64), b.ints(2, 2, 2))[seed % 2] if axis != -1 else b.array(1, np.int64)
    parts = b.add("SplitToSequence", x, split, axis=axis)
    first = b.add("SequenceAt", parts, b.array(-1, np.int64))
    more = b.add(
        "SequenceInsert", parts, b.add("Exp", first), *([b.array(int(rng.integers(-2, 3)), np.int64)] * (seed % 3 > 0))
    )
    less = b.add("SequenceErase", more, *([b.array(int(rng.integers(-2, 2)), np.int64)] * (seed % 3 > 1)))
    y = b.add("ConcatFromSequence", less, axis=int(rng.integers(-3, 3)), new_axis=seed // 2 % 2)
    count = b.add("SequenceLength", more)
    compare(b.model(y, count, declared={count: TensorProto.INT64}), b.feeds)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_single_slices_stacked_by_a_loop(keepdims: int) -> None:
    """A Loop that reads one tensor of a sequence a trip and builds another."""
    b = Builder(13)
    parts = b.add("SplitToSequence", b.input((5, 3)), keepdims=keepdims)
    other = b.add("SequenceConstruct", b.add("Neg", b.add("SequenceAt", parts, b.array(0, np.int64))))
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    flags = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", TensorProto.INT64), ("go", TensorProto.BOOL),
             ("on", TensorProto.BOOL))]  # fmt: skip
    states = [helper.make_value_info(n, kind) for n in ("s", "t")]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("SequenceAt", [parts, "i"], ["v"]),
             helper.make_node("SequenceInsert", ["s", "v"], ["t"])]  # fmt: skip
    body = helper.make_graph(nodes, "body", [*flags[:2], states[0]], [flags[2], states[1]])
    made = b.add("Loop", b.array(4, np.int64), "", other, body=body)
    compare(b.model(b.add("ConcatFromSequence", made, axis=0, new_axis=1)), b.feeds)


def with_sequences() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model whose input and output are sequences: two tensors, and their sum put in front."""
    rng = np.random.default_rng(3)
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    values = [helper.make_value_info(n, helper.make_sequence_type_proto(tensor)) for n in ("x", "y")]
    steps = [("SequenceAt", ["x", "zero"], "a"), ("SequenceAt", ["x", "last"], "b"), ("Add", ["a", "b"], "c"),
             ("SequenceInsert", ["x", "c", "zero"], "y")]  # fmt: skip
    nodes = [helper.make_node(op, names, [out]) for op, names, out in steps]
    numbers = [helper.make_tensor(n, TensorProto.INT64, [], [v]) for n, v in (("zero", 0), ("last", -1))]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], numbers)
    feeds = {"x": [rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (3,))]}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), feeds


def test_sequences_as_inputs_and_outputs() -> None:
    model, feeds = with_sequences()
    module, _ = from_onnx(model, {"x": [v.shape for v in feeds["x"]]})
    got = run(module, {f"x[{k}]": v for k, v in enumerate(feeds["x"])})
    for mine, theirs in nonempty(zip(got, onnxruntime_run(model, feeds)[0], strict=True)):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("shape", [None, {"x": (2, 3)}])
def test_a_sequence_of_unknown_length_is_refused(shape: Any) -> None:
    with pytest.raises(GraphError, match=r"ONNX input 'x': a sequence needs the shapes of its tensors, give shape="):
        from_onnx(with_sequences()[0], shape)


def test_a_sequence_is_no_tensor() -> None:
    b = Builder(13)
    parts = b.add("SequenceConstruct", b.input((2, 3)))
    with pytest.raises(GraphError, match="ONNX Relu"):
        from_onnx(b.model(b.add("Relu", parts)))
    with pytest.raises(GraphError, match=r"ONNX SequenceAt .*positions must be in -1 to 0, got position=3"):
        from_onnx(b.model(b.add("SequenceAt", parts, b.array(3, np.int64))))
