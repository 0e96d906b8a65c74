"""Kernels that compare, bound-check and fill arrays where they are, on the device.

`ansor.measure.check` says what is right; `within` computes the same for arrays on the device.  A measured program is
checked by reading its outputs and inputs once at the speed of the device's memory, and an answer of 4 bytes is copied.

Arrays that are too large for the host are drawn here, by the hash of `te_lite/meaning/drawn.py`, and compared with
those that another program has made: the answer is how many elements are astray, and where the first few are.
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

// the number that a half is
__device__ inline float real(Half h) {
  const int size = h.bits & 0x7fff;
  const float scaled = __int_as_float(size << 13) * 5192296858534827628530496329220096.0f;
  const float number = size < 0x7c00 ? scaled : __int_as_float(size > 0x7c00 ? 0x7fffffff : 0x7f800000);
  return h.bits & 0x8000 ? -number : number;
}

__device__ inline float real(Brain b) { return value(b); }
__device__ inline float real(float x) { return x; }
__device__ inline double real(double x) { return x; }

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
_DRAWING = """
__device__ inline unsigned mix(unsigned x) {
  x ^= x >> 16, x *= 0x21f0aaadu;
  x ^= x >> 15, x *= 0xd35a2d97u;
  return x ^ x >> 15;
}

__device__ inline unsigned hash(long long place, unsigned first, unsigned second) {
  const unsigned low = (unsigned)place, high = (unsigned)((unsigned long long)place >> 32);
  return mix(mix(low ^ first) + (second + high * 0x9e3779b9u));
}

__device__ inline float drawn_float(unsigned h) { return (float)((int)h >> 8) * 1.1920928955078125e-7f; }
__device__ inline int upper(unsigned h) { return (int)(9ull * h >> 32); }

