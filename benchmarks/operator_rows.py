"""The rows of `benchmarks.operators`: what each computes, by us and by PyTorch, and the limits that it is held to.

A row is named by an operator and its shape; sizes of products are rows x out x reduction:

    linear MxNxK, dense MxNxK           data [M, K], weight [N, K] as networks store it, no bias
    matmul MxNxK, batch_matmul BxMxNxK  [B, M, K] times [B, K, N]
    conv2d NxHxWxCI->CO KHxKW           and perhaps ` stride S`, ` pad P` (default: the outputs of stride 1 are as many
                                        as the inputs); ours is NHWC with a weight HWIO, 3x3 of stride 1 also by
                                        Winograd's method
    conv2d_layer NxHxWxCI->CO KHxKW     the tutorials' layer: NCHW, with bias and relu, as many outputs as inputs
    depthwise_conv2d NxHxWxC KHxKW      NHWC, a filter for each channel, as many outputs as inputs
    conv3d NxDxHxWxCI->CO KDxKHxKW      NDHWC, as many outputs as inputs;
                                        3x3 along the last two also by Winograd's method on the CPU
    softmax MxN, layer_norm MxN         along rows; layer_norm with gamma and beta
    row_sums MxN, column_sums MxN       over the last axis, over the leading one
    argmax MxN                          the position in each row, int32
    global_avg_pool NxCxHxW             NCHW
    attention BxHxTxD                   softmax(Q K^T / sqrt(D)) V of H heads and T tokens, each [B, H, T, D]
    causal_attention BxHxTxD            the same, where a token sees itself and those before it
    decode_attention BxHxKxTxD          of one token on a cache of T; its H heads share the K heads of the cache

Products may end in ` tf32` (of floats, both sides on tensor cores), ` fp32x3` (of floats, ours in two TF32 parts,
PyTorch's in float32), ` fp16` or ` bf16` (halves, summed up in float32) or, `linear` and `dense`, in ` int8` (bytes,
summed up in int32) and ` fp8` (e4m3, with a scale of each factor, rounded to bfloat16; PyTorch's sums are as short as
ours, `use_fast_accum`); of `conv2d` there are ` tf32`, ` fp32x3`, ` fp16` and ` bf16`.

A file of rows is a CSV with a column `row`, and perhaps `part` (default: the name of the file) and a column of limits
for each target, such as `ratio <= 1.1 and TB/s >= 3.75`: `ratio` is our time relative to PyTorch's, on the CPU to the
better of PyTorch's and NumPy's, `us` our time, `TB/s` the bytes of all inputs and outputs in our time, `s/trial` what a
trial of the search took, `error` our distance from the result in float64 relative to PyTorch's.  A row `geometric mean`
is about the ratios of its part.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.errors import TaskError
from ansor.core.target.target import PRECISIONS, STRICT
from benchmarks import workloads as benchmarks
from benchmarks.operator_limits import Limit, limits_of
from te_lite import ComputeDAG, Tensor, cast, compute, const, if_then_else, placeholder, topi
from te_lite.errors import require
from te_lite.topi import nn

OWN = Path(__file__).with_name("operators.csv")
MEAN = "geometric mean"
TARGETS = ("cuda", "c")
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "int8": "int8", "fp8": "float8_e4m3fn"}
"""Arithmetic that is said by the dtype of the factors; other than it, that which is a precision of floats."""
ARITHMETIC = (*DTYPES, "tf32", "fp32x3")
PLAIN = "as written"
WINOGRAD_TILES = {"cuda": (2, 4), "c": (4,)}
"""By target; on processors those of 2 took 1.4 to 1.6 times as long as those of 4."""
Tensors = Sequence[Any]


# ------------------------------------------------------------------------------------------------- operators


def _same(*tensors: Any) -> Tensors:
    return tensors


@dataclass(frozen=True)
class Library:
    """PyTorch's operator: `call` takes what `enter` makes of tensors that lie as ours do; `leave` is the way back.

    `numpy` is the same on arrays of NumPy that lie as ours do, where NumPy has it; it counts on the CPU.
    """

    call: Callable[..., Any]
    enter: Callable[..., Tensors] = _same
    leave: Callable[[Any], Any] = lambda result: result
    numpy: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Operator:
    """`shape` is a pattern, N in it a positive number; its groups are the arguments of `ours` and, after the module
    torch, of `theirs`.  `typed` is `ours` of a dtype, `others` are further computations by name, of a target: each is
    the argument before the groups."""

    shape: str
    ours: Callable[..., Sequence[Tensor]]
    theirs: Callable[..., Library]
    typed: Callable[..., Sequence[Tensor]] | None = None
    others: Callable[..., Mapping[str, Sequence[Tensor]]] = lambda *_: {}


def _linear(m: int, n: int, k: int) -> Sequence[Tensor]:
    data, weight = placeholder((m, k), name="data"), placeholder((n, k), name="weight")
    return [data, weight, nn.dense(data, weight)]


def _product(turned: bool) -> Callable[[str, int, int, int], Sequence[Tensor]]:
    """A product of factors of a dtype, halves rounded to the same; `turned`: of [N, K].

    Of floats of 8 bits it is of their scales, too.
    """

    def tensors(dtype: str, m: int, n: int, k: int) -> Sequence[Tensor]:
        a = placeholder((m, k), name="A", dtype=dtype)
        b = placeholder((n, k) if turned else (k, n), name="B", dtype=dtype)
        sums = "int32" if dtype == "int8" else "float32"
        product = nn.matmul(a, b, out_dtype=sums, transpose_b=turned)
        if dtype == DTYPES["fp8"]:
            x, y = [placeholder((1,), name=name) for name in ("scale_a", "scale_b")]
            return [a, b, x, y, compute((m, n), lambda i, j: cast("bfloat16", product[i, j] * (x[0] * y[0])))]
        return [a, b, product if dtype == "int8" else topi.cast(product, dtype)]

    return tensors


def _torch_linear(torch: Any, *_: int) -> Library:
    """PyTorch has products of bytes and of floats of 8 bits under names of their own, on GPUs."""

    def call(data: Any, weight: Any, *scales: Any) -> Any:
        if data.dtype == torch.int8:
            return torch._int_mm(data, weight.t())
        if data.dtype == torch.float8_e4m3fn:
            return torch._scaled_mm(data, weight.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=True)
        return prod(scales, start=torch.nn.functional.linear(data, weight))

    return Library(call, numpy=lambda data, weight: data @ weight.T)


def _conv2d(n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int | None,
            pad: int | None) -> Sequence[Tensor]:  # fmt: skip
    data, weight = placeholder((n, h, w, ci), name="data"), placeholder((kh, kw, ci, co), name="weight")
    return [data, weight, nn.conv2d_nhwc(data, weight, stride or 1, _padding(kh, kw, pad), 1)]


def _typed_conv2d(dtype: str, n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int | None,
                  pad: int | None) -> Sequence[Tensor]:  # fmt: skip
    law = "its factors may be floats and halves"
    require(dtype not in ("int8", DTYPES["fp8"]), TaskError, "conv2d", law, got=dtype)
    data, weight = [placeholder(shape, name=name, dtype=dtype)
                    for name, shape in (("data", (n, h, w, ci)), ("weight", (kh, kw, ci, co)))]  # fmt: skip
    sums = nn.conv2d_nhwc(data, weight, stride or 1, _padding(kh, kw, pad), 1, out_dtype="float32")
    return [data, weight, topi.cast(sums, dtype)]


def _winograd(target: str, n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int | None,
              pad: int | None) -> Mapping[str, Sequence[Tensor]]:  # fmt: skip
    """A 3x3 convolution by Winograd's method, the weight's transformation included; on processors axis by axis."""
    if (kh, kw, stride or 1) != (3, 3, 1):
        return {}
    if target == "c":
        return _winograd_by_axis((n, h, w, ci), (kh, kw, ci, co), _padding(kh, kw, pad))
    data, weight = placeholder((n, h, w, ci), name="data"), placeholder((kh, kw, ci, co), name="weight")
    padding = _padding(kh, kw, pad)
    return {
        f"winograd {m}": [data, weight, nn.conv2d_winograd_nhwc(data, weight, 1, padding, 1, tile_size=m)]
        for m in WINOGRAD_TILES["cuda"]
    }


def _winograd3d(target: str, n: int, d: int, h: int, w: int, ci: int, co: int,
                *window: int) -> Mapping[str, Sequence[Tensor]]:  # fmt: skip
    """The same of volumes whose filters are 3x3 along the last two axes, on processors."""
    if target != "c" or window[1:] != (3, 3):
        return {}
    return _winograd_by_axis((n, d, h, w, ci), (*window, ci, co), tuple([k // 2 for k in window]))


def _winograd_by_axis(
    shape: Sequence[int], window: Sequence[int], padding: Sequence[int]
) -> Mapping[str, Sequence[Tensor]]:
    data, weight = placeholder(shape, name="data"), placeholder(window, name="weight")
    return {
        f"winograd {m} by axis": [data, weight, nn.conv_winograd_by_axis(data, weight, padding, m)]
        for m in WINOGRAD_TILES["c"]
    }


def _padding(kh: int, kw: int, pad: int | None) -> tuple[int, int]:
    return ((kh - 1) // 2, (kw - 1) // 2) if pad is None else (pad, pad)


def _channels_last(call: Callable[..., Any], filter_order: Sequence[int]) -> Library:
    """A convolution of images whose channels come last; `filter_order` puts the filters as PyTorch wants them."""
    return Library(
        call,
        lambda data, weight: (data.movedim(-1, 1), weight.permute(*filter_order)),
        lambda result: result.movedim(1, -1),
    )


def _torch_conv2d(torch: Any, n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int | None,
                  pad: int | None) -> Library:  # fmt: skip
    padding, conv = _padding(kh, kw, pad), torch.nn.functional.conv2d
    return _channels_last(lambda data, weight: conv(data, weight, stride=stride or 1, padding=padding), (3, 2, 0, 1))


def _conv2d_layer(n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int) -> Sequence[Tensor]:
    require(kh == kw, TaskError, "conv2d_layer", "its filters must be square", height=kh, width=kw)
    return benchmarks.conv2d_layer(n, h, w, co, ci, kh, kw, 1, kh // 2)


def _torch_conv2d_layer(torch: Any, n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int) -> Library:
    conv, relu = torch.nn.functional.conv2d, torch.relu
    return Library(lambda data, weight, bias: relu(conv(data, weight, bias.flatten(), padding=kh // 2)))


def _depthwise(n: int, h: int, w: int, c: int, kh: int, kw: int) -> Sequence[Tensor]:
    data, weight = placeholder((n, h, w, c), name="data"), placeholder((kh, kw, c, 1), name="weight")
    return [data, weight, nn.depthwise_conv2d_nhwc(data, weight, 1, _padding(kh, kw, None), 1)]


def _torch_depthwise(torch: Any, n: int, h: int, w: int, c: int, kh: int, kw: int) -> Library:
    padding, conv = _padding(kh, kw, None), torch.nn.functional.conv2d
    return _channels_last(lambda data, weight: conv(data, weight, padding=padding, groups=c), (2, 3, 0, 1))


def _conv3d(n: int, d: int, h: int, w: int, ci: int, co: int, *window: int) -> Sequence[Tensor]:
    data, weight = placeholder((n, d, h, w, ci), name="data"), placeholder((*window, ci, co), name="weight")
    return [data, weight, nn.conv3d_ndhwc(data, weight, 1, tuple([k // 2 for k in window]), 1)]


def _torch_conv3d(torch: Any, n: int, d: int, h: int, w: int, ci: int, co: int, *window: int) -> Library:
    padding, conv = tuple([k // 2 for k in window]), torch.nn.functional.conv3d
    return _channels_last(lambda data, weight: conv(data, weight, padding=padding), (4, 3, 0, 1, 2))


def _layer_norm(m: int, n: int) -> Sequence[Tensor]:
    data = placeholder((m, n), name="data")
    gamma, beta = [placeholder((n,), name=name) for name in ("gamma", "beta")]
    return [data, gamma, beta, nn.layer_norm(data, gamma, beta)]


def _torch_layer_norm(torch: Any, m: int, n: int) -> Library:
    norm = torch.nn.functional.layer_norm
    return Library(lambda data, gamma, beta: norm(data, (n,), gamma, beta))


def _attention(causal: bool) -> Callable[..., Sequence[Tensor]]:
    typed = _typed_attention(causal)
    return lambda *shape: typed("float32", *shape)


def _typed_attention(causal: bool) -> Callable[..., Sequence[Tensor]]:
    """Of halves: scores, softmax and sums in float32, shares and results rounded to halves."""

    def tensors(dtype: str, b: int, h: int, t: int, d: int) -> Sequence[Tensor]:
        return _attention_tensors(dtype, b * h, t, t, d, causal)

    return tensors


def _attention_tensors(dtype: str, heads: int, m: int, n: int, d: int, causal: bool = False) -> Sequence[Tensor]:
    q, k, v = [placeholder((heads, rows, d), name=name, dtype=dtype) for name, rows in (("Q", m), ("K", n), ("V", n))]
    scores = topi.multiply(nn.batch_matmul(q, k, out_dtype="float32"), d**-0.5)
    if causal:
        seen = scores
        scores = compute(
            seen.shape, lambda n, i, j: if_then_else(j <= i, seen[n, i, j], const(-np.inf, "float32")), name="seen"
        )
    shares = topi.cast(nn.softmax(scores), dtype)
    return [q, k, v, topi.cast(nn.batch_matmul(shares, v, out_dtype="float32", transpose_b=False), dtype)]


def _decode(dtype: str, b: int, h: int, k: int, t: int, d: int) -> Sequence[Tensor]:
    """The heads that share keys are rows of one product."""
    return _attention_tensors(dtype, b * k, h // k, t, d)


def _torch_attention(causal: bool) -> Callable[..., Library]:
    """The backend of PyTorch that is fastest where it can: cuDNN's first, which PyTorch itself tries late."""

    def library(torch: Any, b: int, h: int, t: int, d: int) -> Library:
        one, kinds = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention.SDPBackend
        order = [kinds.CUDNN_ATTENTION, kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.MATH]

        def attention(q: Any, k: Any, v: Any) -> Any:
            with torch.nn.attention.sdpa_kernel(order, set_priority=True):
                return one(q, k, v, is_causal=causal)

        return Library(attention, lambda *heads: [x.unflatten(0, (b, h)) for x in heads], lambda x: x.flatten(0, 1))

    return library


