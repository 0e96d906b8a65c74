"""NumPy's side of `--compare`: workloads of the catalogue as one writes them in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from te_lite import Tensor
from te_lite.meaning.reference import evaluate, multiplies_matrices

from ..core.tasks.catalog import is_catalogued
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import decode_workload_key

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], Array]


def _windows(x: Array, kernel: tuple[int, ...], stride: int, padding: int, first: int) -> Array:
    """Windows over the dimensions of `x` from `first` on, as many as `kernel` has; they become the last ones."""
    axes = range(first, first + len(kernel))
    padded = np.pad(x, [(padding, padding) if k in axes else (0, 0) for k in range(x.ndim)])
    windows = sliding_window_view(padded, kernel, tuple(axes))
    picked: Array = windows[tuple([slice(None, None, stride) if k in axes else slice(None) for k in range(x.ndim)])]
    return picked


def _conv2d_layer(args: Sequence[int], data: Array, kernel: Array, bias: Array) -> Array:
    windows = _windows(data, kernel.shape[2:], args[-4], args[-2], 2)
    out = np.tensordot(windows, kernel, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return np.asarray(np.maximum(out + bias, 0))


def _channels_last(args: Sequence[int], data: Array, weight: Array) -> Array:
    spatial = data.ndim - 2
    windows = _windows(data, weight.shape[:spatial], args[-2], args[-1], 1)
    reduced = (*range(spatial + 2, windows.ndim), spatial + 1)
    return np.tensordot(windows, weight, (reduced, tuple(range(spatial + 1))))


def _depthwise(args: Sequence[int], data: Array, weight: Array) -> Array:
    windows = _windows(data, weight.shape[1:3], args[-2], args[-1], 1)
    return np.asarray(np.einsum("nhwcij,ijc->nhwc", windows, weight[0]))


def _softmax(args: Sequence[int], a: Array) -> Array:
    e: Array = np.exp(a - a.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


OPERATORS: dict[str, tuple[str, Callable[..., Array]]] = {
    "conv2d_layer": ("tensordot of its windows", _conv2d_layer),
    "matmul": ("a @ b", lambda args, a, b: a @ b),
    "dense_layer": ("maximum(a @ w.T + b, 0)", lambda args, a, w, b: np.maximum(a @ w.T + b, 0)),
    "batch_matmul": ("a @ b", lambda args, a, b: a @ b),
    "conv1d_nlc": ("tensordot of its windows", _channels_last),
    "conv2d_nhwc": ("tensordot of its windows", _channels_last),
    "conv3d_ndhwc": ("tensordot of its windows", _channels_last),
    "depthwise_conv2d_nhwc": ("einsum of its windows", _depthwise),
    "softmax": ("exp(a - max) / sum", _softmax),
    "norm": ("linalg.norm", lambda args, a: np.linalg.norm(a, axis=(1, 2))),
}
"""By the name of a workload: what it is in NumPy, in words, and as a function of the numbers of the key and inputs."""


REFERENCE = "the reference evaluator"


def numpy_run(task: SearchTask, inputs: Mapping[Tensor, Array]) -> tuple[str, Run]:
    """What stands beside the programs of a task, by name, and the function that computes it on the inputs.

    That is NumPy for a workload of the catalogue.  Any other is evaluated operation by operation
    (`te_lite.meaning.reference`), which NumPy is not to be judged by.
    """
    name, args = decode_workload_key(task.workload_key)
    tensors = task.compute_dag.tensors
    if name in OPERATORS and is_catalogued(task.workload_key):
        text, operator = OPERATORS[name]
        given = [inputs[t] for t in tensors if t in inputs]
        return f"NumPy, {text}", lambda: operator(args or (), *given)
    by = " (matmul)" if multiplies_matrices(tensors) else ""
    return f"{REFERENCE}{by}", lambda: evaluate(tensors, inputs)[tensors[-1]]
