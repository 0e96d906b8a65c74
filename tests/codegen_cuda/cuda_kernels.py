"""CUDA kernels written by hand, with inputs and what they must compute, for tests that run kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent.parent / "golden"
Shape = int | tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """`source` defines the kernel `k`; `make` gives inputs and what the kernel adds to them as its last argument."""

    source: str
    grid: Shape
    block: Shape
    make: Callable[[np.random.Generator], tuple[list[np.ndarray], np.ndarray]]
    dynamic: int = 0
    tolerance: float = 1e-6


def normal(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def _matmul(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    a, b = normal(rng, 21, 37), normal(rng, 37, 19)
    return [a, b], a.astype("float64") @ b


MATMUL = Kernel("""
#define M 21
#define N 19
#define K 37
extern "C" __global__ void __launch_bounds__(64) k(
    const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C) {
  __shared__ float a[8][8];
  __shared__ float b[8][8];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = (int)blockIdx.y * 8 + y, column = (int)blockIdx.x * 8 + x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 8) {
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f;
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0.0f;
    __syncthreads();  // filled
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();  // used
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
""", (3, 3), (8, 8), _matmul)  # fmt: skip


def _tree(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x = normal(rng, 5, 64)
    return [x], x.sum(1, dtype="float64")


TREE = Kernel("""
extern "C" __global__ void k(float* x, float* out) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t];
  __syncthreads();  // filled
  for (int step = 32; step > 0; step /= 2) {
    if (t < step) s[t] += s[t + step];
    __syncthreads();  // added
  }
  if (t == 0) out[blockIdx.x] = s[0];
}
""", 5, 64, _tree)  # fmt: skip

WARP_SYNCHRONOUS = Kernel("""
extern "C" __global__ void k(float* x, float* out) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t];
  __syncthreads();
  if (t < 32) {
    s[t] += s[t + 32];
    __syncwarp();  // first
    for (int step = 16; step > 0; step /= 2) {
      const float other = t < step ? s[t + step] : 0.0f;
      __syncwarp();
      s[t] += other;
      __syncwarp();  // added
    }
  }
  if (t == 0) out[blockIdx.x] = s[0];
}
""", 5, 64, _tree)  # fmt: skip


def _warps(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x = normal(rng, 3, 96 * 4)
    return [x], x.max(1)


WARPS = Kernel("""
extern "C" __global__ void k(float* x, float* out) {
  __shared__ float s[3];
  const int t = threadIdx.x;
  const float4 v = ((float4*)x)[blockIdx.x * 96 + t];
  float best = max(max(v.x, v.y), max(v.z, v.w));
  for (int step = 16; step > 0; step >>= 1) best = max(best, __shfl_xor_sync(0xffffffff, best, step));
  if ((t & 31) == 0) s[t >> 5] = best;
  __syncthreads();  // warps
  if (t < 3) {
    best = s[t];
    best = max(best, max(__shfl_sync(0x7, best, 1), __shfl_sync(0x7, best, 2)));
    if (t == 0) out[blockIdx.x] = best;
  }
}
""", 3, 96, _warps)  # fmt: skip


def _stencil(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x = normal(rng, 4 * 40)
    padded = np.pad(x.astype("float64"), 1)
    return [x], padded[:-2] + 2 * padded[1:-1] - padded[2:]


STENCIL = Kernel("""
extern "C" __global__ void k(float* x, float* out) {
  extern __shared__ float s[];
  const int t = threadIdx.x, i = (int)blockIdx.x * 40 + t;
  s[t + 1] = x[i];
  if (t == 0) s[0] = i > 0 ? x[i - 1] : 0.0f;
  if (t == 39) s[41] = i < 159 ? x[i + 1] : 0.0f;
  __syncthreads();  // filled
  out[i] = s[t] + 2.0f * s[t + 1] - s[t + 2];
}
""", 4, 40, _stencil, dynamic=42 * 4)  # fmt: skip


def _reverse(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x = normal(rng, 2, 32, 4)
    return [x], x[:, ::-1]


REVERSE = Kernel("""
extern "C" __global__ void k(float* __restrict__ x, float* __restrict__ out) {
  __shared__ __align__(16) float s[128];
  const int t = threadIdx.x;
  *(float4*)(s + t * 4) = *(float4*)(x + blockIdx.x * 128 + t * 4);
  __syncthreads();  // filled
  *(float4*)(out + (blockIdx.x * 128 + t * 4)) = *(float4*)(s + (31 - t) * 4);
}
""", 2, 32, _reverse)  # fmt: skip


def _half(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x, y = normal(rng, 3, 30, dtype="float16"), normal(rng, 3, 30, dtype="float16")
    exact = (x * y + np.flip(x, 1)).astype("float16")  # numpy rounds after each operation too
    return [x, y], np.where(exact > 0, exact, np.float16(0)) / np.float16(3)


HALF = Kernel("""
#include <cuda_fp16.h>
extern "C" __global__ void k(half* x, half* y, half* out) {
  __shared__ half s[30];
  const int t = threadIdx.x, i = blockIdx.x * 30 + t * 2;
  const half2 v = *(half2*)(x + i);
  s[t * 2] = v.x;
  s[t * 2 + 1] = __high2half(v);
  __syncthreads();  // filled
  half2 r = __hadd2(__hmul2(v, *(half2*)(y + i)), __halves2half2(s[29 - 2 * t], s[28 - 2 * t]));
  r.x = __hmax(r.x, __float2half(0.0f)) / (half)3.0f;
  r.y = __hmax(r.y, (half)0.0f) / __float2half_rn(3.0f);
  *(half2*)(out + i) = r;
}
""", 3, 15, _half, tolerance=0.0)  # fmt: skip


def _int8(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x = rng.integers(-128, 128, (2, 24), dtype=np.int8)
    return [x], np.cumsum(x.astype(np.int32), 1, dtype=np.int32)


INT8 = Kernel("""
extern "C" __global__ void k(signed char* x, int* out) {
  __shared__ signed char s[24];
  s[threadIdx.x] = x[blockIdx.x * 24 + threadIdx.x];
  __syncthreads();  // filled
  int sum = 0;
  for (int i = 0; i <= (int)threadIdx.x; ++i) sum += s[i];
  out[blockIdx.x * 24 + threadIdx.x] = sum;
}
""", 2, 24, _int8, tolerance=0.0)  # fmt: skip


def _histogram(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    x = rng.integers(0, 7, 200, dtype=np.int32)
    return [x], np.bincount(x, minlength=7).astype(np.int32)


HISTOGRAM = Kernel("""
extern "C" __global__ void k(int* x, int* out) {
  __shared__ int bins[7];
  if (threadIdx.x < 7) bins[threadIdx.x] = 0;
  __syncthreads();  // cleared
  atomicAdd(&bins[x[threadIdx.x]], 1);
  __syncthreads();  // counted
  if (threadIdx.x < 7) out[threadIdx.x] = bins[threadIdx.x];
}
""", 1, 200, _histogram, tolerance=0.0)  # fmt: skip


def _tutorial(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    data, weight, bias = normal(rng, 512, 7, 7), normal(rng, 512, 512, 3, 3), normal(rng, 512)
    padded = np.pad(data.astype("float64"), ((0, 0), (1, 1), (1, 1)))
    taps = [(i, j) for i in range(3) for j in range(3)]
    out = sum(np.einsum("oc,chw->ohw", weight[:16, :, i, j], padded[:, i : i + 7, j : j + 7]) for i, j in taps)
    return [data, weight, bias], np.maximum(out + bias[:16, None, None], 0)


TUTORIAL = Kernel(
    (GOLDEN / "tutorial_conv2d_kernel.cu").read_text()
    .replace("default_function_kernel0", "k")
    .replace("compute, float* __restrict__ bias", "bias, float* __restrict__ compute"),
    2, 98, _tutorial,
)  # fmt: skip

KERNELS = {
    "matmul": MATMUL, "tree": TREE, "warp_synchronous": WARP_SYNCHRONOUS, "warps": WARPS, "stencil": STENCIL,
    "reverse": REVERSE, "half": HALF, "int8": INT8, "histogram": HISTOGRAM, "tutorial": TUTORIAL,
}  # fmt: skip
