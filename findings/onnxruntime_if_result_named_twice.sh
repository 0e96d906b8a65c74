#!/usr/bin/env bash
# onnxruntime 1.32.0, onnx 1.23.2, Linux x86-64: a branch of an If that names one tensor as two of its results.
#
# One would expect: both results are that tensor (onnx.checker accepts the model, and a graph may list an output twice).
# What happens: the first of the two is what was in fresh memory, mostly zeros; only the last one is written.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 2> /dev/null
cat > "$folder/twice.py" <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime

model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[3] x) => (float[3] y, float[3] z) {
  y, z = If (c) <then_branch = t () => (float[3] a, float[3] a) { a = Neg(x) },
                 else_branch = e () => (float[3] b, float[3] d) { b = Abs(x) d = Abs(x) }> }""")
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString())
first, second = session.run(None, {"c": np.array(True), "x": np.array([1, 2, 3], np.float32)})
print("first", first, "second", second)
assert second.tolist() == [-1, -2, -3] and first.tolist() != second.tolist()
PYTHON
"$folder/venv/bin/python" "$folder/twice.py"
