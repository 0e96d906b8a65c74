"""Every operator of ATen that is imported gives what PyTorch does, by the reference executor, at shapes that hurt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import relay_lite as relay
from relay_lite import reference
from relay_lite.frontend.torch.importer import import_graph
from relay_lite.frontend.torch.program import AtenGraph, AtenNode, Ref, TensorInfo
from tests.nonempty import nonempty

F, E4M3 = torch.nn.functional, torch.float8_e4m3fn
pytestmark = pytest.mark.torch
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def some(*shape: int) -> Any:
    return torch.randn(shape)


def ints(low: int, high: int, *shape: int) -> Any:
    return torch.randint(low, high, shape)


def case(function: Callable[..., Any], *inputs: Any) -> None:
    """Add a case; it is called by its text and the shapes."""
    text = " ".join(inspect.getsource(function).split()) if function.__name__ == "<lambda>" else function.__name__
    body = text.partition("lambda")[2].partition(": ")[2] or text
    CASES[f"{len(CASES)} {body[:48]}"] = function, inputs


torch.manual_seed(0)
ELEMENTWISE = (
    "abs acosh asinh atan ceil cos cosh erf exp expm1 floor log log10 log1p log2 neg reciprocal round rsqrt sigmoid "
    "sign sin sinh sqrt square tan tanh trunc relu isnan isinf logical_not"
)
ACTIVATIONS = "relu6 silu mish hardsigmoid hardswish hardtanh leaky_relu elu selu celu gelu softplus softsign"
POSITIVE = ("rsqrt", "sqrt", "log", "log2", "log10", "log1p", "acosh")
for name in ELEMENTWISE.split():
    case(getattr(torch, name), some(3, 7).abs() + 1.1 if name in POSITIVE else some(3, 7) * 3)
for name in ("acos", "asin", "atanh"):
    case(getattr(torch, name), torch.rand(5, 3) - 0.5)
for function in (torch.log1p, torch.expm1):
    case(function, torch.tensor([0.0, 1e-12, -1e-9, 3e-5, -0.4, 0.9, 5.0, 1e-40, 30.0]))
for name in ("exp", "sqrt", "abs", "neg", "sign", "bitwise_not", "isnan", "isinf"):
    case(getattr(torch, name), ints(0, 9, 4, 3))
for name in ["add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"]:
    case(getattr(torch, name), some(5, 1, 3), some(7, 3) + 0.1)
    case(getattr(torch, name), ints(-9, 9, 5, 3), ints(1, 5, 3))
    case(getattr(torch, name), ints(-9, 9, 5, 3), some(3) + 0.1)
for f in [getattr(torch, name) for name in ["add", "sub", "mul", "div", "eq", "lt", "remainder", "fmod"]]:
    case(lambda x, f=f: f(x, 3), ints(-9, 9, 5, 3))
    case(lambda x, f=f: f(x, 2.5), ints(-9, 9, 5, 3))
    case(lambda x, f=f: f(x, 2), some(5, 3))
for name in ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]:
    case(getattr(torch, name), some(5, 3) > 0, some(3) > 0)
    case(getattr(torch, name), ints(0, 4, 5, 3), ints(0, 4, 3))
case(lambda x, y: torch.add(x, y, alpha=2.5), some(3, 2), some(2))
case(lambda x, y: torch.rsub(x, y, alpha=2), some(3, 2), some(2))
case(lambda x: 1.5 - x, some(3, 2))
case(lambda x: 1.5 - x, ints(0, 5, 3, 2))
case(lambda x, y: torch.div(x, y, rounding_mode="floor"), some(5, 3), some(3))
case(lambda x, y: torch.div(x, y, rounding_mode="trunc"), some(5, 3), some(3))
case(lambda x, y: torch.div(x, y, rounding_mode="floor"), ints(-9, 9, 5, 3), ints(1, 4, 3))
case(lambda x, y: torch.div(x, y, rounding_mode="trunc"), ints(-9, 9, 5, 3), ints(1, 4, 3))
case(lambda x: x // 4, ints(-9, 9, 5, 3))
for exponent in (2, 3, 0.5, -0.5, -1, -2, 1.7):
    case(lambda x, e=exponent: x**e, some(3, 5).abs() + 0.1)
case(lambda x, y: x**y, some(3, 5).abs() + 0.1, some(5))
case(lambda x: 2.0**x, some(3, 5))
case(lambda x: x**2, ints(-5, 5, 3, 5))
case(lambda x, y: torch.where(x > 0, x, y), some(3, 5), some(5))
case(lambda x, y: torch.where(x, 1.0, y), some(3, 5) > 0, some(5))
case(lambda x: x.masked_fill(x > 0, float("-inf")), some(3, 5))
case(lambda x: x.clamp(-0.5, 0.5), some(3, 5))
case(lambda x: x.clamp(max=0.5), some(3, 5))
case(lambda x: x.clamp(min=2), ints(0, 9, 3, 5))
case(lambda x, y: torch.clamp(x, min=y), some(3, 5), some(5))
case(lambda x: torch.nan_to_num(x), torch.tensor([1.0, float("nan"), float("inf"), float("-inf")]))
case(lambda x: x.to(torch.int32), some(3, 5) * 5)
case(lambda x: x.to(torch.bool), ints(0, 2, 3, 5))
case(lambda x: x.double(), some(3, 5))
case(lambda x: x.to(torch.bfloat16).float(), some(3, 5))
case(lambda x, y: (x.bfloat16() @ y.bfloat16()).float(), some(3, 5), some(5, 2))
case(lambda x: x == 0.5, ints(0, 3, 4))
case(lambda x, y: x < y, ints(0, 3, 4), torch.tensor(1.5))
for name in [
    "relu6",
    "silu",
    "mish",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "softplus",
    "softsign",
]:
    case(getattr(F, name), some(3, 7) * 4)
case(lambda x: F.gelu(x, approximate="tanh"), some(3, 7))
case(lambda x: F.softplus(x, beta=3, threshold=2), some(3, 7) * 3)
case(lambda x: F.elu(x, alpha=0.3), some(3, 7))
case(F.prelu, some(2, 3, 5), torch.rand(3))
case(F.prelu, some(2, 3, 5), torch.rand(1))
case(lambda x: F.glu(x, 1), some(3, 8))
case(lambda x: F.threshold(x, 0.1, 20.0), some(3, 8))
for axis in (0, 1, -1):
    case(lambda x, a=axis: F.softmax(x, a), some(3, 5, 7))
    case(lambda x, a=axis: F.log_softmax(x, a), some(3, 5, 7))
    case(lambda x, a=axis: x.cumsum(a), some(3, 5, 7))
for f in [getattr(torch, name) for name in ["sum", "mean", "amax", "amin"]]:
    case(lambda x, f=f: f(x, dim=(0, 2)), some(3, 5, 7))
    case(lambda x, f=f: f(x, dim=(-1,), keepdim=True), some(3, 5, 7))
case(lambda x: x.sum(), some(3, 5))
case(lambda x: x.mean(), some(3, 5))
case(lambda x: x.max(), some(3, 5))
case(lambda x: x.min(), some(3, 5))
case(lambda x: x.sum(0), ints(0, 5, 3, 5))
case(lambda x: x.sum(), some(3, 5) > 0)
case(lambda x: x.sum(), torch.tensor(3.0))
case(lambda x: x.prod(1), some(3, 5))
case(lambda x: x.prod(), some(3, 2))
case(lambda x: (x > 0).any(1), some(3, 5))
case(lambda x: (x > -1).all(0), some(3, 5))
case(lambda x: (x > -1).all(), some(3, 5))
case(lambda x: x.any(1, keepdim=True), ints(0, 2, 3, 5))
case(lambda x: x.max(1), some(3, 5))
case(lambda x: x.min(0, keepdim=True), some(3, 5))
case(lambda x: x.argmax(1), some(3, 5))
case(lambda x: x.argmin(), some(3, 5))
case(lambda x: x.argmax(0, keepdim=True), some(3, 5))
case(lambda x: x.var(1), some(3, 5))
case(lambda x: x.std((0, 2), unbiased=False, keepdim=True), some(3, 5, 2))
case(lambda x: torch.var_mean(x, 1), some(3, 5))
case(lambda x: torch.logsumexp(x, 1), some(3, 5))
for order in (1, 2, float("inf")):
    case(lambda x, o=order: torch.linalg.vector_norm(x, o, dim=1), some(3, 5))
case(lambda x: x.topk(3, 1), some(4, 7))
case(lambda x: x.topk(50, 0, largest=False), some(130, 2))
SPECIAL = torch.tensor([3.0, float("nan"), -1.0, float("inf"), 3.0, -0.0, 0.0, float("-inf"), float("nan"), 3.0])
for descending in (False, True):
    case(lambda x, d=descending: torch.sort(x, stable=True, descending=d), SPECIAL.repeat(9))
    case(lambda x, d=descending: torch.sort(x, dim=1, descending=d, stable=True), ints(0, 5, 2, 70, 3))
    case(lambda x, d=descending: torch.argsort(x, dim=0, descending=d, stable=True), ints(0, 5, 70, 3))
case(lambda x: torch.sort(x, stable=True)[0], some(3, 40).half())
for dim in (0, 1, -1):
    case(lambda x, d=dim: (x.cumsum(d), x.cumprod(d)), some(3, 140, 2))
case(lambda x: (x.cumsum(0), x.cumsum(0, dtype=torch.float64), (x > 2).cumsum(0)), ints(0, 5, 300))
case(lambda x: x.topk(2, 0, largest=False), some(4, 7))
case(lambda x: x.sort(1, descending=True), some(4, 7))
case(lambda x: x.sort(0), some(4, 7))
case(lambda x: x.view(5, -1).reshape(3, 7, 5), some(3, 5, 7))
case(lambda x: x.permute(2, 0, 1), some(3, 5, 7))
case(lambda x: x.transpose(0, 1).contiguous(), some(3, 5))
case(lambda x: x.expand(4, 3, 5), some(3, 1))
case(lambda x: x[:, None].squeeze(1).squeeze(), some(1, 5, 1))
case(lambda x: x.squeeze((0, 2)), some(1, 5, 1))
case(lambda x, y: torch.cat([x, y], -1), some(3, 5), some(3, 2))
case(lambda x, y: torch.stack([x, y], 1), some(3, 5), some(3, 5))
case(lambda x, y: torch.cat([x, y]), some(3), ints(0, 3, 4))
case(lambda x: x[1:, ::2], some(3, 5))
case(lambda x: x[:, -3:-1], some(3, 5))
case(lambda x: x[..., -1], some(3, 5))
case(lambda x: x[1], some(3, 5))
case(lambda x: x.chunk(2, 1), some(3, 5))
case(lambda x: x.split([1, 4], 1), some(3, 5))
case(lambda x: x.unbind(1), some(3, 5))
case(lambda x: x.flip(0, 1), some(3, 5))
case(lambda x: x.roll((1, -2), (0, 1)), some(3, 5))
case(lambda x: x.repeat(2, 1, 3), some(3, 5))
case(lambda x: x.repeat_interleave(2, 1), some(3, 5))
case(lambda x: x.tril(1) + x.triu(-1), some(4, 5))
case(lambda x: F.pad(x, (1, 2, 3, 0), value=1.5), some(3, 5))
case(lambda x: F.pad(x, (-1, 2)), some(3, 5))
case(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), some(1, 2, 5, 4))
case(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), some(1, 2, 5, 4))
case(lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), some(1, 2, 5, 4))
case(lambda x: x.as_strided((2, 3), (1, 2), 1), some(3, 5))
case(lambda x: x.t().contiguous().as_strided((3, 2), (1, 4)), some(3, 5))
case(lambda x: x.t().as_strided((3, 2), (1, 4)), some(3, 5))
case(lambda x: x.unfold(1, 3, 2), some(2, 9))
case(lambda x: F.unfold(x, 3, padding=1), some(1, 2, 5, 4))
case(lambda x: F.pixel_shuffle(x, 2), some(1, 8, 3, 5))
case(lambda x: F.pixel_unshuffle(x, 2), some(1, 2, 4, 6))
case(lambda x: F.channel_shuffle(x, 2), some(1, 8, 3, 5))
case(lambda x: torch.diagonal(x, 1), some(4, 5))
case(lambda x: torch.diagonal(x, -1, 0, 2), some(4, 3, 5))
case(lambda x: torch.arange(5, dtype=torch.float32) * x, some(5))
case(lambda x: torch.arange(1, 9, 2) + x, ints(0, 5, 4))
case(lambda x: torch.full((2, 3), 2.5) + x + torch.zeros_like(x) + torch.ones(3), some(2, 3))
case(lambda x: torch.full_like(x, 7).new_zeros(3) + x, some(2, 3))
case(lambda i, w: F.embedding(i, w), ints(0, 7, 2, 3), some(7, 5))
case(lambda x, i: x.index_select(1, i), some(3, 5), ints(0, 5, 4))
case(lambda x, i: x.gather(1, i), some(3, 5), ints(0, 5, 3, 4))
case(lambda x, i: x[i], some(7, 5), ints(-7, 7, 2, 3))
case(lambda x, i: x[:, i], some(3, 5, 2), ints(0, 5, 4))
case(lambda x, i, j: x[:, i, j], some(3, 5, 7), ints(0, 5, 4), ints(0, 7, 2, 1))
case(lambda x, i, j: x[i, :, j], some(3, 5, 7), ints(0, 3, 4), ints(0, 7, 4))
case(lambda x: x[[0, 2], [1, 3]], some(3, 5))
case(lambda x, i, y: x.scatter(1, i, y), some(3, 5), torch.tensor([[0, 3], [4, 1], [2, 0]]), some(3, 2))
case(lambda x, i: x.scatter(1, i, 1.5), some(3, 5), ints(0, 5, 3, 2))
case(lambda x, i, y: x.scatter_add(0, i, y), some(3, 5), ints(0, 3, 3, 5), some(3, 5))
case(lambda x, i, y: x.index_put((i,), y), some(5, 3), torch.tensor([4, 0]), some(2, 3))
case(lambda x, i, y: x.index_put((i,), y, accumulate=True), some(5, 3), ints(0, 5, 7), some(7, 3))
case(lambda x, i, y: x.index_add(0, i, y), some(5, 3), ints(0, 5, 7), some(7, 3))


def assigned(x: Any, y: Any) -> Any:
    x = x.clone()
    x[1:, ::2] = y
    x[0] = 3
    return x


case(assigned, some(4, 5), some(3))
case(torch.mm, some(3, 5), some(5, 2))
case(torch.bmm, some(2, 3, 5), some(2, 5, 2))
case(torch.matmul, some(4, 1, 3, 5), some(2, 5, 2))
case(torch.mv, some(3, 5), some(5))
case(torch.dot, some(5), some(5))
case(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), some(2), some(3, 5), some(5, 2))
case(lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5, alpha=2), some(2, 1, 4), some(2, 3, 5), some(2, 5, 4))
case(F.linear, some(2, 3, 5), some(7, 5), some(7))
for scales in [(torch.tensor(0.5), torch.tensor(3.0)), (torch.rand(16, 1), torch.rand(1, 32))]:
    case(
        lambda x, y, *s: torch._scaled_mm(x.to(E4M3), y.to(E4M3).t(), *s, out_dtype=torch.float32),
        some(16, 48), some(32, 48), *scales,
    )  # fmt: skip
case(lambda x, y: torch.einsum("bij,bkj->bik", x, y), some(2, 3, 5), some(2, 4, 5))
case(F.conv1d, some(2, 3, 9), some(5, 3, 3), some(5))
case(lambda x, w: F.conv1d(x, w, padding=1), some(3, 9), some(5, 3, 3))
case(lambda x, w: F.conv2d(x, w, stride=2, padding=(1, 2), dilation=2, groups=2), some(1, 4, 11, 9), some(6, 2, 3, 3))
case(lambda x, w: F.conv2d(x, w, padding="same"), some(1, 4, 11, 9), some(6, 4, 4, 3))
case(lambda x, w: F.conv3d(x, w, padding=1), some(1, 2, 4, 5, 3), some(3, 2, 3, 3, 3))
case(lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, output_padding=1), some(1, 4, 5, 3), some(4, 3, 3, 3), some(3))
case(lambda x, w: F.conv_transpose1d(x, w, stride=3), some(1, 4, 5), some(4, 2, 3))
case(lambda x, w, b: F.conv_transpose1d(x, w, b, padding=2, dilation=3), some(2, 4, 7), some(4, 3, 5), some(3))
case(lambda x, w: F.conv_transpose1d(x, w, padding=1, output_padding=2, dilation=3), some(1, 2, 5), some(2, 3, 2))
case(lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, dilation=2), some(2, 4, 7), some(4, 3, 3), some(3))
case(lambda x, w: F.conv_transpose1d(x, w, None, 4, 3, 1, 2, 6), some(1, 4, 5), some(4, 3, 3))
case(lambda x, w: F.conv_transpose1d(x, w, None, 2, 3, 1, 3, 3), some(1, 6, 7), some(6, 2, 4))
case(lambda x, w, b: F.conv_transpose2d(x, w, b, 2), some(1, 4, 5, 3), some(4, 3, 1, 1), some(3))
case(lambda x, w: F.conv_transpose2d(x, w, None, (2, 3), 1, (1, 2)), some(1, 4, 3, 3), some(4, 3, 1, 2))
case(lambda x, w: F.conv_transpose2d(x, w, padding=1, groups=2), some(2, 4, 5, 3), some(4, 3, 3, 2))
case(lambda x, w, b: F.conv_transpose2d(x, w, b, 5, 1, dilation=2), some(2, 4, 3, 5), some(4, 3, 3, 3), some(3))
case(
    lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 2), (1, 2), 2, (2, 1)),
    some(1, 4, 5, 3),
    some(4, 3, 3, 5),
    some(6),
)
case(lambda x, w: F.conv_transpose2d(x, w, None, (3, 1), (2, 3)), some(1, 2, 5, 7), some(2, 3, 2, 3))
case(lambda x, w: F.conv_transpose3d(x, w, None, 2, 1, 0, 1, 2), some(1, 2, 3, 2, 4), some(2, 3, 3, 3, 3))
case(lambda x, w, b: F.conv_transpose3d(x, w, b, 2, (1, 2, 3), 1, 2), some(1, 4, 2, 3, 4), some(4, 3, 3, 5, 7), some(6))
case(lambda x, w: F.conv_transpose3d(x, w, padding=1), some(2, 2, 3, 4, 2), some(2, 3, 3, 2, 3))
case(
    lambda x, w: F.conv_transpose1d(x.double(), w.double(), None, 4, 1, 1, 2, 2),
    some(1, 4, 5),
    some(4, 2, 3),
)
case(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), some(2, 3, 5), some(3), torch.rand(3) + 1, some(3), some(3))
case(lambda x, m, v: F.batch_norm(x, m, v), some(2, 3, 5, 2), some(3), torch.rand(3) + 1)
for shape in ((3, 4), (2, 3, 5), (1, 3, 5), (2, 3, 2, 3), (2, 3, 2, 3, 2), (3, 2, 300, 120)):
    case(lambda x: F.batch_norm(x, None, None, training=True), some(*shape) * 3 + 5)
case(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True, eps=0.1), some(2, 3, 5, 2), some(3), some(3))
case(lambda x, w: F.batch_norm(x.double(), None, None, w.double(), training=True), some(2, 3, 5, 2), some(3))
case(lambda x, w, b: F.layer_norm(x, (5, 7), w, b), some(2, 5, 7), some(5, 7), some(5, 7))
case(lambda x: F.layer_norm(x, (7,)), some(2, 5, 7))
case(lambda x, w, b: F.group_norm(x, 2, w, b), some(2, 6, 5), some(6), some(6))
case(lambda x: F.group_norm(x, 3), some(2, 6, 5, 2))
case(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), some(2, 3, 5, 4), some(3), some(3))
case(lambda x, w: F.rms_norm(x, (7,), w), some(2, 5, 7), some(7))
case(lambda x: F.local_response_norm(x, 3), some(1, 5, 4, 4))
case(lambda x: F.max_pool2d(x, 3, 2, 1), some(1, 3, 9, 7))
case(lambda x: F.max_pool2d(x, 2, ceil_mode=True), some(3, 9, 7))
case(lambda x: F.max_pool1d(x, 3, 2, dilation=2), some(2, 3, 9))
case(lambda x: F.max_pool3d(x, 2), some(1, 2, 4, 5, 6))
case(lambda x: F.avg_pool2d(x, 3, 2, 1), some(1, 3, 9, 7))
case(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), some(1, 3, 9, 7))
case(lambda x: F.avg_pool1d(x, 3), some(1, 3, 9))
case(lambda x: F.avg_pool3d(x, 2), some(1, 2, 4, 5, 6))
for size in (1, 3, (5, 2), (4, 3)):
    case(lambda x, s=size: F.adaptive_avg_pool2d(x, s), some(2, 3, 9, 6))
case(lambda x: F.adaptive_avg_pool1d(x, 4), some(2, 3, 9))
case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), some(1, 2, 5, 8), some(1, 2, 7, 8), some(1, 2, 7, 8))
case(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), some(1, 2, 5, 8))
case(lambda q, m: F.scaled_dot_product_attention(q, q, q, m, scale=0.3), some(1, 2, 5, 8), some(5, 5) > -0.5)
case(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), some(2, 2, 5, 8), some(2, 1, 5, 5))
for lead in ((), (2,), (3,), (2, 3, 2)):
    case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v), some(*lead, 4, 8), some(*lead, 6, 8), some(*lead, 6, 5)
    )
    case(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), some(*lead, 4, 8), some(4, 4) > 0)
    case(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), some(*lead, 4, 8), some(*lead, 4, 1))
    case(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3), some(*lead, 4, 8))
case(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), some(2, 4, 5, 8), some(2, 2, 7, 8))
case(
    lambda q, k: F.scaled_dot_product_attention(q, *[k.repeat_interleave(2, 1)] * 2), some(2, 4, 1, 8), some(2, 2, 7, 8)
)
case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), some(2, 3, 5, 8), some(1, 3, 7, 8), some(1, 1, 7, 4))
case(
    lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m), some(2, 2, 5, 8), some(1, 2, 7, 8), some(2, 1, 5, 1) > 0
)
case(
    lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m), some(2, 2, 3, 5, 8), some(2, 2, 3, 7, 8), some(3, 1, 7)
)
case(lambda x: F.interpolate(x, scale_factor=2), some(1, 2, 5, 3))
case(lambda x: F.interpolate(x, size=(7, 4)), some(1, 2, 5, 3))
case(lambda x: F.interpolate(x, size=(7, 4), mode="bilinear"), some(1, 2, 5, 3))
case(lambda x: F.interpolate(x, size=(7, 4), mode="bilinear", align_corners=True), some(1, 2, 5, 3))
case(lambda x: F.interpolate(x, size=(7, 4), mode="bicubic"), some(1, 2, 5, 3))
case(lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), some(1, 2, 6, 4))
case(lambda x, g: F.grid_sample(x, g, align_corners=False), some(1, 2, 5, 4), torch.rand(1, 3, 3, 2) * 2 - 1)
case(lambda x, g: F.grid_sample(x, g, "nearest", "border", True), some(1, 2, 5, 4), torch.rand(1, 3, 3, 2) * 3 - 1.5)


class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def imported(function: Callable[..., Any], inputs: tuple[Any, ...]) -> relay.IRModule:
    with torch.no_grad():
        program = torch.export.export(Calls(function).eval(), inputs)
    return relay.frontend.from_exported_program(program)[0]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_means_what_it_does_in_pytorch(name: str) -> None:
    function, inputs = CASES[name]
    mod = imported(function, inputs)
    given = {v.name: x.numpy() for v, x in zip(mod["main"].params, inputs, strict=True)}
    got = reference.run(mod, given, {})
    want = function(*inputs)
    pairs = list(zip(got, want, strict=True)) if isinstance(got, tuple) else [(got, want)]
    for g, w in nonempty(pairs):
        wanted = w.numpy() if isinstance(w, torch.Tensor) else w[0].numpy()
        assert (g.shape, str(g.dtype)) == (wanted.shape, str(wanted.dtype))
        finite = wanted[np.isfinite(wanted)]
        most = float(np.abs(finite.astype(np.float64)).max(initial=0.0))
        np.testing.assert_allclose(g, wanted, rtol=2e-5, atol=1e-6 * most)


@pytest.mark.parametrize("name", ["efficient", "flash", "cudnn"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_as_pytorch_has_it_on_gpus(name: str, causal: bool) -> None:
    """Where there is no GPU, PyTorch has these operators by name only."""
    query, key, value = (some(2, 3, 5, 8) for _ in range(3))
    bias = None if causal or name == "flash" else some(2, 1, 5, 5)
    values = {"query": query, "key": key, "value": value, **({} if bias is None else {"attn_bias": bias})}
    infos = {k: TensorInfo(tuple(x.shape), "float32", tuple(x.stride())) for k, x in values.items()}
    args = {**{k: Ref(k) for k in values}, "dropout_p": 0.0, "is_causal": causal, "scale": 0.3}
    node = AtenNode(f"aten._scaled_dot_product_{name}_attention.default", "attention", args, ("out", None, None, None))
    mod = import_graph(AtenGraph(tuple(values), {}, (node,), ("out",), {**infos, "out": infos["query"]}))
    got = reference.run(mod, {k: x.numpy() for k, x in values.items()}, {})
    want = F.scaled_dot_product_attention(query, key, value, bias, is_causal=causal, scale=0.3)
    np.testing.assert_allclose(got, want.numpy(), rtol=2e-5, atol=1e-6)
