#!/usr/bin/env bash
# nvidia-cuda-nvrtc 13.0.88 and nvidia-cuda-nvdisasm 13.5.37, Linux x86-64, no GPU needed.
#
# A block computes on one tile in shared memory while it fetches the next one through registers: in each turn of the
# loop vectors are read from global memory first, sixteen steps of multiply-adds follow, and the vectors are stored to
# the other tile last.  Written so that the whole turn of arithmetic hides the latency of memory.
# One would expect: the loads of a turn are issued where they are written, before its multiply-adds.
# What happens: for sm_90 all of them are moved behind two thirds of the multiply-adds (705 to 720 of 1024), towards the
# stores that need them, so a block of few warps waits for memory in every turn.  An `asm volatile` with a memory clobber
# behind them changes nothing, nor do loads that are `asm volatile` themselves.  A `__syncwarp()` behind the loads, which
# costs one instruction, keeps them before the first multiply-add.  With `__restrict__` pointers, whose loads become
# LDG.CONSTANT, it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check \
  nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-nvdisasm==13.5.37 2> /dev/null
cat > "$folder/where.py" <<'PYTHON'
"""How many of a turn's multiply-adds stand before each load from global memory in the loop."""
import ctypes
import glob
import re
import subprocess
import sys

(packages,) = glob.glob(f"{sys.prefix}/lib/python*/site-packages/nvidia/cu13")
ctypes.CDLL(f"{packages}/lib/libnvrtc-builtins.so.13.0", mode=ctypes.RTLD_GLOBAL)
nvrtc = ctypes.CDLL(f"{packages}/lib/libnvrtc.so.13")
SOURCE = """
static __device__ __forceinline__ float4 read(const float4 *from) {
#ifdef VOLATILE
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
  return v;
#else
  return *from;
#endif
}
extern "C" __global__ void __launch_bounds__(256, 1) tiles(const float4 *RESTRICT a, const float4 *RESTRICT b,
                                                           float *RESTRICT c, int turns) {
  __shared__ __align__(16) float left[2][16][132], right[2][16][132];
  const int t = threadIdx.x, row = t / 16 * 8, column = t % 16 * 8;
  float sums[8][8] = {};
  for (int k = 0; k < turns; ++k) {
    const int now = k & 1, next = now ^ 1;
    float4 x[2], y[2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[i] = read(a + (i * 64 + t / 4) * 1024 + k * 4 + t % 4);
      y[i] = read(b + (i * 64 + t / 4) * 1024 + k * 4 + t % 4);
    }
    KEEP
    #pragma unroll
    for (int s = 0; s < 16; ++s) {
      float p[8], q[8];
      #pragma unroll
      for (int i = 0; i < 8; ++i) { p[i] = left[now][s][row + i]; q[i] = right[now][s][column + i]; }
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] += p[i] * q[j];
    }
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float *u = (const float *)&x[i], *v = (const float *)&y[i];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        left[next][t % 4 * 4 + j][i * 64 + t / 4] = u[j];
        right[next][t % 4 * 4 + j][i * 64 + t / 4] = v[j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) c[(row + i) * 128 + column + j] = sums[i][j];
}
"""


def positions(keep: str, volatile: bool = False, restrict: str = "") -> list[int]:
    program = ctypes.c_void_p()
    text = SOURCE.replace("KEEP", keep).replace("RESTRICT", restrict)
    source = ("#define VOLATILE\n" * volatile + text).encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"tiles.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"-arch=sm_90")) == 0
    size = ctypes.c_size_t()
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    cubin = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, cubin) == 0
    with open("tiles.cubin", "wb") as f:
        f.write(cubin.raw)
    text = subprocess.run([f"{packages}/bin/nvdisasm", "tiles.cubin"], capture_output=True, text=True, check=True).stdout
    adds, found = 0, []
    for line in text.splitlines():
        adds += "FFMA" in line
        if "LDG" in line:
            found.append(adds)
    return found


CLOBBER, WARP = 'asm volatile("" ::: "memory");', "__syncwarp();"
for name, found in (
    ("as written", positions("")), ("memory clobber", positions(CLOBBER)), ("volatile loads", positions(CLOBBER, True)),
    ("__syncwarp, __restrict__", positions(WARP, False, "__restrict__")), ("__syncwarp", positions(WARP)),
):
    print(name, *found, sep="\t")
PYTHON
cd "$folder"
"$folder/venv/bin/python" where.py | tee found
awk -F '\t' '
  NF != 5 { exit bad = 1 }
  { for (k = 2; k <= NF; k++) if (NR < 5 ? $k < 512 : $k > 0) exit bad = 1 }
  END { exit bad || NR != 5 }' found
