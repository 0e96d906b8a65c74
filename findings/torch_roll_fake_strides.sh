#!/usr/bin/env bash
# torch 2.11.0, Linux x86-64: torch.roll of a tensor whose channels lie last.
#
# One would expect: a fake tensor (what torch.compile and torch.export trace with) has the strides that eager mode gives.
# What happens: eager mode keeps channels last, the fake tensor is contiguous.  What reads storage by strides after it,
# such as as_strided, is traced with strides that the running program does not have.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.2.6 torch==2.11.0 2> /dev/null
cat > "$folder/roll.py" <<'PYTHON'
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def strides() -> tuple[int, ...]:
    return tuple(torch.roll(torch.zeros(1, 2, 6, 6).to(memory_format=torch.channels_last), 1, 2).stride())


with FakeTensorMode():
    traced = strides()
print("eager", strides(), "traced", traced)
assert strides() == (72, 1, 12, 2) and traced == (72, 36, 6, 1)
PYTHON
"$folder/venv/bin/python" "$folder/roll.py"
