"""The instructions of tensor cores as functions of CUDA C++ around inline PTX, written from their records.

mma_m16n8k16_f16_f32(d, a, b)      d += a * b: arrays of a thread, its values in the order of the fragments
mma_m16n8k8_tf32_f32(d, a, b)      the same, of floats, multiplied by what makes up for the bits that it cuts off
mma_m16n8k8_tf32x3_f32(d, a, b)    the same by three instructions, on the parts of what `a` and `b` hold
wgmma_m16n128k64_f16_f32(d, a, tile)
                                   the same of a group of warps: `tile` is B in shared memory, of 128 columns and 4
                                   steps of 16 terms; begins the product, for which `wgmma_wait_64_f32(d)` waits
ldmatrix_x4(r, tile, lane, fixed)  registers of four matrices; this lane's row of 16 bytes is `lane + fixed` bytes after
                                   the start of a tile in shared memory
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Protocol

from codegen_cuda.program.cuda_program import KernelNest
from codegen_cuda.program.errors import EmitError
from codegen_cuda.program.indices import by_lane
from codegen_cuda.text.text import TYPES, CudaText, registers
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr
from te_lite.loops.c_text import ADD
from te_lite.loops.stmt import Buffer, Instruction

from .instructions import BoxStore, Cut, GroupWait, NearOne, Power, QuadStore, RingCall, Rounded, WarpLoad, WarpMultiply
from .mma import F32, OPERANDS, MatrixLoad, Mma
from .mma_meaning import CENTRE, pairs
from .near_one import HELPERS as NEAR_ONE
from .ring_text import helpers
from .tf32_text import FLOAT, cut_float, tile_helpers, tile_name
from .vectorized_epilogue import HELPERS, NAMES, lanes_text
from .wgmma_text import POWER, POWER_HELPER, WAIT_FOR_LAST, WAIT_FOR_LAST_HELPER, GroupText, rounded_helper, wait_helper


class Writer(Protocol):
    """What the text of an instruction needs of the emitter around it."""

    text: CudaText
    nest: KernelNest

    def buffer(self, buffer: Buffer) -> str: ...
    def index(self, e: Expr) -> str: ...
    def thread_id(self) -> str: ...


_HEAD = "static __device__ __forceinline__ void"


def mma_name(op: Mma) -> str:
    """The function of an instruction."""
    return f"mma_{op.name}"


def mma_helpers(op: Mma) -> dict[str, str]:
    """Its definition and those that it needs, by name, in their order."""
    if op.element.dtype != F32.dtype:
        return {mma_name(op): _mma_helper(op, mma_name(op))}
    found = {_cut_name(op): _mma_helper(op, _cut_name(op))}
    if op.element.parts == 1:
        return {**found, mma_name(op): _centred_helper(op)}
    return {**found, FLOAT: cut_float(op.element), mma_name(op): _parts_helper(op)}


def _cut_name(op: Mma) -> str:
    """The function of what the hardware does with floats: it reads their upper bits."""
    return f"{mma_name(op.of_parts)}_cut"


def _mma_helper(op: Mma, name: str) -> str:
    d, a, b = [op.registers(x) for x in ("d", "a", "b")]
    total, (first, second) = TYPES[op.sum.dtype], [TYPES[dtype] for dtype in op.dtypes]
    floats = op.sum.dtype == "float32"
    kept = "d" if floats else "z"
    lines = [f"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {10 * op.least}"]
    lines += [f'#error "{op.name} needs compute capability {op.least / 10}"', "#endif"]
    lines += [f"{_HEAD} {name}({total} *d, const {first} *a, const {second} *b) {{"]
    lines += ["  const unsigned *x = (const unsigned *)a, *y = (const unsigned *)b;"]
    lines += [] if floats else ["  unsigned *z = (unsigned *)d;"]
    sums = registers(range(d))
    vectors = (sums, registers(range(d, d + a)), registers(range(d + a, d + a + b)), sums)
    outputs = ", ".join(f'"+{"f" if floats else "r"}"({kept}[{i}])' for i in range(d))
    inputs = ", ".join(f'"r"({name}[{i}])' for name, count in (("x", a), ("y", b)) for i in range(count))
    pad = " " * 15
    lines += [f'  asm volatile("{op.ptx} {", ".join(vectors)};"', f"{pad}: {outputs}", f"{pad}: {inputs});", "}"]
    return "\n".join(lines)


def _centred_helper(op: Mma) -> str:
    """The function of an instruction on floats of which nothing is lost on average.

    The compiler, which has all instructions of a step before it, multiplies each float once.
    """
    a, b = [op.fragment(x).values for x in "ab"]
    return f"""{_HEAD} {mma_name(op)}(float *d, const float *a, const float *b) {{
  float x[{a}], y[{b}];
  for (int i = 0; i < {a}; ++i) x[i] = a[i] * {CENTRE}f;
  for (int i = 0; i < {b}; ++i) y[i] = b[i] * {CENTRE}f;
  {_cut_name(op)}(d, x, y);
}}"""


def _parts_helper(op: Mma) -> str:
    """The function of an instruction on floats in two parts; each is cut once, too."""
    name, single = mma_name(op), _cut_name(op)
    a, b, d = [op.fragment(x).values for x in OPERANDS]
    calls = "\n".join([f"  {single}(t, {'xu'[i]}, {'yv'[j]});" for i, j in pairs(op)])
    return f"""{_HEAD} {name}(float *d, const float *a, const float *b) {{
  float x[{a}], u[{a}], y[{b}], v[{b}], t[{d}] = {{}};
  for (int i = 0; i < {a}; ++i) {FLOAT}(x + i, u + i, a[i]);
  for (int i = 0; i < {b}; ++i) {FLOAT}(y + i, v + i, b[i]);
{calls}
  for (int i = 0; i < {d}; ++i) d[i] += t[i];
}}"""


def load_helper(form: MatrixLoad) -> str:
    """Its definition.  Needs compute capability 7.5 or more.

    What is known of the bits of `start` is hidden from the compiler, which would make an `or` of the addition of a
    constant; as an addition it is part of the instruction.
    """
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(form.count))
    return f"""{_HEAD} {form.name}(unsigned *r, const void *tile, int lane = 0, int fixed = 0) {{
  unsigned start = (unsigned)__cvta_generic_to_shared(tile) + (unsigned)lane;
  asm("" : "+r"(start));
  asm volatile("{form.ptx} {registers(range(form.count))}, [%{form.count}];"
               : {outputs}
               : "r"(start + (unsigned)fixed) : "memory");
}}"""


def instruction_text(writer: Writer, s: Instruction) -> str:
    """The call of what threads do together, on pointers to what each of them holds."""
    require(type(s) in TEXTS, EmitError, "CUDA text", "the instruction has none", got=type(s).__name__)
    return TEXTS[type(s)](writer, s)


def _place(writer: Writer, e: BufferLoad) -> str:
    return f"{writer.buffer(e.buffer)} + {writer.text.expr(e.index, ADD)}"


def _multiply_text(writer: Writer, s: WarpMultiply) -> str:
    name, helpers = (_group(s).name, _group(s).helpers()) if s.op.warps > 1 else (mma_name(s.op), mma_helpers(s.op))
    writer.text.helpers.update(helpers)
    begun = f"{name}({', '.join([_place(writer, e) for e in s.places])});"
    if s.goes_on:
        writer.text.helpers["wgmma_wait_for_last"] = WAIT_FOR_LAST_HELPER
    return f"{begun} {WAIT_FOR_LAST}" if s.goes_on else begun


def _load_text(writer: Writer, s: WarpLoad) -> str:
    writer.text.helpers[s.form.name] = load_helper(s.form)
    offsets = [f"({writer.index(e)}) * {BYTES[s.row.buffer.dtype]}" for e in by_lane(s.row.index)]
    to = _place(writer, s.to)
    return f"{s.form.name}((unsigned *)({to}), {writer.buffer(s.row.buffer)}, {', '.join(offsets)});"


def _quad_text(writer: Writer, s: QuadStore) -> str:
    writer.text.helpers[NAMES[s.lanes]] = HELPERS[s.lanes]
    return f"{NAMES[s.lanes]}({_place(writer, s.to)}, {_place(writer, s.groups)}, {lanes_text(s)});"


def _cut_text(writer: Writer, s: Cut) -> str:
    """All threads of a block cut a tile into parts."""
    threads = prod(writer.nest.block)
    writer.text.helpers.update(tile_helpers(s, threads))
    places = [_place(writer, e) for e in s.places]
    return f"{tile_name(s, threads)}({', '.join(places)}, {writer.thread_id()});"


def _ring_text(writer: Writer, s: RingCall) -> str:
    """Places are given as pointers; functions that move boxes first take what the engine is told of the array."""
    writer.text.helpers.update(helpers(s.function))
    given = [_place(writer, e) if isinstance(e, BufferLoad) else writer.index(e) for e in s.arguments]
    maps = [] if s.box is None else [f"map{s.map}"]
    wide = "" if s.number is None else f"<{s.number}>"
    return f"{s.function}{wide}({', '.join([*maps, *given])});"


def _wait_text(writer: Writer, s: GroupWait) -> str:
    group = _group(s.product)
    writer.text.helpers[group.wait_but(s.left)] = wait_helper(group, s.left)
    return f"{group.wait_but(s.left)}({_place(writer, s.d)});"


def _power_text(writer: Writer, s: Power) -> str:
    writer.text.helpers[POWER] = POWER_HELPER
    return f"{POWER}({_place(writer, s.to)}, {writer.index(s.value)}, {writer.index(s.top)}, {s.factor}f);"


def _near_one_text(writer: Writer, s: NearOne) -> str:
    writer.text.helpers[f"one_and_{s.function}"] = NEAR_ONE[s.function]
    factor = "" if s.factor == 1 else f", {s.factor}f"
    half = str(s.half).lower()
    return f"{writer.index(s.to)} = one_and_{s.function}<{half}>({writer.index(s.value)}{factor});"


def _rounded_text(writer: Writer, s: Rounded) -> str:
    element = "f16" if s.to.buffer.dtype == "float16" else "bf16"
    writer.text.helpers[f"rounded_{element}"] = rounded_helper(element)
    return f"rounded_{element}({_place(writer, s.to)}, {writer.index(s.one)}, {writer.index(s.two)});"


TEXTS: dict[type[Instruction], Callable[[Writer, Any], str]] = {
    WarpMultiply: _multiply_text, WarpLoad: _load_text, QuadStore: _quad_text, Cut: _cut_text,
    RingCall: _ring_text, BoxStore: _ring_text, GroupWait: _wait_text, Power: _power_text, Rounded: _rounded_text,
    NearOne: _near_one_text,
}  # fmt: skip
"""How each kind of instruction is written."""


def wait_text(writer: Writer, s: Instruction) -> str:
    """The call that waits for a product of a group of warps."""
    assert isinstance(s, WarpMultiply)
    return f"{_group(s).wait}({_place(writer, s.d)});"


def _group(s: WarpMultiply) -> GroupText:
    return GroupText(s.op, s.a.buffer.storage == "shared", s.turned, s.across, s.first, s.next_a, s.next_b)
