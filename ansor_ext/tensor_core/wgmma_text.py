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

from .mma import F32, GROUP_ROW_BYTES, TF32X3, Mma
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
POWER = "power_term"
POWER_HELPER = """\
// e^(x * factor - top): one multiply-add in the exponent of 2, which the hardware has to 22 bits.
static __device__ __forceinline__ void power_term(float *to, float x, float top, float factor) {
  const float power = fmaf(x, factor * 1.44269504f, top * -1.44269504f);
#ifdef __CUDA_ARCH__
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(*to) : "f"(power));
#else
  *to = exp2f(power);
#endif
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


def rounded_helper(element: str) -> str:
    """The function that rounds two floats to neighbours of 16 bits, `f16` or `bf16`."""
    dtype = TYPES[{"f16": "float16", "bf16": "bfloat16"}[element]]
    other = "to[0] = (half)a, to[1] = (half)b;"
    if element == "bf16":
        other = """union { float f; unsigned u; } x = {a}, y = {b};
  to[0] = a == a ? (x.u + 0x7fff + (x.u >> 16 & 1)) >> 16 : 0x7fff;
  to[1] = b == b ? (y.u + 0x7fff + (y.u >> 16 & 1)) >> 16 : 0x7fff;"""
    return f"""{_HEAD} rounded_{element}({dtype} *to, float a, float b) {{
#ifdef __CUDA_ARCH__
  asm("cvt.rn.{element}x2.f32 %0, %1, %2;" : "=r"(*(unsigned *)to) : "f"(b), "f"(a));
#else
  {other}
#endif
}}"""


@dataclass(frozen=True)
class GroupText:
    """The functions for a widened record `op`, whose factor A is in registers, or a tile in shared memory (`tiles`),
    `turned` or not; the rows of B lie `across` its terms or along them.  The `first` product stores its sums.

    `next_a` and `next_b` are the elements from a box of lines of a tile to the next, where it has several.
    """

    op: Mma
    tiles: bool = False
    turned: bool = False
    across: bool = False
    first: bool = False
    next_a: int = 0
    next_b: int = 0

    @property
    def name(self) -> str:
        """What begins the product."""
        op, a = self.op, "_turned" if self.turned else "_tiles" if self.tiles else ""
        a += "_across" if self.across else ""
        a += "".join([f"_{name}{n}" for name, n in (("a", self.next_a), ("b", self._far_b)) if n])
        a += "_first" if self.first else ""
        return f"wgmma_m{op.m}n{op.n}k{op.k}_{op.elements}_{op.sum.name}{a}"

    @property
    def _far_b(self) -> int:
        """`next_b`, where it is not that of boxes of all terms, one behind the other."""
        return 0 if self.across and self.next_b == self.op.k * self.line else self.next_b

    @property
    def line(self) -> int:
        """Elements of a row of 128 bytes."""
        return GROUP_ROW_BYTES // self.op.element.nbytes

    @property
    def wait(self) -> str:
        """What waits for it."""
        return self.wait_but(0)

    def wait_but(self, left: int) -> str:
        """What waits for it and all others but the last `left` ones."""
        return f"wgmma_wait_{_sums(self.op)}_{self.op.sum.name}{f'_but_{left}' if left else ''}"

    @property
    def one(self) -> GroupText:
        """The instruction of which a product has several: all its columns, 16 rows a warp, one step."""
        one = replace(self.op, m=self.op.a.rows, k=self.op.a.columns)
        return replace(self, op=one, first=False, next_a=0, next_b=0)

    def offset(self, step: int, further: int, across: bool) -> int:
        """How far a step is from the first one in a tile, in units of descriptors."""
        k = self.one.op.k
        if across:
            return step * k * GROUP_ROW_BYTES // UNIT
        boxes, within = divmod(step * k, self.line)
        return (within + boxes * further) * self.op.element.nbytes // UNIT

    def helpers(self) -> dict[str, str]:
        """Their definitions and those that they need, by name, in their order."""
        known = {"wgmma_tile": _DESCRIPTOR}
        if self.op.element.parts > 1:
            one = replace(self.one, op=self.one.op.of_parts)
            known |= {FLOAT: cut_float(self.op.element), _first(one): _instruction(one, first=True)}
            known |= {one.name: _instruction(one), self.name: _begun_of_parts(self, one)}
        else:
            begun = _begun_from_tiles(self) if self.tiles else _begun(self)
            known |= {_first(self.one): _instruction(self.one, first=True)} if self.first else {}
            known |= {self.one.name: _instruction(self.one), self.name: begun}
        return {**known, self.wait: wait_helper(self)}


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
    signs = ", 1, 1" if op.sum.dtype != "int32" else ""
    options = f"{signs}{trans}, {int(text.across)}" if op.element.nbytes == 2 else signs
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
    element = TYPES[op.element.dtype]
    steps, rows, held = op.k // one.k, op.m // one.m, one.registers("a")
    centre, _ = centres(op)
    word = 'asm volatile("mov.b32 %0, %1;" : "=r"(x[i]) : "r"(((const unsigned *)a)[i]))'
    if op.element.dtype == F32.dtype:
        word = f"x[i] = __float_as_uint(a[i] * {centre}f)"
    count = steps * rows * held
    given = f"  unsigned x[{count}];\n  #pragma unroll\n  for (int i = 0; i < {count}; ++i) {word};"
    calls = [
        f"{_called(text, step)}(d + {row * _sums(one)}, x + {(step * rows + row) * held}, "
        f"tile + {text.offset(step, text.next_b, text.across)});"
        for step in range(steps) for row in range(rows)
    ]  # fmt: skip
    return _all(
        text, f"const {element} *a, const void *b", [given, f"  const unsigned long long {_tile_of_b(text)};"], calls
    )


def _begun_from_tiles(text: GroupText) -> str:
    """All steps of 16 rows a warp, begun together; a step of a tile in rows across is so many of them further."""
    calls = [
        f"{_called(text, step)}(d, rows + {text.offset(step, text.next_a, text.turned)}, "
        f"tile + {text.offset(step, text.next_b, text.across)});"
        for step in range(text.op.k // text.one.op.k)
    ]
    tiles = f"  const unsigned long long rows = wgmma_tile(a), {_tile_of_b(text)};"
    return _all(text, "const void *a, const void *b", [tiles], calls)


def _tile_of_b(text: GroupText) -> str:
    """The descriptor of B; across the terms it says how far the boxes are from each other."""
    further = (text.next_b or text.op.k * text.line) * text.op.element.nbytes // UNIT
    return f"tile = wgmma_tile(b{f', {further}' if text.across else ''})"


def _called(text: GroupText, step: int) -> str:
    return _first(text.one) if text.first and step == 0 else text.one.name


def _all(text: GroupText, factors: str, given: list[str], calls: list[str]) -> str:
    """A function that begins instructions as one group."""
    lines = [f"{_HEAD} {text.name}({TYPES[text.op.sum.dtype]} *d, {factors}) {{", *given]
    lines += ['  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', *[f"  {x}" for x in calls]]
    return "\n".join([*lines, '  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");', "}"])


def _begun_of_parts(text: GroupText, one: GroupText) -> str:
    """All steps and rows, begun together, of floats in registers, which are cut here, and of two tiles."""
    op = text.op
    steps, rows, held = op.k // one.op.k, op.m // one.op.m, one.op.registers("a")
    count, sums = steps * rows * held, _sums(one.op)
    calls = []
    for number, (i, j) in enumerate(pairs(replace(op, element=TF32X3))):
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


def wait_helper(text: GroupText, left: int = 0) -> str:
    """The compiler knows nothing of instructions that go on: it is told that the sums have changed."""
    count, kept = _sums(text.op), _register(text.op)
    return f"""{_HEAD} {text.wait_but(left)}({TYPES[text.op.sum.dtype]} *d) {{
  asm volatile("wgmma.wait_group.sync.aligned {left};" ::: "memory");
  #pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile("" : "+{kept}"(d[i])::"memory");
}}"""
