#!/usr/bin/env bash
# ml_dtypes 0.6.0 with numpy 2.4.6.
#
# One would expect: np.sort puts NaN last and the numbers in front of it in order, as NumPy documents for floats and
# does for float16, float32 and float64.
# What happens: for bfloat16 and the float8 types of ml_dtypes a NaN is neither before nor behind any number, so numbers
# do not pass it: the result of np.sort is not sorted, whatever `kind` is asked for; np.argsort, np.unique and
# np.partition go with it.  Without a NaN they are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np

x = [3.0, float("nan"), 1.0, 2.0, float("nan"), 0.0]
print("float16          ", np.sort(np.array(x, np.float16)))
for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    for how in ("quicksort", "stable", "heapsort"):
        found = np.sort(np.array(x, kind), kind=how).astype(np.float32)
        print(f"{kind.__name__:17}", found, how)
        numbers = found[~np.isnan(found)]
        assert list(numbers) != sorted(numbers), "numbers are in order now"
    without = np.sort(np.array([3.0, 1.0, 2.0, 0.0], kind)).astype(np.float32)
    assert list(without) == [0.0, 1.0, 2.0, 3.0]
assert np.array_equal(np.sort(np.array(x, np.float16))[:4], [0, 1, 2, 3])
PYTHON
