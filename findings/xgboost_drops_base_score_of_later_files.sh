#!/usr/bin/env bash
# xgboost-cpu 3.0.5 reading a model that 3.2.0 saved, Linux x86-64.
#
# One would expect: the older release says that the file is of a later one, or predicts what the later one predicts.
# What happens: it reads the file without a word and predicts with another base score, so that every prediction of a
# regression is off by the same amount, about the mean of the targets.  `save_model` of 3.1 and later writes the base
# score as a list; 3.0 takes its default instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 3.0.5 3.2.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/python" -m pip install -q --disable-pip-version-check "xgboost-cpu==$version" "numpy==2.3.5" 2> /dev/null
done
cat > "$folder/model.py" <<'PYTHON'
import sys

import numpy as np
import xgboost

x = np.random.default_rng(0).random((200, 3)).astype("float32")
y = 2 * x[:, 0] + 5
booster = xgboost.Booster()
if sys.argv[2] == "train":
    xgboost.train({"max_depth": 2, "nthread": 1}, xgboost.DMatrix(x, y), 5).save_model(sys.argv[1])
booster.load_model(sys.argv[1])
print(*[f"{p:.3f}" for p in booster.predict(xgboost.DMatrix(x[:3]))])
PYTHON
later=$("$folder/3.2.0/bin/python" "$folder/model.py" "$folder/model.ubj" train 2>&1)
earlier=$("$folder/3.0.5/bin/python" "$folder/model.py" "$folder/model.ubj" load 2>&1)
echo "3.2.0, which saved it: $later; 3.0.5: $earlier"
python3 - "$later" "$earlier" <<'PYTHON'
import sys

later, earlier = ([float(word) for word in text.split()] for text in sys.argv[1:])
apart = [a - b for a, b in zip(later, earlier, strict=True)]
assert len(apart) == 3 and min(apart) > 5 and max(apart) - min(apart) < 0.01, apart
PYTHON
