#!/usr/bin/env bash
# onnx 1.23.2, Linux x86-64: a Loop with a trip count and no condition in onnx.reference.
#
# One would expect: as the page of Loop says, it is a for loop of so many trips.
# What happens: no trip is run, and the states are what they were at the beginning; with a condition that is true all
# trips are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check onnx==1.23.2 numpy==2.2.6 2> /dev/null
cat > "$folder/trips.py" <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
doubled (int64 trips, bool yes, float first) => (float last) {
    last = Loop (trips, CONDITION, first) <body = body (int64 trip, bool on, float before) => (bool still, float after) {
        still = Identity(on) after = Add(before, before) }>
}"""


def last(condition: str) -> float:
    model = onnx.parser.parse_model(MODEL.replace("CONDITION", condition))
    onnx.checker.check_model(model, full_check=True)
    given = {"trips": np.array(3), "yes": np.array(True), "first": np.array(1, np.float32)}
    return float(ReferenceEvaluator(model).run(None, given)[0])


print("without a condition", last(""), "with one", last("yes"))
assert (last(""), last("yes")) == (1.0, 8.0)
PYTHON
"$folder/venv/bin/python" "$folder/trips.py"
