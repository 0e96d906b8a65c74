"""PyTorch's operators, to be timed in turns with our programs on the same cores (extra `[bench]`).

The libraries behind PyTorch choose among kernels by memory format, so a convolution is timed in both formats and the
better one counts.  Both sides write float32 and use as many threads as this process has processors.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ansor.core.hardware import host_cores

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], Any]
TOLERANCE = 1e-3


def available() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def conv2d_bias_relu(arrays: Sequence[Array], padding: int) -> dict[str, Run]:
    """relu(conv2d + bias) of data [N, CI, H, W], kernel and bias [1, CO, 1, 1] in both memory formats."""
    torch = _torch()
    data, kernel, bias = [torch.from_numpy(a) for a in arrays]
    bias = bias.reshape(-1)

    def runner(memory_format: Any) -> Run:
        x, w = data.contiguous(memory_format=memory_format), kernel.contiguous(memory_format=memory_format)
        conv = torch.nn.functional.conv2d
        return lambda: torch.relu_(conv(x, w, bias, padding=padding))

    return {"NCHW": runner(torch.contiguous_format), "channels_last": runner(torch.channels_last)}


def matmul(arrays: Sequence[Array]) -> dict[str, Run]:
    """The product of two matrices, into an array that is there."""
    torch = _torch()
    a, b = [torch.from_numpy(x) for x in arrays]
    out = torch.empty(a.shape[0], b.shape[1])
    return {"matmul": lambda: torch.matmul(a, b, out=out)}


def elementwise(name: str, array: Array, exponent: float) -> Run:
    """A function of every element, into an array that is there; `exponent` is for `pow`."""
    torch = _torch()
    x = torch.from_numpy(array)
    out = torch.empty_like(x)
    if name == "pow":
        return lambda: torch.pow(x, exponent, out=out)
    function = getattr(torch, name)
    return lambda: function(x, out=out)


def softmax(array: Array) -> Run:
    """The softmax of every row, into an array that is there."""
    torch = _torch()
    x = torch.from_numpy(array)
    out = torch.empty_like(x)
    return lambda: torch.softmax(x, 1, out=out)


def _torch() -> Any:
    torch = importlib.import_module("torch")
    torch.set_num_threads(host_cores())
    torch.set_grad_enabled(False)
    return torch


def check(ours: Array, theirs: Run) -> None:
    """Raise AssertionError when PyTorch's result is another one."""
    want = theirs().contiguous().numpy()
    assert np.abs(ours - want).max() <= TOLERANCE * np.abs(want).max(), "our result differs from PyTorch's"
