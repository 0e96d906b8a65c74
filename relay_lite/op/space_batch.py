"""Spatial blocks moved into the batch and back: how some front ends write a dilated convolution.

The data are [N, spatial ..., rest ...]; there are as many spatial dimensions as the block has extents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, Shape, define, integers, tensors

SPLIT, JOIN = "nn.space_to_batch_nd", "nn.batch_to_space_nd"
Pairs = tuple[tuple[int, int], ...]


def _block(x: Sequence[int], attrs: Attrs, pairs: str, what: str) -> tuple[Shape, Pairs]:
    """The extents of the block, and the amounts before and after on each spatial dimension."""
    block = integers(attrs["block_shape"], what)
    require(isinstance(attrs[pairs], tuple), GraphError, what, f"{pairs} must be pairs", got=attrs[pairs])
    amounts = tuple(integers(pair, what) for pair in attrs[pairs])
    fits = len(block) == len(amounts) < len(x) and all(b > 0 for b in block)
    sound = fits and all(len(pair) == 2 and min(pair) >= 0 for pair in amounts)
    law = f"block_shape and {pairs} need one entry for each spatial dimension, none negative"
    require(sound, GraphError, what, law, block_shape=block, **{pairs: amounts}, data=tuple(x))
    return block, tuple((a, b) for a, b in amounts)


def _split(x: Shape, attrs: Attrs) -> tuple[Pairs, Shape, list[int], Shape]:
    """Padding of all dimensions, shape with the blocks apart, order of its dimensions, shape of the result."""
    block, paddings = _block(x, attrs, "paddings", SPLIT)
    m = len(block)
    padded = [n + a + b for n, (a, b) in zip(x[1 : m + 1], paddings, strict=True)]
    whole = all(n % b == 0 for n, b in zip(padded, block, strict=True))
    require(whole, GraphError, SPLIT, "the block must divide the padded data", padded=padded, block_shape=block)
    parts = [n // b for n, b in zip(padded, block, strict=True)]
    apart = (x[0], *(n for pair in zip(parts, block, strict=True) for n in pair), *x[m + 1 :])
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2), *range(2 * m + 1, len(apart))]
    everywhere = ((0, 0), *paddings, *((0, 0) for _ in x[m + 1 :]))
    return everywhere, apart, order, (x[0] * math.prod(block), *parts, *x[m + 1 :])


def _join(x: Shape, attrs: Attrs) -> tuple[Shape, list[int], Shape, Pairs]:
    """Shape with the blocks apart, order of its dimensions, shape with them joined, begin and end of what is kept."""
    block, crops = _block(x, attrs, "crops", JOIN)
    m, count = len(block), math.prod(block)
    require(x[0] % count == 0, GraphError, JOIN, "the block must divide the batch", batch=x[0], block_shape=block)
    apart = (*block, x[0] // count, *x[1:])
    order = [m, *(d for k in range(m) for d in (m + 1 + k, k)), *range(2 * m + 1, len(apart))]
    joined = (x[0] // count, *(n * b for n, b in zip(x[1 : m + 1], block, strict=True)), *x[m + 1 :])
    kept = tuple((a, n - b) for n, (a, b) in zip(joined[1:], crops, strict=False))
    require(all(a < b for a, b in kept), GraphError, JOIN, "the crops leave nothing", crops=crops, data=joined)
    return apart, order, joined, kept


def _split_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, SPLIT)
    return TensorType(_split(x.shape, attrs)[-1], x.dtype)


def _split_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    (x,) = args
    pads, apart, order, shape = _split(x.shape, attrs)
    padded = np.pad(x, pads, constant_values=attrs["pad_value"])
    return np.asarray(padded.reshape(apart).transpose(order).reshape(shape))


def _split_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    (x,) = args
    pads, apart, order, shape = _split(tuple(x.shape), attrs)
    padded = topi.nn.pad(x, [a for a, _ in pads], [b for _, b in pads], attrs["pad_value"])
    return [topi.reshape(topi.transpose(topi.reshape(padded, apart), order), shape)]


def _join_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, JOIN)
    _, _, joined, kept = _join(x.shape, attrs)
    return TensorType((joined[0], *(b - a for a, b in kept), *joined[len(kept) + 1 :]), x.dtype)


def _join_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    (x,) = args
    apart, order, joined, kept = _join(x.shape, attrs)
    window = (slice(None), *(slice(a, b) for a, b in kept))
    return np.asarray(x.reshape(apart).transpose(order).reshape(joined)[window])


def _join_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    (x,) = args
    apart, order, joined, kept = _join(tuple(x.shape), attrs)
    whole = topi.reshape(topi.transpose(topi.reshape(x, apart), order), joined)
    axes = range(1, len(kept) + 1)
    return [topi.strided_slice(whole, [a for a, _ in kept], [b for _, b in kept], axes=axes)]


define(SPLIT, OpPattern.INJECTIVE, _split_type, _split_numpy, _split_te, block_shape=(), paddings=(),
       pad_value=0.0)  # fmt: skip
define(JOIN, OpPattern.INJECTIVE, _join_type, _join_numpy, _join_te, block_shape=(), crops=())


def space_to_batch_nd(data: Expr, block_shape: Sequence[int], paddings: Any, pad_value: float = 0) -> Call:
    """[N, spatial, rest] padded, then [N * blocks, spatial / block, rest]: element k of every block becomes batch k."""
    return call(SPLIT, data, block_shape=block_shape, paddings=paddings, pad_value=pad_value)


def batch_to_space_nd(data: Expr, block_shape: Sequence[int], crops: Any) -> Call:
    """The inverse, after which `crops` (before and after, for each spatial dimension) are cut off."""
    return call(JOIN, data, block_shape=block_shape, crops=crops)
