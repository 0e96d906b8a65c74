"""The instructions of tensor cores as functions of CUDA C++ around inline PTX, written from their records.

mma_m16n8k16_f16_f32(d, a, b)      d += a * b: arrays of a thread, its values in the order of the fragments
ldmatrix_x4(r, row)                registers of four matrices; `row` is the address, in shared memory, of this
                                   lane's row of 16 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from te_lite.expr import BufferLoad, Expr
from te_lite.mma import MatrixLoad, Mma
from te_lite.stmt import Buffer, WarpLoad, WarpMultiply

from .text import TYPES, CudaText


class Writer(Protocol):
    """What the text of an instruction needs of the emitter around it."""

    text: CudaText

    def buffer(self, buffer: Buffer) -> str: ...
    def index(self, e: Expr) -> str: ...


_HEAD = "static __device__ __forceinline__ void"


def mma_name(op: Mma) -> str:
    """The function of an instruction."""
    return f"mma_{op.name}"


def mma_helper(op: Mma) -> str:
    """Its definition."""
    d, a, b = [op.registers(x) for x in ("d", "a", "b")]
    total, element = TYPES[op.sum.dtype], TYPES[op.element.dtype]
    floats = op.sum.dtype == "float32"
    kept = "d" if floats else "z"
    lines = [f"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {10 * op.least}"]
    lines += [f'#error "{op.name} needs compute capability {op.least / 10}"', "#endif"]
    lines += [f"{_HEAD} {mma_name(op)}({total} *d, const {element} *a, const {element} *b) {{"]
    lines += ["  const unsigned *x = (const unsigned *)a, *y = (const unsigned *)b;"]
    lines += [] if floats else ["  unsigned *z = (unsigned *)d;"]
    sums = registers(range(d))
    vectors = (sums, registers(range(d, d + a)), registers(range(d + a, d + a + b)), sums)
    outputs = ", ".join(f'"+{"f" if floats else "r"}"({kept}[{i}])' for i in range(d))
    inputs = ", ".join(f'"r"({name}[{i}])' for name, count in (("x", a), ("y", b)) for i in range(count))
    pad = " " * 15
    lines += [f'  asm volatile("{op.ptx} {", ".join(vectors)};"', f"{pad}: {outputs}", f"{pad}: {inputs});", "}"]
    return "\n".join(lines)


def load_helper(form: MatrixLoad) -> str:
    """Its definition.  Needs compute capability 7.5 or more."""
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(form.count))
    return f"""{_HEAD} {form.name}(unsigned *r, const void *row) {{
  asm volatile("{form.ptx} {registers(range(form.count))}, [%{form.count}];"
               : {outputs}
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}}"""


def registers(numbers: Sequence[int]) -> str:
    """`{%0, %1}`."""
    return "{" + ", ".join(f"%{i}" for i in numbers) + "}"


def warp_text(writer: Writer, s: WarpMultiply | WarpLoad) -> str:
    """The call of an instruction, on pointers to what this lane holds of its operands."""

    def place(e: BufferLoad) -> str:
        return f"{writer.buffer(e.buffer)} + {writer.index(e.index)}"

    if isinstance(s, WarpMultiply):
        writer.text.helpers[mma_name(s.op)] = mma_helper(s.op)
        return f"{mma_name(s.op)}({place(s.d)}, {place(s.a)}, {place(s.b)});"
    writer.text.helpers[s.form.name] = load_helper(s.form)
    return f"{s.form.name}((unsigned *)({place(s.to)}), {place(s.row)});"
