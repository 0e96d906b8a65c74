"""PyTorch's side of `--compare torch`: workloads of the catalogue as PyTorch's operators, on all cores."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import MeasureError, TaskError
from ..core.host.hints import python
from ..core.target.hardware import host_cores
from ..core.tasks.catalog import is_catalogued
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import decode_workload_key

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], Any]
TOLERANCE = 1e-3


def exact_torch() -> Any:
    """PyTorch with this process's threads: TF32 off, the fastest algorithm of each convolution, no gradients.

    Raises TaskError where it is not installed.
    """
    law = f"it is not installed; `{python()} -m pip install torch`"
    require(importlib.util.find_spec("torch") is not None, TaskError, "PyTorch", law)
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(host_cores())
    torch.set_float32_matmul_precision("highest")
    allow_tf32(torch, False)
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    return torch


def allow_tf32(torch: Any, allowed: bool) -> None:
    """Whether products of floats may be computed in TF32."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def _conv2d_layer(torch: Any, args: Sequence[int], data: Any, kernel: Any, bias: Any) -> Run:
    stride, padding, bias = tuple(args[-4:-2]), tuple(args[-2:]), bias.reshape(-1)
    conv = torch.nn.functional.conv2d
    return lambda: torch.relu(conv(data, kernel, bias, stride=stride, padding=padding))


def _channels_last(name: str) -> Callable[[Any, Sequence[int], Any, Any], Run]:
    """A convolution of `conv1d` to `conv3d`, whose data and weight have the channels last."""

    def make(torch: Any, args: Sequence[int], data: Any, weight: Any) -> Run:
        conv, x = getattr(torch.nn.functional, name), data.movedim(-1, 1)
        w = weight.movedim((-1, -2), (0, 1)).contiguous()
        return lambda: conv(x, w, stride=args[-2], padding=args[-1]).movedim(1, -1)

    return make


def _depthwise(torch: Any, args: Sequence[int], data: Any, weight: Any) -> Run:
    conv, x, w = torch.nn.functional.conv2d, data.movedim(-1, 1), weight.movedim(-1, 0).contiguous()
    return lambda: conv(x, w, stride=args[-2], padding=args[-1], groups=x.shape[1]).movedim(1, -1)


def _dense_layer(torch: Any, args: Sequence[int], data: Any, weight: Any, bias: Any) -> Run:
    return lambda: torch.relu(torch.nn.functional.linear(data, weight, bias))


def _product(torch: Any, args: Sequence[int], a: Any, b: Any) -> Run:
    return lambda: torch.matmul(a, b)


def _softmax(torch: Any, args: Sequence[int], a: Any) -> Run:
    return lambda: torch.softmax(a, 1)


def _norm(torch: Any, args: Sequence[int], a: Any) -> Run:
    return lambda: torch.linalg.vector_norm(a, dim=(1, 2))


OPERATORS: dict[str, Callable[..., Run]] = {
    "conv2d_layer": _conv2d_layer, "matmul": _product, "dense_layer": _dense_layer, "batch_matmul": _product,
    "conv1d_nlc": _channels_last("conv1d"), "conv2d_nhwc": _channels_last("conv2d"),
    "conv3d_ndhwc": _channels_last("conv3d"), "depthwise_conv2d_nhwc": _depthwise, "softmax": _softmax, "norm": _norm,
}  # fmt: skip
"""By the name of a workload: from PyTorch, the numbers of the key and the inputs to what is timed."""


def check_torch(task: SearchTask) -> None:
    """Raises TaskError where PyTorch is not installed, has no operator for a task, or the task is for no processor."""
    law = f"PyTorch is not installed; `{python()} -m pip install torch`, or --compare alone for NumPy"
    require(importlib.util.find_spec("torch") is not None, TaskError, "--compare torch", law)
    name, _ = decode_workload_key(task.workload_key)
    law = f"no operator of PyTorch is known for this workload, but for {', '.join(OPERATORS)}"
    known = name in OPERATORS and is_catalogued(task.workload_key)
    require(known, TaskError, "--compare torch", law, workload=task.name)
    law = "PyTorch is compared on the processor only, python -m benchmarks.operators does it on a GPU"
    require(task.target.kind.name == "c", TaskError, "--compare torch", law, target=task.target)


def torch_run(task: SearchTask, inputs: Sequence[Array], result: Array) -> Run:
    """PyTorch's operator on the inputs of a task.

    Raises TaskError as `check_torch` does, and MeasureError when its result is another one than `result`.
    """
    check_torch(task)
    torch = exact_torch()
    name, args = decode_workload_key(task.workload_key)
    run = OPERATORS[name](torch, args or (), *[torch.from_numpy(a) for a in inputs])
    theirs = np.asarray(run().contiguous().numpy())
    same = theirs.shape == result.shape and np.abs(theirs - result).max() <= TOLERANCE * np.abs(result).max()
    require(same, MeasureError, "--compare torch", "PyTorch's result is another one", workload=task.name)
    return run
