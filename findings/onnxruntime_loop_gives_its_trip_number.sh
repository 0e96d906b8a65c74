#!/usr/bin/env bash
# onnxruntime 1.32.0, onnx 1.23.2, Linux x86-64: a Loop whose body gives the number of its trip as a state.
#
# One would expect: trips are numbered from 0, so the state is 0 behind one trip, as it is where an Identity stands
# between the number and the state.
# What happens: the state is 1 behind one trip, and so one too many behind any: the number is counted on before it is
# read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.2.6 2> /dev/null
cat > "$folder/trips.py" <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
counted (int64 trips, int64 first) => (int64 last) {
    last = Loop (trips, , first) <body = body (int64 trip, bool on, int64 before) => (bool still, int64 STATE) { BODY }>
}"""


def last(trips: int, state: str, body: str) -> int:
    model = onnx.parser.parse_model(MODEL.replace("STATE", state).replace("BODY", body))
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"trips": np.array(trips), "first": np.array(-7)})
    return int(found)


for trips in (1, 2, 5):
    itself = last(trips, "trip", "still = Identity(on)")
    copied = last(trips, "after", "still = Identity(on) after = Identity(trip)")
    print(trips, "trips: the number itself", itself, "behind an Identity", copied)
    assert (itself, copied) == (trips, trips - 1)
PYTHON
"$folder/venv/bin/python" "$folder/trips.py"
