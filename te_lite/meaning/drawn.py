"""Numbers drawn at any index: a hash of the place of an element, which needs none of the elements before it.

Inputs of measured programs that are too large for the host are drawn where they are needed: whole on the device that
has their arrays (`codegen_cuda/driver/array_checks.py` has the same hash in CUDA C++), and at a few places here.  They
are those of `reference.random_inputs`: floats in [-1, 1), signed integers in [-4, 4], unsigned in [0, 8].

    place     the flat index, 64 bits: `low` and `high` are its words
    h         mix(mix(low ^ key[0]) + key[1] + high * STRIDE), 32 bits, `mix` a bijection that spreads every bit
    float32   the upper 24 bits of h with their sign, times 2^-23: exact; float16 and bfloat16 are rounded from it
    float64   h with its sign, times 2^-31
    integers  the upper half of 9 * h
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expr.dtype import is_unsigned

Array = NDArray[Any]
WORD = 1 << 32
STRIDE = 0x9E3779B9
MIX = ((16, 0x21F0AAAD), (15, 0xD35A2D97), (15, 1))
"""Shift and factor of each step of `mix` (lowbias32, found by hash-prospector): x ^= x >> shift; x *= factor."""
DRAWN = frozenset({
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64",
})  # fmt: skip
"""The dtypes that are drawn so."""


def key_of(seed: int, number: int) -> tuple[int, int]:
    """Two words of 32 bits: the key of input `number`."""
    first, second = np.random.SeedSequence([seed, number]).generate_state(2)
    return int(first), int(second)


@dataclass(frozen=True)
class DrawnArray:
    """An array of `shape` and `dtype` (one of `DRAWN`) whose elements follow from `key`."""

    shape: tuple[int, ...]
    dtype: str
    key: tuple[int, int]

    def at(self, indices: Sequence[Array], wide: bool = False) -> Array:
        """The elements at integer `indices`, one array a dimension, which broadcast; `wide`: floats as float64."""
        small = math.prod(self.shape) <= WORD
        kind: Any = np.uint32 if small else np.int64
        place: Any = np.zeros((1,) * max([np.ndim(i) for i in indices], default=1), kind)
        for k, index in enumerate(indices):
            step = math.prod(self.shape[k + 1 :])
            place = place + np.asarray(index).astype(kind) * kind(step)
        return self._numbers(_hash(place, self.key), wide)

    def _numbers(self, h: Array, wide: bool) -> Array:
        if self.dtype == "bool":
            return np.asarray(h >> np.uint32(31) != 0)
        if self.dtype == "float64":
            return h.view(np.int32).astype(np.float64) * 2.0**-31
        if "float" in self.dtype:
            exact = (h.view(np.int32) >> 8).astype(np.float64 if wide and self.dtype == "float32" else np.float32)
            exact *= exact.dtype.type(2.0**-23)
            return exact if self.dtype == "float32" else _rounded(exact, self.dtype, wide)
        whole = (h.astype(np.uint64) * np.uint64(9) >> np.uint64(32)).astype(np.int64)
        return np.asarray(whole if is_unsigned(self.dtype) else whole - 4, self.dtype)

    def whole(self) -> Array:
        """All elements."""
        return self.at(np.ogrid[tuple([slice(n) for n in self.shape])]).reshape(self.shape)


def _rounded(exact: Array, dtype: str, wide: bool) -> Array:
    stored = exact.astype(np.dtype(dtype))
    return stored.astype(np.float64) if wide else stored


def _hash(place: Array, key: tuple[int, int]) -> Array:
    """The hash of places, which are changed."""
    if place.dtype == np.uint32:
        low, later = place, np.uint32(key[1])
    else:
        low = (place & (WORD - 1)).astype(np.uint32)
        later = (place >> 32).astype(np.uint32) * np.uint32(STRIDE) + np.uint32(key[1])
    low ^= np.uint32(key[0])
    scratch = np.empty_like(low)
    _mix(low, scratch)
    low += later
    _mix(low, scratch)
    return low


def _mix(x: Array, scratch: Array) -> None:
    for shift, factor in MIX:
        np.right_shift(x, np.uint32(shift), out=scratch)
        np.bitwise_xor(x, scratch, out=x)
        if factor != 1:
            np.multiply(x, np.uint32(factor), out=x)
