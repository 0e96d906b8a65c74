"""`wgmma` as functions of CUDA C++ around inline PTX, for products of a turn (`warpgroup.py`).

A record is widened there to what a warp computes in a turn: m = 16 rows x its tiles, n columns, k = the terms of all
steps.  Descriptor, order and fences: PTX ISA, "Asynchronous warpgroup level matrix instructions"; rows of 128 bytes,
swizzled, 1024 bytes from one group of 8 rows to the next; a step is 32 bytes further, which are swizzled afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from te_lite.fragment import LANES
from te_lite.mma import F32, Mma
from te_lite.mma_meaning import centres

from .text import TYPES, registers

STEP = 2
"""From one step to the next, 32 bytes, in the units of a descriptor."""
FENCE = "fence_async_proxy();"
FENCE_HELPER = """\
// What this thread stored or copied to shared memory is there for the tensor cores, too.
static __device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}"""
_HEAD = "static __device__ __forceinline__ void"
_DESCRIPTOR = """\
// A tile in rows of 128 bytes, swizzled, as tensor cores find it.
static __device__ __forceinline__ unsigned long long wgmma_tile(const void *tile) {
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(tile) >> 4 & 0x3fff;
  return start | 1ull << 16 | 64ull << 32 | 1ull << 62;
}"""


def group_name(op: Mma) -> str:
    """The function of a widened record."""
    return f"wgmma_m{op.m}n{op.n}k{op.k}_{op.element.name}_{op.sum.name}"


def group_helpers(op: Mma) -> dict[str, str]:
    """Its definition and those that it needs, by name, in their order."""
    one = _single(op)
    return {
        "wgmma_tile": _DESCRIPTOR, group_name(one): _instruction(one), group_name(op): _turn(op, one),
    }  # fmt: skip


def _single(op: Mma) -> Mma:
    """The instruction of which a widened record has several: all its columns, 16 rows a warp, one step."""
    return replace(op, m=op.a.rows, k=op.a.columns)


def _sums(op: Mma) -> int:
    """Registers of a thread for the sums of a record."""
    return op.m * op.n // LANES


def _instruction(op: Mma) -> str:
    d, a = _sums(op), op.registers("a")
    total, floats = TYPES[op.sum.dtype], op.sum.dtype == "float32"
    sums, factor = registers(range(d)), registers(range(d, d + a))
    options = {4: ", 1, 1, 1", 2: ", 1, 1, 1, 0", 1: ", 1"}[op.element.nbytes]
    outputs = ", ".join(f'"+{"f" if floats else "r"}"(d[{i}])' for i in range(d))
    inputs = ", ".join([*[f'"r"(a[{i}])' for i in range(a)], '"l"(tile)'])
    pad = " " * 15
    return "\n".join([
        "#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)",
        f'#error "{group_name(op)} needs sm_90a"', "#endif",
        f"{_HEAD} {group_name(op)}({total} *d, const unsigned *a, unsigned long long tile) {{",
        f'  asm volatile("{op.ptx} {sums}, {factor}, %{d + a}{options};"',
        f"{pad}: {outputs}", f"{pad}: {inputs});", "}",
    ])  # fmt: skip


def _turn(op: Mma, one: Mma) -> str:
    """All steps and rows, begun together and waited for.

    The compiler knows nothing of instructions that go on: behind them it is told that the sums have changed.
    """
    element, total = TYPES[op.element.dtype], TYPES[op.sum.dtype]
    steps, rows, held = op.k // one.k, op.m // one.m, one.registers("a")
    centre, _ = centres(op)
    scaled = op.element.dtype == F32.dtype
    given = "  const unsigned *x = (const unsigned *)a;\n"
    if scaled:
        count = steps * rows * held
        given = f"  unsigned x[{count}];\n"
        given += f"  for (int i = 0; i < {count}; ++i) x[i] = __float_as_uint(a[i] * {centre}f);\n"
    kept = "f" if op.sum.dtype == "float32" else "r"
    return f"""{_HEAD} {group_name(op)}({total} *d, const {element} *a, const void *b) {{
{given}  const unsigned long long tile = wgmma_tile(b);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < {steps}; ++step)
    #pragma unroll
    for (int row = 0; row < {rows}; ++row)
      {group_name(one)}(d + row * {_sums(one)}, x + (step * {rows} + row) * {held}, tile + step * {STEP});
  asm volatile("wgmma.commit_group.sync.aligned;\\n\\twgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int i = 0; i < {_sums(op)}; ++i) asm volatile("" : "+{kept}"(d[i])::"memory");
}}"""
