"""Kernels that look at arrays where they are: are two the same, is each element within its bounds; and one that fills.

`ansor.measure.check` says what is right; `within` computes the same for arrays on the device.  A measured program is
checked by reading its outputs and inputs once at the speed of the device's memory, and an answer of 4 bytes is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
THREADS = 256
MOST_BLOCKS = 4096
WORD = 8
_TYPES = {
    "bool": ("unsigned char",) * 2, "int8": ("signed char",) * 2, "uint8": ("unsigned char",) * 2,
    "int16": ("short",) * 2, "uint16": ("unsigned short",) * 2, "int32": ("int",) * 2, "uint32": ("unsigned",) * 2,
    "int64": ("long long",) * 2, "uint64": ("unsigned long long",) * 2, "float32": ("float",) * 2,
    "float64": ("double",) * 2, "float16": ("Half",) * 2, "bfloat16": ("Brain", "float"),
}  # fmt: skip
JUDGED = frozenset(_TYPES)
"""The dtypes of arrays that `within` knows; bounds are of the dtype that is computed with."""

_HEAD = """
#define EACH(i, count) \\
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, all = (long long)gridDim.x * blockDim.x; \\
       i < count; i += all)

struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };

template <class T> __device__ inline T value(T x) { return x; }

// a float for each half, in the order of halves; NaN stays NaN
__device__ inline float value(Half h) {
  const int size = h.bits & 0x7fff;
  return size > 0x7c00 ? __int_as_float(0x7fffffff) : (float)(h.bits & 0x8000 ? -size : size);
}

__device__ inline float value(Brain b) { return __int_as_float((int)((unsigned)b.bits << 16)); }

extern "C" __global__ void fill(unsigned long long *to, unsigned long long pattern, long long bytes) {
  EACH(i, bytes / 8) to[i] = pattern;
  unsigned char *tail = (unsigned char *)(to + bytes / 8);
  if (blockIdx.x == 0 && threadIdx.x == 0)
    for (int k = 0; k < bytes % 8; ++k) tail[k] = (unsigned char)(pattern >> 8 * k);
}

extern "C" __global__ void differ(
    const unsigned long long *a, const unsigned long long *b, long long bytes, int *found) {
  int bad = 0;
  EACH(i, bytes / 8) bad |= a[i] != b[i];
  const unsigned char *x = (const unsigned char *)(a + bytes / 8), *y = (const unsigned char *)(b + bytes / 8);
  EACH(k, bytes % 8) bad |= x[k] != y[k];
  if (bad) atomicMax(found, 1);
}

template <class T, class Bound>
__device__ inline void outside(
    const T *got, const Bound *low, const Bound *high, const unsigned char *nan, long long nans, long long size,
    int *found) {
  int bad = 0;
  EACH(i, size) {
    const auto x = value(got[i]);
    const bool fine = x >= value(low[i]) && x <= value(high[i]);
    bad |= !(fine || (x != x && i < nans && nan[i]));
  }
  if (bad) atomicMax(found, 1);
}
"""
_OUTSIDE = """
extern "C" __global__ void outside_{dtype}(
    const {T} *got, const {Bound} *low, const {Bound} *high, const unsigned char *nan, long long nans, long long size,
    int *found) {{
  outside(got, low, high, nan, nans, size, found);
}}
"""
ARRAY_CHECKS = _HEAD + "".join([_OUTSIDE.format(dtype=d, T=t, Bound=b) for d, (t, b) in _TYPES.items()])
"""CUDA C++ of all kernels."""


def pattern_of(value: Array) -> int:
    """The bits of an array of one element, repeated over 64."""
    data = value.tobytes()
    return int.from_bytes(data * (WORD // len(data)), "little")


def blocks(count: int) -> int:
    """How many blocks look at `count` elements."""
    return max(1, min(-(-count // THREADS), MOST_BLOCKS))


class ArrayChecks:
    """The kernels on a device; `cubin` is `ARRAY_CHECKS` compiled for it.  Arrays are given as addresses."""

    def __init__(self, cuda: Any, cubin: bytes) -> None:
        self._cuda = cuda
        self._module = cuda.module_from_buffer(cubin)
        self._found = cuda.mem_alloc(4)
        self._answer = np.zeros(1, np.int32)

    def fill(self, pointer: int, nbytes: int, value: Array) -> None:
        """Queue it: every element becomes `value`, an array of one element."""
        self._launch("fill", "PQq", nbytes // WORD, pointer, pattern_of(value), nbytes)

    def same(self, a: int, b: int, nbytes: int) -> bool:
        """Whether two arrays of `nbytes` bytes are equal, bit by bit."""
        return not self._ask("differ", "PPq", nbytes // WORD, a, b, nbytes)

    def within(self, dtype: str, pointers: Sequence[int], nans: int, size: int) -> bool:
        """Whether `low <= x <= high` for each of `size` elements, or x is NaN and one of `nan` is set.

        `pointers` are those of the elements (of `dtype`, one of `JUDGED`), of low, high, and the `nans` bytes of nan.
        """
        return not self._ask(f"outside_{dtype}", "PPPPqq", size, *pointers, nans, size)

    def _ask(self, name: str, types: str, count: int, *arguments: int) -> bool:
        self._cuda.memset_d32(int(self._found), 0, 1)
        self._launch(name, types + "P", count, *arguments, int(self._found))
        self._cuda.memcpy_dtoh(self._answer, int(self._found))
        return bool(self._answer[0])

    def _launch(self, name: str, types: str, count: int, *arguments: int) -> None:
        function = self._module.get_function(name)
        function.prepare(types)
        function.prepared_async_call((blocks(count), 1), (THREADS, 1, 1), None, *arguments)
