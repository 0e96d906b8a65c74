"""Expressions as CUDA C++: the dialect of `te_lite.loops.c_text` that NVRTC and nvcc compile without any C header."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from te_lite.expr.dtype import BYTES, STORED
from te_lite.expr.expr import FLOATS, Binary, BufferLoad, Call, Cast, Const, Expr, Logical, same
from te_lite.expr.interval import INDEX_DTYPES
from te_lite.expr.visit import children, walk
from te_lite.loops.c_text import ADD, MUL, POSTFIX, SHORT, UNARY, CText, Dialect
from te_lite.loops.stored_text import bits_of

from ..program.indices import around_xor

TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long",
    "float16": "half", "float32": "float", "float64": "double",
} | {dtype: "unsigned char" if BYTES[dtype] == 1 else "unsigned short" for dtype in STORED}  # fmt: skip
UNSIGNED = {f"int{bits}": TYPES[f"uint{bits}"] for bits in (8, 16, 32, 64)}
CUDA = Dialect("CUDA", TYPES, UNSIGNED, "static __device__ __forceinline__")
SHIFT = ADD - 1


def literal(value: int | float | bool, dtype: str) -> tuple[str, int]:
    """A constant of `dtype` and how tightly it binds."""
    if dtype in STORED:
        return str(bits_of(value, dtype)), POSTFIX
    if dtype == "bool":
        return ("true" if value else "false"), POSTFIX
    if dtype == "float16":
        return f"(half){_float(float(value), 'float32')}", UNARY
    if dtype in FLOATS:
        text = _float(float(value), dtype)
    elif dtype == "int64":
        text = f"(-{2**63 - 1}LL - 1)" if value == -(2**63) else f"{int(value)}LL"
    elif dtype in ("uint32", "uint64"):
        text = f"{int(value)}U" + ("LL" if dtype == "uint64" else "")
    else:
        text = "(-2147483647 - 1)" if value == -(2**31) else str(int(value))
    return text, UNARY if text[0] == "-" or text.startswith("(double)") else POSTFIX


def _float(value: float, dtype: str) -> str:
    if math.isfinite(value):
        return repr(value) + ("f" if dtype == "float32" else "")
    bits = "0x7fffffff" if math.isnan(value) else "0x7f800000" if value > 0 else "0xff800000"
    return f"{'(double)' if dtype == 'float64' else ''}__int_as_float({bits})"


def _native_extreme(name: str, dtype: str, portable: str) -> str:
    """The helper that is one instruction where the GPU has one that passes NaN on, and `portable` elsewhere."""
    if "__CUDA_ARCH__" in portable:
        return portable
    t = TYPES[dtype]
    head = f"{CUDA.helper} {t} {name}_{SHORT[dtype]}({t} a, {t} b)"
    assembly = f'float c; asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c;'
    body = assembly if dtype == "float32" else f"return __h{name}_nan(a, b);"
    return f"#if __CUDA_ARCH__ >= 800\n{head} {{ {body} }}\n#else\n{portable}\n#endif"


def _power_of_two(e: Expr) -> int | None:
    """The exponent when `e` is a constant power of two."""
    if isinstance(e, Const) and e.dtype in ("int32", "int64") and e.value > 0 and not int(e.value) & (int(e.value) - 1):
        return int(e.value).bit_length() - 1
    return None


_DIVIDED = """static __device__ __forceinline__ float divided_f32(float x, float s) {
  const float size = fabsf(s);
  const float scale = size < 1.17549435e-38f ? 18446744073709551616.0f : size > 8.50705917e37f ? 5.42101086e-20f : 1.0f;
  return x * scale * (1.0f / (s * scale));
}"""
"""`x / s` by a reciprocal that the compiler computes once for all `x`: off by 1.5 units in the last place at most.

