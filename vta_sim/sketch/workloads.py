"""Packed operators by the names that records call them: what a search of target `vta` is asked for.

    SearchTask("vta_conv2d", args=(1, 56, 56, 4, 4, 3, 3, 1, 1), target="vta")

Channels are blocks; results are shifted by 8 bits, clipped to 0..127 and narrowed, as those of templates are.
"""

from __future__ import annotations

import te_lite as te
from ansor.core.tasks.workloads import register_workload
from te_lite import Tensor

from ..core.config import Config
from ..top import conv2d_grouped_packed, conv2d_packed, dense_packed, requantized

BLOCK = Config().block_in


@register_workload("vta_conv2d")
def conv2d(n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int, pad: int) -> list[Tensor]:
    """A convolution of `n` images with the blocks of the default machine: data, weights, output."""
    data = te.placeholder((n, ci, h, w, 1, BLOCK), name="data", dtype="int8")
    kernel = te.placeholder((co, ci, kh, kw, BLOCK, BLOCK), name="kernel", dtype="int8")
    return [data, kernel, requantized(conv2d_packed(data, kernel, (stride, stride), (pad, pad)))]


@register_workload("vta_dense")
def dense(n: int, ci: int, co: int) -> list[Tensor]:
    """A matrix product of `n` rows: data, weights, output."""
    data = te.placeholder((n, ci, 1, BLOCK), name="data", dtype="int8")
    weights = te.placeholder((co, ci, BLOCK, BLOCK), name="weights", dtype="int8")
    return [data, weights, requantized(dense_packed(data, weights))]


@register_workload("vta_grouped_conv2d")
def grouped_conv2d(n: int, h: int, w: int, c: int, kh: int, kw: int, stride: int, pad: int) -> list[Tensor]:
    """A convolution in groups within blocks, depthwise for one: data, weights with their zeros, output."""
    data = te.placeholder((n, c, h, w, 1, BLOCK), name="data", dtype="int8")
    kernel = te.placeholder((c, kh, kw, BLOCK, BLOCK), name="kernel", dtype="int8")
    return [data, kernel, requantized(conv2d_grouped_packed(data, kernel, (stride, stride), (pad, pad)))]
