"""Vectors of float16, which are converted from float32 and to it, and nothing else.

A processor with F16C rounds a vector in one instruction and widens it in another; for x86 gcc 12 makes neither of a
vector that is converted, but takes it apart lane by lane.  So the conversions are functions here: of that instruction,
or of arithmetic on bits where there is none.  Both round to nearest, ties to even.
"""

from __future__ import annotations

from te_lite.loops.c_text import SHORT, TYPES

_FUNCTION = """static inline {made} {key}({given} x) {{
#if defined(__clang__) || defined(__aarch64__)
  return __builtin_convertvector(x, {made});
{instruction}#else
{bits}
#endif
}}"""
_INSTRUCTIONS = {
    ("float16", 16): ("__AVX512F__", "__builtin_ia32_vcvtps2ph512_mask(x, 0, ({i16}){{0}}, -1)"),
    ("float32", 16): ("__AVX512F__", "__builtin_ia32_vcvtph2ps512_mask(({i16})x, ({f32}){{0}}, -1, 4)"),
    ("float16", 8): ("__F16C__", "__builtin_ia32_vcvtps2ph256(x, 0)"),
    ("float32", 8): ("__F16C__", "__builtin_ia32_vcvtph2ps256(({i16})x)"),
}
"""By the dtype that is made and the lanes: the macro of a processor that has the instruction, and what gcc calls it.
Shorter vectors are converted lane by lane."""
_BITS = {
    "float16": """  const {i32} b = ({i32})x, a = b & INT32_MAX, small = a < 0x38800000, large = a >= 0x477ff000;
  const {i32} r = ((a + 0xfff + (a >> 13 & 1)) >> 13) - 0x1c000, s = ({i32})(({f32})a + 0.5f) - 0x3f000000;
  const {i32} y = (small & s) | (~small & ~large & r) | (large & 0x7c00) | ((a > 0x7f800000) & 0x200);
  return ({f16})__builtin_convertvector(y | (b >> 16 & 0x8000), {i16});""",
    "float32": """  const {i32} b = __builtin_convertvector(({i16})x, {i32}), a = b & 0x7fff;
  return ({f32})(({i32})(({f32})(a << 13) * 0x1p112f) | ((a >= 0x7c00) & 0x7f800000) | (b & INT32_MIN));""",
}
"""Without: numbers below 2^-14 are whole steps of 2^-24, which a sum with 0.5, or a product with 2^112, is exact in."""


def conversion(key: str, dtype: str, lanes: int) -> str:
    """The function `key` that makes vectors of `dtype`, float16 or float32, of those of the other one."""
    types = {SHORT[t]: f"{SHORT[t]}x{lanes}" for t in ("float16", "float32", "int16", "int32")}
    given, made = [types[t] for t in (("f32", "f16") if dtype == "float16" else ("f16", "f32"))]
    alone = ", ".join([f"({TYPES[dtype]})x[{k}]" for k in range(lanes)])
    macro, call = _INSTRUCTIONS.get((dtype, lanes), ("__F16C__", f"{{{{{alone}}}}}"))
    instruction = f"#elif defined({macro})\n  return ({made}){call.format(**types)};\n"
    return _FUNCTION.format(key=key, given=given, made=made, instruction=instruction, bits=_BITS[dtype].format(**types))
