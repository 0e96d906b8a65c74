"""PyTorch's time for ResNet-18 with our weights and input: eager and compiled, each in a CUDA graph, TF32 off.

    python -m benchmarks.torch_network [--image-size 224] [--ours RESULT.npy] [--json FILE]

The network is that of `relay_lite.testing.resnet`, written in plain PyTorch; its result is compared with the reference
executor's before it is timed, and with ours where `--ours` names it.  Both memory formats are tried.  Without a GPU the
calls are timed one by one, to try the script.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ansor.core.target.target import STRICT
from benchmarks import report
from benchmarks.pytorch import Run, captured, exact_torch, formats
from relay_lite.testing.residual import EPSILON
from relay_lite.tuning.network import load_network
from relay_lite.tuning.tune_network import TOLERANCE, largest_difference, reference_outputs

Array = np.ndarray[Any, np.dtype[Any]]
NAME = "resnet-18"
REPEAT, SECONDS = 5, 0.3
STAGES, UNITS = 4, 2


def resnet18(torch: Any, params: Mapping[str, Array], layout: str) -> Any:
    """The network as a PyTorch module that takes and gives what ours does, but NCHW; `layout` is that of `params`."""
    nn: Any = torch.nn
    module: Any = nn.Module

    def vector(name: str) -> Any:
        return torch.from_numpy(params[name].copy())

    def norm(name: str, scale: bool = True) -> Any:
        made = nn.BatchNorm2d(params[f"{name}_gamma"].size, eps=EPSILON)
        gamma = vector(f"{name}_gamma")
        made.load_state_dict(
            {"weight": gamma if scale else torch.ones_like(gamma), "bias": vector(f"{name}_beta"),
             "running_mean": vector(f"{name}_moving_mean"), "running_var": vector(f"{name}_moving_var"),
             "num_batches_tracked": torch.tensor(0)}
        )  # fmt: skip
        return made

    def conv(name: str, stride: int) -> Any:
        weight = params[f"{name}_weight"]
        weight = weight.transpose(3, 2, 0, 1) if layout == "NHWC" else weight
        out, into, window, _ = weight.shape
        made = nn.Conv2d(into, out, window, stride, padding=window // 2, bias=False)
        made.load_state_dict({"weight": torch.from_numpy(np.ascontiguousarray(weight))})
        return made

    class Unit(module):  # type: ignore[misc]
        """Convolutions of the normalised input, plus a shortcut."""

        def __init__(self, name: str, stride: int, first: bool) -> None:
            super().__init__()
            self.bn1, self.conv1 = norm(f"{name}_bn1"), conv(f"{name}_conv1", stride)
            self.bn2, self.conv2 = norm(f"{name}_bn2"), conv(f"{name}_conv2", 1)
            self.shortcut = conv(f"{name}_sc", stride) if first else None

        def forward(self, x: Any) -> Any:
            active = torch.relu(self.bn1(x))
            body = self.conv2(torch.relu(self.bn2(self.conv1(active))))
            return body + (x if self.shortcut is None else self.shortcut(active))

    units = [
        Unit(f"stage{stage}_unit{unit}", 2 if unit == 1 and stage > 1 else 1, unit == 1)
        for stage in range(1, STAGES + 1) for unit in range(1, UNITS + 1)
    ]  # fmt: skip
    scores = nn.Linear(params["fc1_weight"].shape[1], params["fc1_weight"].shape[0])
    scores.load_state_dict({"weight": vector("fc1_weight"), "bias": vector("fc1_bias")})
    return nn.Sequential(
        norm("bn_data", scale=False), conv("conv0", 2), norm("bn0"), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *units,
        norm("bn1"), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), scores, nn.Softmax(dim=1),
    ).eval()  # fmt: skip


def seconds_per_call(torch: Any, run: Run) -> float:
    """The median of `REPEAT` figures, each from calls in a row that take about `SECONDS`, after a warm-up."""
    gpu = torch.cuda.is_available()

    def batch(number: int) -> float:
        if not gpu:
            start = time.perf_counter()
            for _ in range(number):
                run()
            return time.perf_counter() - start
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(number):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    number = max(3, round(SECONDS / max(batch(3) / 3, 1e-6)))
    return statistics.median([batch(number) / number for _ in range(REPEAT)])


def variants(torch: Any, make: Callable[[], Any], data: Any, want: Array) -> Iterator[tuple[str, dict[str, float]]]:
    """Microseconds of a run, called and in a CUDA graph, and the largest error; eager and compiled, in both formats."""
    for mode, (layout, stored) in product(("eager", "compile"), formats(torch).items()):
        x = data.contiguous(memory_format=stored)
        model = make().to(data.device, memory_format=stored)
        run = partial(torch.compile(model) if mode == "compile" else model, x)
        for _ in range(3):
            run()
        called = seconds_per_call(torch, run)
        replay, result = captured(torch, run)
        replayed = seconds_per_call(torch, replay)
        error = largest_difference(result.float().cpu().numpy(), want)
        print(f"{mode}, {layout}: {1e6 * called:.1f} us called, {1e6 * replayed:.1f} us in a graph", flush=True)
        assert error <= TOLERANCE[STRICT], f"PyTorch's result differs from the reference by {error:.1e}"
        yield f"{mode}, {layout}", {"called_us": 1e6 * called, "graph_us": 1e6 * replayed, "error": error}


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--batch-size", type=int, default=1)
    p.add_argument("--layout", default="NHWC")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--ours", type=report.path_to_read, help="our result for the same weights and the same input")
    options = p.parse_args()
    torch = exact_torch()
    network = load_network(NAME, options.batch_size, options.layout, (options.image_size,), seed=options.seed)
    inputs = network.inputs(np.random.default_rng(options.seed))
    (want,) = reference_outputs(network, inputs)
    picture = inputs["data"].transpose(0, 3, 1, 2) if options.layout == "NHWC" else inputs["data"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = torch.from_numpy(np.ascontiguousarray(picture)).to(device)
    name = torch.cuda.get_device_name() if device == "cuda" else None
    figures: dict[str, Any] = {"torch": torch.__version__, "variants": {}}
    if options.ours:
        ours = np.load(options.ours, allow_pickle=False)
        figures["ours_error"] = largest_difference(ours, want)
        print(f"our result for this input differs from the reference by {figures['ours_error']:.1e}")
    for key, times in variants(torch, lambda: resnet18(torch, network.params, options.layout), data, want):
        figures["variants"][key] = times
        mode = f"{key.split(',')[0]}_us"
        figures[mode] = min(figures.get(mode, np.inf), times["graph_us"])
        report.write_json(options.json, figures, name)


if __name__ == "__main__":
    report.run(main)
