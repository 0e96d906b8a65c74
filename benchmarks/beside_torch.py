"""A model of torchvision or transformers, exported, tuned and compiled by us, beside PyTorch in the same process.

    python -m benchmarks.beside_torch --model vit_b_16 --log F [--precision tf32] [--batch-size N] [--trials 600]
                                      [--time-limit S] [--resume F ...] [--target cuda] [--json F]

Weights are live (`zoo_models.py`).  Our result is compared with the reference executor's, PyTorch's with that of the
model in float64.  PyTorch runs eagerly and compiled, each in a CUDA graph, images in both memory formats; ours takes
its turn before and after each of these.  The tuning goes on where the log ends.

From the first graph on that PyTorch captures in a process, ours takes 0.4 us a kernel longer on an H200, for good: the
ratio counts that, the time "measured end to end" before does not.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.devices import hardware_of
from ansor.cli.torch_side import allow_tf32
from ansor.core.device.backend import on_device
from ansor.core.target.target import TF32, Target
from benchmarks import report
from benchmarks.pytorch import captured, exact_torch, formats
from benchmarks.torch_models import PICTURES, TEXTS, drawn
from benchmarks.torch_network import seconds_per_call
from benchmarks.tune_network import add_tuning, join_logs, measured, tuned
from relay_lite.tuning.network import Network, from_program, in_precision
from relay_lite.tuning.tune_network import TOLERANCE, largest_difference

IMAGE_RANK = 4


def exported(torch: Any, model: Any, inputs: tuple[Any, ...], name: str, layout: str) -> Network:
    """The network that `torch.export` makes of a model."""
    with torch.no_grad():
        return from_program(torch.export.export(model, inputs), name, layout)


def variants(torch: Any, model: Any, inputs: Sequence[Any], precision: str) -> dict[str, Any]:
    """What runs PyTorch on the GPU, by name: eager and compiled, in each memory format that matters."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    images = any(x.ndim == IMAGE_RANK for x in inputs)
    stored = formats(torch) if images else {"as it is": torch.contiguous_format}
    made: dict[str, Any] = {}
    for mode, (name, layout) in product(("eager", "compiled"), stored.items()):
        theirs = copy.deepcopy(model).to("cuda", dtype, memory_format=layout)
        given = [_placed(x, dtype, layout) for x in inputs]
        made[f"{mode}, {name}"] = partial(torch.compile(theirs) if mode == "compiled" else theirs, *given)
    return made


def _placed(x: Any, dtype: Any, layout: Any) -> Any:
    x = x.to("cuda", dtype) if x.is_floating_point() else x.to("cuda")
    return x.contiguous(memory_format=layout) if x.ndim == IMAGE_RANK else x


def in_float64(torch: Any, model: Any, inputs: Sequence[Any]) -> np.ndarray[Any, Any]:
    """The result of the model in float64, on the processor."""
    given = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        result: np.ndarray[Any, Any] = copy.deepcopy(model).double()(*given).numpy()
    return result


def beside(torch: Any, options: argparse.Namespace, ours: Any, model: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """Microseconds of a run in turns, and the ratio to PyTorch's fastest."""
    want = in_float64(torch, model, inputs)
    allow_tf32(torch, options.precision == TF32)
    own: list[float] = []
    theirs: dict[str, float] = {}
    for name, run in variants(torch, model, inputs, options.precision).items():
        with torch.no_grad():
            replay, result = captured(torch, run)
        error = largest_difference(result.float().cpu().numpy(), want)
        limit = TOLERANCE[options.precision]
        assert error <= limit, f"PyTorch's result ({name}) differs from that in float64 by {error:.1e}"
        own.append(ours())
        theirs[name] = seconds_per_call(torch, replay)
        own.append(ours())
        print(f"{name}: {1e6 * theirs[name]:.1f} us in a graph, ours {1e6 * own[-1]:.1f} us, error {error:.1e}")
    ratio = statistics.median(own) / min(theirs.values())
    print(f"ours / PyTorch's fastest: {ratio:.3f}")
    return {
        "torch": torch.__version__, "ratio": ratio, "ours_us": [1e6 * s for s in own],
        "torch_us": {name: 1e6 * s for name, s in theirs.items()},
    }  # fmt: skip


def parsed() -> argparse.Namespace:
    """What the command line says."""
    p = report.parser(__doc__ or "")
    p.add_argument("--model", required=True, choices=[*PICTURES, *TEXTS])
    add_tuning(p, trials=600)
    return p.parse_args()


def main() -> None:
    options = parsed()
    options.parts = ("tune",)
    device = report.gpu()
    torch = exact_torch()
    model, inputs = drawn(torch, options.model, options.batch_size)
    network = exported(torch, model, inputs, f"{options.model}-B{options.batch_size}", options.layout)
    network, target = in_precision(network, on_device(Target(options.target)), options.precision)
    options.target = str(target)
    tasks, weights = ansor.extract_tasks(network.graph, network.params, target, hardware_of(target))
    print(f"{network.name}: {len(tasks)} tasks; {join_logs(Path(options.log), options.resume)} records resumed")
    figures: dict[str, Any] = {"model": options.model, "target": options.target, "precision": options.precision}
    records, figures["tuning"] = tuned(options, tasks, weights)
    with tempfile.TemporaryDirectory() as folder:
        module, figures["compiled"] = measured(options, network, tasks, weights, records, Path(folder) / "ours.npy")
    report.write_json(options.json, figures, device)

    def ours() -> float:
        return float(module.benchmark(repeat=1, min_repeat_ms=300).median)

    figures["beside"] = beside(torch, options, ours, model, inputs)
    report.write_json(options.json, figures, device)


if __name__ == "__main__":
    report.run(main)
