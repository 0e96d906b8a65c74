"""The workloads that are known by name, in Python and on the command line.

`conv2d` is the layer of the tutorial, under the name it has there, so that logs and scripts share their records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from te_lite import Tensor, compute, placeholder, reduce_axis, topi
from te_lite import sum as te_sum
from te_lite.errors import require

from ..errors import TaskError
from . import catalog_operators as operators
from .workloads import OFFERED, WorkloadFunc, function_of, make_workload_key


def matmul(n: int, m: int, k: int) -> list[Tensor]:
    """A [N, K] times B [K, M]."""
    a, b = placeholder((n, k), name="A"), placeholder((k, m), name="B")
    axis = reduce_axis((0, k), "k")
    return [a, b, compute((n, m), lambda i, j: te_sum(a[i, axis] * b[axis, j], axis=[axis]), name="C")]


def dense_layer(m: int, n: int, k: int) -> list[Tensor]:
    """Data [M, K], weight [N, K], bias [N]: relu(data * weight^T + bias)."""
    data, weight = placeholder((m, k), name="data"), placeholder((n, k), name="weight")
    bias = placeholder((n,), name="bias")
    return [data, weight, bias, topi.nn.relu(topi.nn.dense(data, weight, bias))]


def conv2d_layer(
    n: int, h: int, w: int, co: int, ci: int, kh: int, kw: int, stride: tuple[int, int], padding: tuple[int, int]
) -> list[Tensor]:
    """Data [N, CI, H, W], kernel [CO, CI, KH, KW], bias [1, CO, 1, 1]: relu(conv2d + bias)."""
    data = placeholder((n, ci, h, w), name="data")
    kernel = placeholder((co, ci, kh, kw), name="kernel")
    bias = placeholder((1, co, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    return [data, kernel, bias, topi.nn.relu(conv + bias)]


def _conv2d_args(n: int, h: int, w: int, co: int, ci: int, k: int, stride: int, padding: int) -> tuple[Any, ...]:
    return n, h, w, co, ci, k, k, (stride, stride), (padding, padding)


def _same(*shape: int) -> tuple[Any, ...]:
    return shape


def _channels_last(*shape: int) -> tuple[Any, ...]:
    """The arguments of `catalog_operators`, which have CI before CO, for a shape with CO before CI, as in `conv2d`."""
    *outer, co, ci, k, stride, padding = shape
    return (*outer, ci, co, k, stride, padding)


@dataclass(frozen=True)
class Entry:
    """A workload of the catalogue; `shape` names the numbers of `--shape`, `default` is what they are without."""

    name: str
    func: WorkloadFunc
    shape: str
    default: tuple[int, ...]
    to_args: Callable[..., tuple[Any, ...]] = _same

    @property
    def names(self) -> list[str]:
        """The names of the numbers, in order."""
        return self.shape.split(",")

    @property
    def text(self) -> str:
        """The usual shape, as `--shape` takes it: `N=1024,M=1024,K=1024`."""
        return ",".join([f"{name}={number}" for name, number in zip(self.names, self.default, strict=True)])

    def numbers(self, text: str) -> list[int]:
        """The numbers of `--shape`: all of them in order, or some by name, the others being those of the usual shape.

        Raises TaskError for a text that is neither.
        """
        if "=" not in text:
            return [_number(part, text) for part in text.replace("x", ",").split(",")]
        found, given = dict(zip(self.names, self.default, strict=True)), set[str]()
        for part in text.split(","):
            name, _, number = [piece.strip() for piece in part.partition("=")]
            law = f"the numbers of {self.name} are {self.shape}, as in {self.text}"
            require(name in found, TaskError, "--shape", law, got=part)
            require(name not in given, TaskError, "--shape", f"{name} is given twice", got=text)
            given.add(name)
            found[name] = _number(number, text)
        return list(found.values())

    def key(self, numbers: Sequence[int]) -> str:
        """The workload key for a shape.  Raises TaskError when the numbers do not fit."""
        names = self.names
        if len(numbers) != len(names):
            raise TaskError(f"--shape: {len(names)} numbers are needed ({self.shape}), got {len(numbers)}")
        return make_workload_key(self.name, self.to_args(*numbers))


SEPARATED = "numbers separated by commas are needed"


def _number(part: str, text: str) -> int:
    ok = part.strip().isascii() and part.strip().isdecimal()
    law = "whole numbers separated by commas are needed, none below 0" if "-" in text else SEPARATED
    require(ok, TaskError, "--shape", law, got=text)
    return int(part)


CATALOG = {
    "conv2d": Entry(
        "conv2d_layer", conv2d_layer, "N,H,W,CO,CI,K,stride,padding", (1, 7, 7, 512, 512, 3, 1, 1), _conv2d_args
    ),
    "matmul": Entry("matmul", matmul, "N,M,K", (1024, 1024, 1024)),
    "dense": Entry("dense_layer", dense_layer, "M,N,K", (1, 1000, 512)),
    "batch_matmul": Entry("batch_matmul", operators.batch_matmul, "B,N,M,K", (1, 128, 128, 128)),
    "conv1d": Entry(
        "conv1d_nlc", operators.conv1d, "N,L,CO,CI,K,stride,padding", (1, 256, 128, 64, 3, 2, 1), _channels_last
    ),
    "conv2d_nhwc": Entry(
        "conv2d_nhwc", operators.conv2d, "N,H,W,CO,CI,K,stride,padding", (1, 224, 224, 64, 3, 7, 2, 3), _channels_last
    ),
    "conv3d": Entry(
        "conv3d_ndhwc",
        operators.conv3d,
        "N,D,H,W,CO,CI,K,stride,padding",
        (1, 16, 224, 224, 64, 3, 7, 2, 3),
        _channels_last,
    ),
    "depthwise_conv2d": Entry(
        "depthwise_conv2d_nhwc", operators.depthwise_conv2d, "N,H,W,C,K,stride,padding", (1, 112, 112, 32, 3, 1, 1)
    ),
    "softmax": Entry("softmax", operators.softmax, "M,N", (512, 512)),
    "norm": Entry("norm", operators.norm, "B,M,N", (1, 256, 256)),
}


def is_catalogued(workload_key: str) -> bool:
    """Whether a key is one of a workload of the catalogue, and not of a function of the user's with its name."""
    return function_of(workload_key) in [entry.func for entry in CATALOG.values()]


OFFERED.provide(lambda: {entry.name: entry.func for entry in CATALOG.values()})
