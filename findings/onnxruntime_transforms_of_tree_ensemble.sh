#!/usr/bin/env bash
# onnxruntime 1.32.0, TreeEnsemble (ai.onnx.ml 5) with the attribute post_transform 1 and 2, Linux x86-64.
#
# One would expect: 1 is SOFTMAX and 2 is LOGISTIC, as the operator's page numbers them.
# What happens: 1 is LOGISTIC and 2 is SOFTMAX.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper


def tensor(values, dtype):
    return numpy_helper.from_array(np.array(values, dtype), "t")


def run(transform):
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, post_transform=transform, tree_roots=[0],
        nodes_featureids=[0], nodes_splits=tensor([0], "float32"), nodes_modes=tensor([0], "uint8"),
        nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1], nodes_falseleafs=[1],
        leaf_targetids=[0, 1], leaf_weights=tensor([1, 2], "float32"),
    )
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 5)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    x = np.array([[-1]], "float32")
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


scores = np.array([[1.0, 0.0]])
logistic = 1 / (1 + np.exp(-scores))
softmax = np.exp(scores) / np.exp(scores).sum()
print("of scores 1 and 0: post_transform 1 gives", run(1).round(3).tolist(), "and 2 gives", run(2).round(3).tolist())
assert np.abs(run(1) - logistic).max() < 1e-6 and np.abs(run(2) - softmax).max() < 1e-6
PYTHON