`scale` (2^64, 1 or 2^-64) keeps the reciprocal of a tiny or huge `s` in range; multiplying by it is exact wherever the
quotient is neither infinite nor 0.  Zeros, infinities and NaN give what a division gives.
"""


def _is_number(e: Expr) -> bool:
    """A number that the thread keeps for itself."""
    return isinstance(e, BufferLoad) and e.buffer.storage == "local" and e.buffer.size == 1


def _reads_array(e: Expr) -> bool:
    return any(isinstance(x, BufferLoad) and x.buffer.size > 1 for x in walk(e))


def _reads(e: Expr) -> Iterator[BufferLoad]:
    """The reads that an expression makes whatever its conditions are."""
    if isinstance(e, BufferLoad):
        yield e
    first_alone = isinstance(e, Logical) or (isinstance(e, Call) and e.func == "if_then_else")
    for x in children(e)[:1] if first_alone else children(e):
        yield from _reads(x)


def _is_at_hand(e: Expr, before: Expr) -> bool:
    """Whether all that `e` reads are numbers of the thread and what `before` has read, and there is something."""
    reads = list(_reads(e))
    known = list(_reads(before)) if reads else []
    return bool(reads) and all(_is_number(x) or any(same(x, y) for y in known) for x in reads)


@dataclass
class CudaText(CText):
    """Prints expressions of one kernel.

    Floor division and modulo by powers of two are shifts and masks: both round towards minus infinity whatever the
    sign.  Float minimum and maximum give NaN where an operand is NaN: one instruction from sm_80 on.  Elements of an
    array that are divided by one number of the thread (a row's sum) are multiplied by its reciprocal: a division takes
    ten instructions.  Of conditions on numbers that are at hand both are evaluated: where the second one is jumped
    over, as in updates of the place of a maximum, the loads of the next terms wait behind the jump.
    """

    dialect: Dialect = CUDA

    def call_helper(self, name: str, dtype: str, *args: str) -> str:
        """A call of a helper function; there is no stdint.h."""
        call = super().call_helper(name, dtype, *args)
        if name in ("min", "max") and dtype in ("float16", "float32"):
            key = f"{name}_{SHORT[dtype]}"
            self.helpers[key] = _native_extreme(name, dtype, self.helpers[key])
        self.helpers = {key: text.replace("int64_t", "long long") for key, text in self.helpers.items()}
        return call

    def _text(self, e: Expr) -> tuple[str, int]:
        match e:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Cast(dtype=dtype, a=a) if dtype == "float16" or (a.dtype == "float16" and dtype in ("bool", *FLOATS)):
                return self._half_cast(dtype, a), UNARY
            case Logical(op=op, a=a, b=b) if _is_at_hand(b, a):
                return f"({self.expr(a, UNARY)} {op[0]} {self.expr(b, UNARY)})", POSTFIX
            case Call(func="index_xor") if (apart := around_xor(e)) is not e:
                return super()._text(apart)
        return super()._text(e)

    def _half_cast(self, dtype: str, a: Expr) -> str:
        """Conversions from and to half go through float."""
        inner = f"(float){self.expr(a, UNARY)}" if a.dtype != "float32" else self.expr(a, UNARY)
        if dtype == "bool":
            return f"({inner} != 0.0f)"
        return inner if dtype == "float32" else f"({TYPES[dtype]}){inner}"

    def _binary(self, e: Binary) -> tuple[str, int]:
        op, a, b, dtype = e.op, e.a, e.b, e.dtype
        if op == "/" and dtype == "float32" and _is_number(b) and _reads_array(a):
            self.helpers["divided_f32"] = _DIVIDED
            return f"divided_f32({self.expr(a)}, {self.expr(b)})", POSTFIX
        if op in ("min", "max"):
            return self._extreme(op, a, b, dtype)
        if op in ("//", "%") and (power := _power_of_two(b)) is not None:
            x = self.expr(a, MUL)
            return (f"{x} >> {power}", SHIFT) if op == "//" else (f"({x} & {(1 << power) - 1})", POSTFIX)
        if dtype in INDEX_DTYPES and op in ("+", "-", "*") and self.widths.may_wrap(e):
            u = UNSIGNED[dtype]  # overflow of signed integers is undefined, that of unsigned ones is not
            return f"({TYPES[dtype]})(({u}){self.expr(a, UNARY)} {op} ({u}){self.expr(b, UNARY)})", UNARY
        if dtype == "uint16" and op == "*":  # of shorts C makes ints, which such a product leaves
            return f"(unsigned short)((unsigned){self.expr(a, UNARY)} * {self.expr(b, UNARY)})", UNARY
        if dtype == "bool" and op in ("+", "-", "*"):
            return f"(bool)({self.expr(a, MUL)} {op} {self.expr(b, MUL + 1)})", UNARY
        return super()._binary(e)

    def _extreme(self, op: str, a: Expr, b: Expr, dtype: str) -> tuple[str, int]:
        x, y = self.expr(a), self.expr(b)
        if dtype in ("int32", "int64"):
            return f"{op}({x}, {y})", POSTFIX
        return self.call_helper(op, dtype, x, y), POSTFIX


def registers(numbers: Sequence[int]) -> str:
    """`{%0, %1}`."""
    return "{" + ", ".join(f"%{i}" for i in numbers) + "}"
