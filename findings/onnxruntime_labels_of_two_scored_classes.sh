#!/usr/bin/env bash
# onnxruntime 1.32.0, TreeEnsembleClassifier (ai.onnx.ml) with two classes whose leaves score both, Linux x86-64.
#
# One would expect: the label of the class with the larger score, one of `classlabels_int64s`.
# What happens: the label is 1 wherever the score of the second class is above 0, else 0, whatever the labels are.
# Exporters that score only the first class of two are not touched by it.  Nor is NaN led by
# `nodes_missing_value_tracks_true` at a BRANCH_NEQ: it is not equal to the threshold, so it goes where true goes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import helper


def run(op, outputs, x, **attrs):
    node = helper.make_node(
        op, ["x"], outputs, domain="ai.onnx.ml", nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0] * 3, nodes_values=[0.0] * 3, nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        **attrs,
    )
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})


label, scores = run(
    "TreeEnsembleClassifier", ["label", "scores"], np.array([[-1], [1]], "float32"),
    nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], class_treeids=[0] * 4, class_nodeids=[1, 1, 2, 2],
    class_ids=[0, 1, 0, 1], class_weights=[0.2, 0.8, 0.6, 0.4], classlabels_int64s=[5, 9],
)
print("scores", scores.round(2).tolist(), "labels", label.tolist(), "of 5 and 9")
assert label.tolist() == [1, 1] and scores.argmax(axis=1).tolist() == [1, 0]
(said,) = run(
    "TreeEnsembleRegressor", ["y"], np.array([[np.nan]], "float32"), nodes_modes=["BRANCH_NEQ", "LEAF", "LEAF"],
    nodes_missing_value_tracks_true=[0, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
    target_weights=[10.0, 20.0], n_targets=1,
)
print("NaN that tracks false at BRANCH_NEQ: true says 10, false 20, it is", said.item())
assert said.item() == 10
PYTHON
