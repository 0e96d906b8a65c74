#!/usr/bin/env bash
# torch 2.11.0, Linux x86-64: torch.linspace of integers, as torch.compile takes it apart.
#
# One would expect: the decomposition that backends are given computes what eager mode does, 4 in place 28 of 50 numbers
# from 0 to 7.
# What happens: eager mode computes in float64 before it cuts, the decomposition in float32, where 7 - 21 / 7 falls just
# short of 4: it gives 3.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.2.6 torch==2.11.0 2> /dev/null
cat > "$folder/linspace.py" <<'PYTHON'
import torch


def numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0, 7, 50, dtype=torch.int64) + x


zero = torch.zeros((), dtype=torch.int64)
eager = numbers(zero)
taken_apart = torch.compile(numbers, backend="aot_eager_decomp_partition")(zero)
differ = (eager != taken_apart).nonzero().flatten().tolist()
print("places", differ, "eager", eager[differ].tolist(), "taken apart", taken_apart[differ].tolist())
assert differ == [28] and eager[28] == 4 and taken_apart[28] == 3
PYTHON
"$folder/venv/bin/python" "$folder/linspace.py"
