#!/usr/bin/env bash
# torch 2.11.0 (CPU), Linux x86-64; the same in 2.14.1.
#
# One would expect: a backend of torch.compile made with torch._dynamo.backends.common.aot_autograd, the documented
# helper, is handed a graph that does all that a model does, so that it can also do the writes to buffers (running
# averages of batch norms) together; the backend "inductor" does.
# What happens: writes are taken out of the graph.  It gives the new values as outputs, and PyTorch copies each to its
# buffer by a call of its own behind every run: 3 a batch norm, 156 for MobileNetV2.  Only with the argument
# keep_inference_input_mutations=True, which the helper passes on and no page names, are they nodes of the graph.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.2.6 torch==2.11.0 2> /dev/null
cat > "$folder/writes.py" <<'PYTHON'
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

torch.set_grad_enabled(False)
NORMS = 5


def counted(run):
    """The copies that a call makes."""
    with torch.profiler.profile() as profile:
        run()
    return sum(event.count for event in profile.key_averages() if event.key == "aten::copy_")


def copies(**options):
    """Nodes of the graph that write, and copies that PyTorch makes behind the graph."""
    graphs = []

    def compiler(graph, inputs):
        def run(*given):
            graphs.append((graph, given))
            return graph(*given)

        return make_boxed_func(run)

    torch._dynamo.reset()
    model = torch.nn.Sequential(*[torch.nn.BatchNorm2d(4) for _ in range(NORMS)])
    run = torch.compile(model, backend=aot_autograd(fw_compiler=compiler, inference_compiler=compiler, **options))
    x = torch.rand(2, 4, 3, 3)
    run(x)
    graph, given = graphs[-1]
    nodes = sum(node.target is torch.ops.aten.copy_.default for node in graph.graph.nodes)
    return nodes, counted(lambda: run(x)) - counted(lambda: graph(*given))


usual, kept = copies(), copies(keep_inference_input_mutations=True)
print(f"{NORMS} batch norms in training mode, {3 * NORMS} buffers: nodes of the graph that write, copies behind it")
print(f"usual: {usual[0]}, {usual[1]}; with keep_inference_input_mutations: {kept[0]}, {kept[1]}")
assert usual == (0, 3 * NORMS)
assert kept == (3 * NORMS, 0)
PYTHON
"$folder/venv/bin/python" "$folder/writes.py"