def _torch_decode(torch: Any, b: int, h: int, k: int, _t: int, d: int) -> Library:
    """By the same order of backends."""
    one, kinds = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention.SDPBackend
    order = [kinds.CUDNN_ATTENTION, kinds.FLASH_ATTENTION, kinds.MATH]

    def attention(query: Any, keys: Any, values: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(order, set_priority=True):
            return one(query, keys, values, enable_gqa=True)

    def enter(query: Any, *cache: Any) -> Tensors:
        return [query.reshape(b, h, 1, d), *[x.unflatten(0, (b, k)) for x in cache]]

    return Library(attention, enter, lambda x: x.reshape(b * k, h // k, d))


def _of_data(f: Callable[[Tensor], Tensor]) -> Callable[..., Sequence[Tensor]]:
    """The computation `f` of one input."""

    def tensors(*shape: int) -> Sequence[Tensor]:
        data = placeholder(shape, name="data")
        return [data, f(data)]

    return tensors


_LINEAR = Operator("NxNxN", _linear, _torch_linear, _product(True))

OPERATORS: Mapping[str, Operator] = {
    "linear": _LINEAR,
    "dense": _LINEAR,
    "matmul": Operator(
        "NxNxN", benchmarks.matmul, lambda torch, *_: Library(torch.matmul, numpy=np.matmul), _product(False)
    ),
    "batch_matmul": Operator("NxNxNxN", benchmarks.batch_matmul, lambda torch, *_: Library(torch.bmm)),
    "conv2d": Operator(
        r"NxNxNxN->N NxN(?: stride N)?(?: pad (\d+))?", _conv2d, _torch_conv2d, _typed_conv2d, _winograd
    ),
    "conv2d_layer": Operator("NxNxNxN->N NxN", _conv2d_layer, _torch_conv2d_layer),
    "depthwise_conv2d": Operator("NxNxNxN NxN", _depthwise, _torch_depthwise),
    "conv3d": Operator("NxNxNxNxN->N NxNxN", _conv3d, _torch_conv3d, others=_winograd3d),
    "softmax": Operator("NxN", benchmarks.softmax, lambda torch, *_: Library(lambda x: torch.softmax(x, -1))),
    "layer_norm": Operator("NxN", _layer_norm, _torch_layer_norm),
    "row_sums": Operator("NxN", _of_data(lambda x: topi.sum(x, 1)), lambda torch, *_: Library(lambda x: x.sum(1))),
    "column_sums": Operator("NxN", _of_data(lambda x: topi.sum(x, 0)), lambda torch, *_: Library(lambda x: x.sum(0))),
    "argmax": Operator("NxN", _of_data(lambda x: topi.argmax(x, 1)), lambda torch, *_: Library(lambda x: x.argmax(1))),
    "attention": Operator("NxNxNxN", _attention(False), _torch_attention(False), _typed_attention(False)),
    "causal_attention": Operator("NxNxNxN", _attention(True), _torch_attention(True), _typed_attention(True)),
    "decode_attention": Operator("NxNxNxNxN", partial(_decode, "float32"), _torch_decode, _decode),
    "global_avg_pool": Operator(
        "NxNxNxN", _of_data(lambda x: nn.global_pool(x, "avg")),
        lambda torch, *_: Library(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1)),
    ),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """An operator at a shape, and its limits by target."""

    name: str
    part: str
    limits: Mapping[str, tuple[Limit, ...]]

    @property
    def arithmetic(self) -> str:
        """One of `ARITHMETIC`, or nothing for float32."""
        last = self.name.rpartition(" ")[2]
        return last if last in ARITHMETIC else ""

    @property
    def precision(self) -> str:
        """That of the target."""
        return self.arithmetic if self.arithmetic in PRECISIONS else STRICT

    def _read(self) -> tuple[Operator, list[int | None]]:
        kind, _, shape = self.name.removesuffix(f" {self.arithmetic}").partition(" ")
        law = f"it must begin with one of {', '.join(OPERATORS)}"
        require(kind in OPERATORS, TaskError, f"row {self.name!r}", law)
        pattern = OPERATORS[kind].shape
        found = re.fullmatch(pattern.replace("N", r"([1-9]\d*)"), shape)
        require(found is not None, TaskError, f"row {self.name!r}", f"after the operator, {pattern} is needed")
        assert found is not None
        return OPERATORS[kind], [None if group is None else int(group) for group in found.groups()]

    def tensors(self) -> list[Tensor]:
        """Our computation: inputs, then the output.  Raises TaskError for a name that cannot be read."""
        chosen, numbers = self._read()
        law, typed = f"of {self.arithmetic} there are products only", chosen.typed
        require(not self.arithmetic or typed is not None, TaskError, f"row {self.name!r}", law)
        if self.arithmetic in DTYPES and typed is not None:
            return list(typed(DTYPES[self.arithmetic], *numbers))
        return list(chosen.ours(*numbers))

    def computations(self, target: str) -> dict[str, list[Tensor]]:
        """All our computations for a target by name: the same inputs, then the output; `tensors` is the first.

        Raises TaskError for a name that cannot be read.
        """
        chosen, numbers = self._read()
        others = {} if self.arithmetic else chosen.others(target, *numbers)
        return {PLAIN: self.tensors(), **{name: list(tensors) for name, tensors in others.items()}}

    def library(self, torch: Any) -> Library:
        """PyTorch's operator."""
        chosen, numbers = self._read()
        return chosen.theirs(torch, *numbers)


def moved_bytes(dag: ComputeDAG) -> int:
    """The bytes of all inputs, read once, and of all outputs, written once."""
    return sum(prod(t.shape) * np.dtype(t.dtype).itemsize for t in [*dag.inputs, *dag.outputs])


def read_rows(file: Path) -> list[Row]:
    """The rows of a file, those of geometric means among them.  Raises TaskError for what cannot be read."""
    with file.open(newline="") as text:
        lines = list(csv.DictReader(text))
    rows = []
    for n, line in enumerate(lines, 2):
        require(bool(line.get("row")), TaskError, f"{file}:{n}", "a column `row` is needed", found=list(line))
        limits = {target: limits_of(line.get(target) or "") for target in TARGETS}
        row = Row(line["row"].strip(), line.get("part") or file.stem, limits)
        if row.name != MEAN:
            row.tensors()
        rows.append(row)
    return rows


def chosen_rows(rows: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """The rows, in order, whose part is one of `patterns`, or whose name one of them fits; without means.

    Raises TaskError for a pattern that no row fits.
    """
    found = [r for r in rows if r.name != MEAN]
    for pattern in patterns:
        law = "it must be a part, a name or a pattern such as 'softmax *'"
        require(any(_fits(r, pattern) for r in found), TaskError, f"--rows {pattern!r}", law)
    return [r for r in found if not patterns or any(_fits(r, p) for p in patterns)]


def of_target(rows: Sequence[Row], target: str) -> list[Row]:
    """The rows that a target can compute; those left out are told in one line.  Raises TaskError where none is left."""
    left = [r for r in rows if target == "cuda" or not r.arithmetic]
    kinds = ", ".join(sorted({r.arithmetic for r in rows} - {r.arithmetic for r in left}))
    law = f"products in {kinds} are for GPUs only: --target cuda"
    require(left or not rows, TaskError, f"the {len(rows)} rows", law)
    if len(left) < len(rows):
        print(f"{len(rows) - len(left)} of {len(rows)} rows are left out: {law}", file=sys.stderr, flush=True)
    return left


def _fits(row: Row, pattern: str) -> bool:
    return row.part == pattern or fnmatchcase(row.name, pattern)
