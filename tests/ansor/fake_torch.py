"""As much of PyTorch as `ansor.cli.torch_side` calls, in NumPy."""

from __future__ import annotations

import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

from relay_lite.op.numpy_windows import convolve


class Tensor:
    """An array with the methods of a tensor."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.shape = self.values.shape

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        return Tensor(np.moveaxis(self.values, source, destination))

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.values))

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.values.reshape(shape))

    def numpy(self) -> Any:
        return self.values


def _conv(spatial: int) -> Any:
    def conv(
        x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, groups: int = 1
    ) -> Tensor:
        assert x.values.ndim == spatial + 2
        out = convolve(x.values, w.values, stride, padding, 1, groups)
        return Tensor(out if bias is None else out + bias.values.reshape(1, -1, *[1] * spatial))

    return conv


def _softmax(x: Tensor, dim: int) -> Tensor:
    e = np.exp(x.values)
    return Tensor(e / e.sum(dim, keepdims=True))


def fake_torch() -> Any:
    """A module `torch`; `threads` of it is what it was told."""
    torch: Any = types.ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    torch.set_num_threads = lambda n: setattr(torch, "threads", n)
    torch.set_float32_matmul_precision = torch.set_grad_enabled = lambda value: None
    backend = types.SimpleNamespace(matmul=types.SimpleNamespace())
    torch.backends = types.SimpleNamespace(cuda=backend, cudnn=backend)
    torch.from_numpy = Tensor
    torch.relu = lambda x: Tensor(np.maximum(x.values, 0))
    torch.matmul = lambda a, b: Tensor(a.values @ b.values)
    torch.softmax = _softmax
    torch.linalg = types.SimpleNamespace(vector_norm=lambda x, dim: Tensor(np.sqrt(np.square(x.values).sum(dim))))
    linear = lambda x, w, b: Tensor(x.values @ w.values.T + b.values)  # noqa: E731
    torch.nn = types.SimpleNamespace(
        functional=types.SimpleNamespace(linear=linear, conv1d=_conv(1), conv2d=_conv(2), conv3d=_conv(3))
    )
    return torch