template <class T> __device__ inline T drawn(unsigned h) {
  return (T)(upper(h) - ((T)-1 < (T)0 ? 4 : 0));
}
template <> __device__ inline float drawn<float>(unsigned h) { return drawn_float(h); }
template <> __device__ inline double drawn<double>(unsigned h) { return (double)(int)h * 4.656612873077392578125e-10; }
template <> __device__ inline Brain drawn<Brain>(unsigned h) {
  const unsigned bits = (unsigned)__float_as_int(drawn_float(h));
  Brain b = {(unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
  return b;
}
template <> __device__ inline Half drawn<Half>(unsigned h) {  // m * 2^-23; small halves are multiples of 2^-24
  const int m = (int)h >> 8, size = m < 0 ? -m : m;
  const unsigned bits = (unsigned)__float_as_int((float)size * 1.1920928955078125e-7f);
  const unsigned normal = (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1)) >> 13;
  Half half = {(unsigned short)((size < 512 ? 2u * size : normal) | (m < 0 ? 0x8000u : 0u))};
  return half;
}
struct Truth { unsigned char byte; };
template <> __device__ inline Truth drawn<Truth>(unsigned h) { Truth t = {(unsigned char)(h >> 31)}; return t; }

__device__ inline bool alike(Half a, Half b) { return a.bits == b.bits; }
__device__ inline bool alike(Brain a, Brain b) { return a.bits == b.bits; }
__device__ inline bool alike(Truth a, Truth b) { return a.byte == b.byte; }
__device__ inline bool alike(float a, float b) { return __float_as_int(a) == __float_as_int(b); }
__device__ inline bool alike(double a, double b) { return *(const long long *)&a == *(const long long *)&b; }
template <class T> __device__ inline bool alike(T a, T b) { return a == b; }

template <class T> __device__ inline void altered(
    const T *array, long long size, unsigned first, unsigned second, int *found) {
  int bad = 0;
  EACH(i, size) bad |= !alike(array[i], drawn<T>(hash(i, first, second)));
  if (bad) atomicMax(found, 1);
}

// `where` gets at most `most` of the elements that are astray, and at most 4 a thread
#define LISTED 4
#define ASTRAY(size, fine) \
  unsigned mine = 0; \
  EACH(i, size) \
    if (!(fine) && mine++ < LISTED) { \
      const unsigned k = atomicAdd(found, 1u); \
      if (k < most) where[k] = i; \
    } \
  if (mine > LISTED) atomicAdd(found, mine - LISTED);

template <class T> __device__ inline bool same_number(T x, T y) { return x == y || (x != x && y != y); }

template <class R> __device__ inline bool near(R x, R y, R slope, R floor) {
  const R off = x > y ? x - y : y - x, size = y > 0 ? y : -y;
  const bool finite = x - x == 0 && y - y == 0;
  return same_number(x, y) || (finite && off <= slope * size + floor);
}

extern "C" __global__ void unequal(  // of bytes, words and so on: bool and integers
    const unsigned char *got, const unsigned char *want, long long size, long long width, unsigned *found,
    long long *where, unsigned most) {
  if (width == 1) { ASTRAY(size, got[i] == want[i]) }
  if (width == 2) { ASTRAY(size, ((const unsigned short *)got)[i] == ((const unsigned short *)want)[i]) }
  if (width == 4) { ASTRAY(size, ((const unsigned *)got)[i] == ((const unsigned *)want)[i]) }
  if (width == 8) { ASTRAY(size, ((const unsigned long long *)got)[i] == ((const unsigned long long *)want)[i]) }
}

extern "C" __global__ void pick(
    const unsigned char *from, const long long *places, long long count, long long width, unsigned char *to) {
  EACH(i, count * width) to[i] = from[places[i / width] * width + i % width];
}
"""
_DRAW = """
extern "C" __global__ void draw_{dtype}({T} *to, long long size, unsigned first, unsigned second) {{
  EACH(i, size) to[i] = drawn<{T}>(hash(i, first, second));
}}
extern "C" __global__ void altered_{dtype}(
    const {T} *array, long long size, unsigned first, unsigned second, int *found) {{
  altered(array, size, first, second, found);
}}
"""
_ASTRAY = """
extern "C" __global__ void astray_{dtype}(
    const {T} *got, const {T} *want, long long size, {R} slope, {R} floor, unsigned *found, long long *where,
    unsigned most) {{
  ASTRAY(size, near(real(got[i]), real(want[i]), slope, floor))
}}
"""
_OUTSIDE = """
extern "C" __global__ void outside_{dtype}(
    const {T} *got, const {Bound} *low, const {Bound} *high, const unsigned char *nan, long long nans, long long size,
    int *found) {{
  outside(got, low, high, nan, nans, size, found);
}}
"""
_REAL = {"float16": "float", "bfloat16": "float", "float32": "float", "float64": "double"}
ARRAY_CHECKS = _HEAD + "".join([_OUTSIDE.format(dtype=d, T=t, Bound=b) for d, (t, b) in _TYPES.items()])
"""CUDA C++ of the kernels that look at arrays with bounds."""
LARGE_CHECKS = (
    _HEAD
    + _DRAWING
    + "".join([_DRAW.format(dtype=d, T="Truth" if d == "bool" else t) for d, (t, _) in _TYPES.items()])
    + "".join([_ASTRAY.format(dtype=d, T=_TYPES[d][0], R=real) for d, real in _REAL.items()])
)
"""CUDA C++ of the kernels that draw arrays and compare them with others."""


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
        pattern = int.from_bytes(value.tobytes() * (WORD // value.nbytes), "little")
        self._launch("fill", "PQq", nbytes // WORD, pointer, pattern, nbytes)

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

    def _launch(self, name: str, types: str, count: int, *arguments: float) -> None:
        function = self._module.get_function(name)
        function.prepare(types)
        function.prepared_async_call((blocks(count), 1), (THREADS, 1, 1), None, *arguments)


class LargeChecks(ArrayChecks):
    """The kernels that draw and compare; `cubin` is `LARGE_CHECKS` compiled for the device."""

    def draw(self, dtype: str, pointer: int, size: int, key: tuple[int, int]) -> None:
        """Queue it: the elements become those of `te_lite.meaning.drawn.DrawnArray`; `dtype` is one of its `DRAWN`."""
        self._launch(f"draw_{dtype}", "PqII", size, pointer, size, *key)

    def drawn(self, dtype: str, pointer: int, size: int, key: tuple[int, int]) -> bool:
        """Whether the elements are those that `draw` makes, bit by bit."""
        return not self._ask(f"altered_{dtype}", "PqII", size, pointer, size, *key)

    def astray(
        self, dtype: str, pointers: tuple[int, int], size: int, slope: float, floor: float, most: int
    ) -> tuple[int, Array]:
        """How many elements of the first of two arrays are off those of the second, and flat indices of at most `most`.

        Floats may be off by `slope * |x| + floor`; NaN, infinities, integers and bool are right where they are equal.
        """
        self._cuda.memset_d32(int(self._found), 0, 1)
        where = self._cuda.mem_alloc(8 * most)
        end = (int(self._found), int(where), most)
        if dtype in _REAL:
            kind = "dd" if _REAL[dtype] == "double" else "ff"
            self._launch(f"astray_{dtype}", f"PPq{kind}PPI", size, *pointers, size, slope, floor, *end)
        else:
            self._launch("unequal", "PPqqPPI", size, *pointers, size, np.dtype(dtype).itemsize, *end)
        count = np.zeros(1, np.uint32)
        self._cuda.memcpy_dtoh(count, int(self._found))
        places = np.empty(min(int(count[0]), most), np.int64)
        if places.size:
            self._cuda.memcpy_dtoh(places, int(where))
        return int(count[0]), np.sort(places)

    def pick(self, pointer: int, places: int, count: int, dtype: Any) -> Array:
        """A host copy of `count` elements; their flat indices are on the device, at the address `places`."""
        out = np.empty(count, dtype)
        to = self._cuda.mem_alloc(max(out.nbytes, 1))
        self._launch("pick", "PPqqP", out.nbytes, pointer, places, count, out.itemsize, int(to))
        self._cuda.memcpy_dtoh(out, int(to))
        return out
