#!/usr/bin/env bash
# torch 2.11.0 (CPU), Linux x86-64; the same in 2.14.1.
#
# One would expect: with torch._dynamo.config.allow_rnn a GRU is traced in a time that has nothing to do with the length
# of the sequence, since it becomes one node (torch.gru) of the graph that a backend is handed.
# What happens: to find the shapes of that node a decomposition of the layer is run, step by step, on tensors without
# data: some 8 ms a step and layer, 13 s for 1,600 steps and 0.05 s for 4.  The graph is the same.  (An LSTM on a CPU is
# one operator there, and is traced at once.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.2.6 torch==2.11.0 2> /dev/null
cat > "$folder/trace.py" <<'PYTHON'
import time

import torch

torch._dynamo.config.allow_rnn = True
torch.set_grad_enabled(False)
traced = []


def backend(module, inputs):
    traced.append((time.perf_counter(), [str(n.target) for n in module.graph.nodes if n.op == "call_function"]))
    return module


def seconds(steps):
    torch._dynamo.reset()
    layer, x = torch.nn.GRU(4, 4), torch.rand(steps, 1, 4)
    start = time.perf_counter()
    torch.compile(layer, backend=backend)(x)
    end, calls = traced[-1]
    return end - start, calls


seconds(4)
(short, one), (long, other) = seconds(4), seconds(1600)
layers = [sum("gru" in call for call in calls) for calls in (one, other)]
print(f"nodes of a GRU in the graph: {layers}; tracing took {short:.2f} s for 4 steps, {long:.2f} s for 1600")
assert layers == [1, 1] and len(one) == len(other)
assert long > 10 * short
PYTHON
"$folder/venv/bin/python" "$folder/trace.py"
