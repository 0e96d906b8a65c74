"""`wgmma` as functions of CUDA C++ around inline PTX, for products of an iteration (`warpgroup.py`).

A record is widened there to what a warp computes in an iteration: m = 16 rows x its tiles, n columns, k = the terms of
all steps.  One function begins it, another one waits.  Descriptor, order and fences: PTX ISA, "Asynchronous warpgroup
level matrix instructions"; rows of 128 bytes, swizzled, 1024 bytes from one group of 8 rows to the next; a step is 32
bytes further, which are swizzled afterwards.

Of floats in parts all steps are multiplied three times, smallest products first, into sums that begin at zero; the
tile of B has become two (`tf32_text.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen_cuda.text.text import TYPES, registers
from te_lite.bounds.loop_scope import LANES

from .mma import F32, GROUP_ROW_BYTES, Mma
from .mma_meaning import centres, pairs
from .tf32_text import FLOAT, cut_float

UNIT, STEP = 16, 2
"""Bytes of a unit of descriptors; from one step to the next, 32 bytes, in units."""
FENCE = "fence_async_proxy();"
FENCE_HELPER = """\
// What this thread stored or copied to shared memory is there for the tensor cores, too.
static __device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}"""
WAIT_FOR_LAST = "wgmma_wait_for_last();"
WAIT_FOR_LAST_HELPER = """\
// The products of the last turn are through; those of this one go on.
static __device__ __forceinline__ void wgmma_wait_for_last() {
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}"""
_HEAD = "static __device__ __forceinline__ void"
_DESCRIPTOR = """\
// A tile in rows of 128 bytes, swizzled, as tensor cores find it; units of 16 bytes from one box of it to the next.
static __device__ __forceinline__ unsigned long long wgmma_tile(const void *tile, unsigned long long next = 1) {
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(tile) >> 4 & 0x3fff;
  return start | next << 16 | 64ull << 32 | 1ull << 62;
}"""


@dataclass(frozen=True)
class GroupText:
    """The functions for a widened record `op`, whose factor A is in registers, or a tile in shared memory (`tiles`),
    `turned` or not; the rows of B lie `across` its terms or along them."""

    op: Mma
    tiles: bool = False
    turned: bool = False
    across: bool = False

    @property
    def name(self) -> str:
        """What begins the product."""
        op, a = self.op, "_turned" if self.turned else "_tiles" if self.tiles else ""
        a += "_across" if self.across else ""
        return f"wgmma_m{op.m}n{op.n}k{op.k}_{op.element.name}_{op.sum.name}{a}"

    @property
    def wait(self) -> str:
        """What waits for it."""
        return f"wgmma_wait_{_sums(self.op)}_{self.op.sum.name}"

    @property
    def one(self) -> GroupText:
        """The instruction of which a product has several: all its columns, 16 rows a warp, one step."""
        return replace(self, op=replace(self.op, m=self.op.a.rows, k=self.op.a.columns))

    def helpers(self) -> dict[str, str]:
        """Their definitions and those that they need, by name, in their order."""
        known = {"wgmma_tile": _DESCRIPTOR}
        if self.op.element.parts > 1:
            one = replace(self.one, op=self.one.op.of_parts)
            known |= {FLOAT: cut_float(self.op.element), _first(one): _instruction(one, first=True)}
            known |= {one.name: _instruction(one), self.name: _begun_of_parts(self, one)}
        else:
            begun = _begun_from_tiles(self) if self.tiles else _begun(self)
            known |= {self.one.name: _instruction(self.one), self.name: begun}
        return {**known, self.wait: _wait(self)}


def _sums(op: Mma) -> int:
    """Registers of a thread for the sums of a record."""
    return op.m * op.n // LANES


def _first(text: GroupText) -> str:
    """The instruction that does not add to its sums, but stores them."""
    return f"{text.name}_first"


def _instruction(text: GroupText, first: bool = False) -> str:
    op, name = text.op, _first(text) if first else text.name
    d, a = _sums(op), op.registers("a")
    total, kept = TYPES[op.sum.dtype], _register(op)
    trans = f", {int(text.turned)}" if text.tiles else ""
    options = {4: ", 1, 1", 2: f", 1, 1{trans}, {int(text.across)}", 1: ""}[op.element.nbytes]
    given = "unsigned long long a" if text.tiles else "const unsigned *a"
    factor = f"%{d}" if text.tiles else registers(range(d, d + a))
    inputs = ['"l"(a)'] if text.tiles else [f'"r"(a[{i}])' for i in range(a)]
    outputs = ", ".join(f'"{"=" if first else "+"}{kept}"(d[{i}])' for i in range(d))
    pad = " " * 15
    return "\n".join([
        "#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)",
        f'#error "{name} needs sm_90a"', "#endif",
        f"{_HEAD} {name}({total} *d, {given}, unsigned long long tile) {{",
        f'  asm volatile("{op.ptx} {registers(range(d))}, {factor}, %{d + len(inputs)}, {int(not first)}{options};"',
        f"{pad}: {outputs}", f"{pad}: {', '.join(inputs)}, \"l\"(tile));", "}",
    ])  # fmt: skip


def _register(op: Mma) -> str:
    """The kind of register of a sum, as asm statements name it."""
    return "f" if op.sum.dtype == "float32" else "r"


def _begun(text: GroupText) -> str:
    """All steps and rows, begun together, of what is in registers of their own: others may be loaded meanwhile, and a
    compiler, which takes the product to be through, loads them into those of `a`."""
    op, one = text.op, text.one.op
    element, total = TYPES[op.element.dtype], TYPES[op.sum.dtype]
    steps, rows, held = op.k // one.k, op.m // one.m, one.registers("a")
    centre, _ = centres(op)
    word = 'asm volatile("mov.b32 %0, %1;" : "=r"(x[i]) : "r"(((const unsigned *)a)[i]))'
    if op.element.dtype == F32.dtype:
        word = f"x[i] = __float_as_uint(a[i] * {centre}f)"
    count = steps * rows * held
    given = f"  unsigned x[{count}];\n  #pragma unroll\n  for (int i = 0; i < {count}; ++i) {word};\n"
    return f"""{_HEAD} {text.name}({total} *d, const {element} *a, const void *b) {{
{given}  const unsigned long long tile = wgmma_tile(b);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < {steps}; ++step)
    #pragma unroll
    for (int row = 0; row < {rows}; ++row)
      {text.one.name}(d + row * {_sums(one)}, x + (step * {rows} + row) * {held}, tile + step * {STEP});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}"""


def _begun_from_tiles(text: GroupText) -> str:
    """All steps of 16 rows a warp, begun together; a step of a tile in rows across is so many of them further."""
    op, one = text.op, text.one.op
    line = one.k * GROUP_ROW_BYTES // UNIT
    of_a, of_b = [line if in_terms else STEP for in_terms in (text.turned, text.across)]
    box = f", {op.k * GROUP_ROW_BYTES // UNIT}" if text.across else ""
    return f"""{_HEAD} {text.name}({TYPES[op.sum.dtype]} *d, const void *a, const void *b) {{
  const unsigned long long rows = wgmma_tile(a), tile = wgmma_tile(b{box});
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int step = 0; step < {op.k // one.k}; ++step)
    {text.one.name}(d, rows + step * {of_a}, tile + step * {of_b});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}"""


def _begun_of_parts(text: GroupText, one: GroupText) -> str:
    """All steps and rows, begun together, of floats in registers, which are cut here, and of two tiles."""
    op = text.op
    steps, rows, held = op.k // one.op.k, op.m // one.op.m, one.op.registers("a")
    count, sums = steps * rows * held, _sums(one.op)
    calls = []
    for number, (i, j) in enumerate(pairs(op)):
        for step in range(steps):
            for row in range(rows):
                name = _first(one) if number == step == 0 else one.name
                a, b = ("big", "small")[i], ("tile", "others")[j]
                calls += [f"  {name}(d + {row * sums}, {a} + {(step * rows + row) * held}, {b} + {step * STEP});"]
    lines = "\n".join(calls)
    return f"""{_HEAD} {text.name}(float *d, const float *a, const void *b, const void *rest) {{
  unsigned big[{count}], small[{count}];
  for (int i = 0; i < {count}; ++i) {{
    float x, y;
    {FLOAT}(&x, &y, a[i]);
    big[i] = __float_as_uint(x), small[i] = __float_as_uint(y);
  }}
  const unsigned long long tile = wgmma_tile(b), others = wgmma_tile(rest);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
{lines}
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}"""


def _wait(text: GroupText) -> str:
    """The compiler knows nothing of instructions that go on: it is told that the sums have changed."""
    count, kept = _sums(text.op), _register(text.op)
    return f"""{_HEAD} {text.wait}({TYPES[text.op.sum.dtype]} *d) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile("" : "+{kept}"(d[i])::"memory");
}}"""
