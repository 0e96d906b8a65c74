"""Floats in two parts (`mma_meaning.py`) as functions of CUDA C++: of one, and of a tile in shared memory.

cut_tile_4096_of_256(tile, rest, thread)    4,096 floats by 256 threads: their big parts stay, the others go to `rest`

Vectors of 16 bytes are cut where they are, so it does not matter how the tile is swizzled.
"""

from __future__ import annotations

from ansor.core.target.target import BIG
from codegen_cuda.program.cuda_program import VECTOR_BYTES
from codegen_cuda.program.errors import EmitError
from te_lite.errors import require

from .instructions import Cut
from .mma import F32, Element

FLOAT = "cut_float"
"""The function that cuts one float."""
LANES = VECTOR_BYTES // F32.nbytes
_HEAD = "static __device__ __forceinline__ void"


def cut_float(element: Element) -> str:
    """The definition of `FLOAT`: the nearest number of the element's fraction, and the rest."""
    hidden = F32.fraction - element.fraction
    mask, half = (1 << 32) - (1 << hidden), 1 << hidden - 1
    return f"""{_HEAD} {FLOAT}(float *big, float *small, float x) {{
#if __CUDA_ARCH__ >= 860
  float within;
  asm("min.xorsign.abs.f32 %0, %1, %2;" : "=f"(within) : "f"(x), "f"({BIG}f));
#else
  const float within = fminf(fmaxf(x, -{BIG}f), {BIG}f);
#endif
  *big = __uint_as_float((__float_as_uint(within) + {half:#x}U) & {mask:#x}U);
  *small = x - *big;
}}"""


def tile_name(cut: Cut, threads: int) -> str:
    """The function that cuts a tile."""
    return f"cut_tile_{cut.count}_of_{threads}"


def tile_helpers(cut: Cut, threads: int) -> dict[str, str]:
    """Its definition and that which it needs, by name, in their order.  Raises EmitError where threads would have
    different numbers of vectors."""
    law = "all threads of a block must cut as many vectors"
    whole = cut.count % (LANES * threads) == 0
    require(whole, EmitError, cut.op.name, law, floats=cut.count, threads=threads)
    calls = "\n".join([f"    {FLOAT}(&big.{x}, &small.{x}, all.{x});" for x in "xyzw"])
    tile = f"""{_HEAD} {tile_name(cut, threads)}(float *tile, float *rest, int thread) {{
  #pragma unroll
  for (int i = 0; i < {cut.count // (LANES * threads)}; ++i) {{
    const int place = (i * {threads} + thread) * {LANES};
    const float4 all = *(const float4 *)(tile + place);
    float4 big, small;
{calls}
    *(float4 *)(tile + place) = big;
    *(float4 *)(rest + place) = small;
  }}
}}"""
    return {FLOAT: cut_float(cut.op.element), tile_name(cut, threads): tile}
