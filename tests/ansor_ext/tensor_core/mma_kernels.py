"""Matrix products on tensor cores, written by hand from the PTX manual: nothing here reads a map of the table.

A block is one warp or several, in x; A[m][k] has rows along k; `k` computes C += A * B.
"""

from __future__ import annotations

from ansor_ext.tensor_core.mma import LOADS, Mma
from ansor_ext.tensor_core.mma_text import load_helper, mma_helpers, mma_name

# What a lane loads of its fragments straight from memory: g is lane / 4, q is lane % 4.
_PAIRS = """
  for (int i = 0; i < 8; ++i) a[i] = A[(m0 + g + 8 * (i >> 1 & 1)) * K + k0 + 2 * q + (i & 1) + 8 * (i >> 2)];
  for (int i = 0; i < 4; ++i) b[i] = B[(k0 + 2 * q + (i & 1) + 8 * (i >> 1)) * N + n0 + g];
"""
_BYTES = """
  for (int i = 0; i < 16; ++i) a[i] = A[(m0 + g + 8 * (i >> 2 & 1)) * K + k0 + 4 * q + (i & 3) + 16 * (i >> 3)];
  for (int i = 0; i < 8; ++i) b[i] = B[(k0 + 4 * q + (i & 3) + 16 * (i >> 2)) * N + n0 + g];
"""
_WORDS = """
  for (int i = 0; i < 4; ++i) a[i] = A[(m0 + g + 8 * (i & 1)) * K + k0 + q + 4 * (i >> 1)];
  for (int i = 0; i < 2; ++i) b[i] = B[(k0 + q + 4 * i) * N + n0 + g];
"""
LOADED = {"tf32": _WORDS, "f16": _PAIRS, "bf16": _PAIRS, "s8": _BYTES, "e4m3": _BYTES, "e5m2": _BYTES}
TYPES = {"tf32": "float", "f16": "half", "bf16": "unsigned short", "s8": "signed char", "f32": "float", "s32": "int",
         "e4m3": "unsigned char", "e5m2": "unsigned char"}  # fmt: skip


def plain(op: Mma, sizes: tuple[int, int, int]) -> str:
    """Every warp has a tile of 16 x 8, and takes its fragments from global memory; sizes are M, N, K."""
    m, n, k = sizes
    element, other, total = [TYPES[op.held(x).ptx] for x in "abd"]
    return f"""
#include <cuda_fp16.h>
#define M {m}
#define N {n}
#define K {k}
{chr(10).join(mma_helpers(op).values())}
extern "C" __global__ void __launch_bounds__(64) k(const {element} *A, const {other} *B, {total} *C) {{
  const int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3;
  const int tile = blockIdx.x * 2 + (threadIdx.x >> 5), m0 = tile / (N / 8) * 16, n0 = tile % (N / 8) * 8;
  __align__(16) {element} a[{op.m * op.k // 32}];
  __align__(16) {other} b[{op.k * op.n // 32}];
  __align__(16) {total} d[4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = C[(m0 + g + 8 * (i >> 1)) * N + n0 + 2 * q + (i & 1)];
  for (int k0 = 0; k0 < K; k0 += {op.k}) {{
    {LOADED[op.element.ptx]}
    {mma_name(op)}(d, a, b);
  }}
  #pragma unroll
  for (int i = 0; i < 4; ++i) C[(m0 + g + 8 * (i >> 1)) * N + n0 + 2 * q + (i & 1)] = d[i];
}}
"""


def plain_launch(sizes: tuple[int, int, int]) -> tuple[int, int]:
    """Blocks, and threads of a block."""
    return sizes[0] // 16 * (sizes[1] // 8) // 2, 64


STAGES = 3
PIPELINED = """
#include <cuda_fp16.h>
#define N 64
#define K 128
#define STAGES 3
HELPERS
static __device__ __forceinline__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}
// A tile of 32 rows of A, and of 32 rows of B, a stage: rows of 64 bytes and 128 bytes, 16-byte chunks swizzled
static __device__ __forceinline__ void fetch(half *a, half *b, const half *A, const half *B, int m0, int k0) {
  for (int i = threadIdx.x; i < 128; i += 64) {
    const int row = i / 4, chunk = i % 4;
    copy16(a + row * 32 + (chunk ^ (row >> 1 & 3)) * 8, A + (m0 + row) * K + k0 + chunk * 8);
  }
  for (int i = threadIdx.x; i < 256; i += 64) {
    const int row = i / 8, chunk = i % 8;
    copy16(b + row * 64 + (chunk ^ (row & 7)) * 8, B + (k0 + row) * N + chunk * 8);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// 32 x 64 of C a block of two warps: 32 x 32 a warp, in 2 x 4 tiles of 16 x 8
extern "C" __global__ void __launch_bounds__(64) k(const half *A, const half *B, float *C) {
  __shared__ __align__(128) half a[STAGES][32 * 32];
  __shared__ __align__(128) half b[STAGES][32 * 64];
  const int lane = threadIdx.x & 31, n0 = (threadIdx.x >> 5) * 32, m0 = blockIdx.x * 32;
  __align__(16) float d[2][4][4] = {};
  for (int s = 0; s < STAGES - 1; ++s) fetch(a[s], b[s], A, B, m0, s * 32);
  for (int t = 0; t < K / 32; ++t) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // arrived
    const int next = t + STAGES - 1;
    if (next < K / 32) fetch(a[next % STAGES], b[next % STAGES], A, B, m0, next * 32);
    else asm volatile("cp.async.commit_group;" ::: "memory");
    for (int k0 = 0; k0 < 32; k0 += 16) {
      unsigned x[2][4], y[4][2];
      for (int i = 0; i < 2; ++i) {
        const int row = 16 * i + (lane & 15), chunk = k0 / 8 + (lane >> 4);
        ldmatrix_x4(x[i], a[t % STAGES] + row * 32 + (chunk ^ (row >> 1 & 3)) * 8);
      }
      for (int j = 0; j < 4; j += 2) {
        const int row = k0 + (lane & 15), chunk = n0 / 8 + j + (lane >> 4);
        unsigned both[4];
        ldmatrix_x4_trans(both, b[t % STAGES] + row * 64 + (chunk ^ (row & 7)) * 8);
        y[j][0] = both[0], y[j][1] = both[1], y[j + 1][0] = both[2], y[j + 1][1] = both[3];
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) mma_m16n8k16_f16_f32(d[i][j], (const half *)x[i], (const half *)y[j]);
    }
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int v = 0; v < 4; ++v)
        C[(m0 + 16 * i + lane / 4 + 8 * (v >> 1)) * N + n0 + 8 * j + 2 * (lane & 3) + (v & 1)] = d[i][j][v];
}
"""


def pipelined(op: Mma) -> str:
    """64 x 64 x 128 halves: three stages of asynchronous copies, swizzled tiles, `ldmatrix`."""
    helpers = [*mma_helpers(op).values(), *[load_helper(x) for x in LOADS if x.count == 4]]
    return PIPELINED.replace("HELPERS", "\n".join(helpers))
