"""Stored dtypes in C text: what memory holds is an unsigned integer, and two helpers go from it to a number and back.

A float of `M` bits of mantissa and a bias is read by putting its bits where those of a float are, and written by
rounding to the nearest, of two the even one: what is normal in the format in integers, whose carry goes on into the
exponent, and what is below in floats, whose steps are all equal there.  The constants of a format are asked of
ml_dtypes, which the interpreter computes with: which bits are infinity and NaN, and what becomes of a number too large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ..expr.dtype import STORED, is_unsigned

_BITS = "union { float f; unsigned u; } v"


def bits_of(value: float, dtype: str) -> int:
    """The bits that memory holds of a value of a stored dtype."""
    with np.errstate(all="ignore"):
        array = np.asarray(value, STORED[dtype]).astype(dtype)
    return int(array.view(f"u{array.itemsize}"))


def helper_body(name: str, key: str, dtype: str, number: str, held: str) -> str:
    """The helper `key` that reads ("decode") or writes ("encode") a stored dtype.

    `number` and `held` are the types, as text, of its values and of what memory holds.
    """
    if STORED[dtype] != "float32":
        read = "{ return b & 15; }" if is_unsigned(dtype) else "{ return (b & 7) - (b & 8); }"
        write = "{ return x & 15; }"
    elif dtype == "bfloat16":
        read, write = _READ_BFLOAT16, _WRITE_BFLOAT16
    else:
        read, write = _Format.of(dtype).decode(), _Format.of(dtype).encode()
    return f"{number} {key}({held} b) {read}" if name == "decode" else f"{held} {key}({number} x) {write}"


_READ_BFLOAT16 = f"{{ {_BITS}; v.u = (unsigned)b << 16; return v.f; }}"
_WRITE_BFLOAT16 = (
    f"{{ {_BITS}; v.f = x; return x == x ? (v.u + 0x7fff + ((v.u >> 16) & 1)) >> 16 : (v.u >> 16) | 0x40; }}"
)


@dataclass(frozen=True)
class _Format:
    """Bits of the mantissa, exponent bias, and the bits of: the sign, the largest number, what is above it, NaN."""

    mantissa: int
    bias: int
    sign: int
    top: int
    above: int
    nan: int

    @classmethod
    def of(cls, dtype: str) -> _Format:
        info = ml_dtypes.finfo(np.dtype(dtype))
        top = bits_of(float(info.max), dtype)
        sign = 1 << top.bit_length()
        bias = 1 - int(math.log2(float(info.smallest_normal)))
        return cls(int(info.nmant), bias, sign, top, bits_of(math.inf, dtype), bits_of(math.nan, dtype))

    @property
    def one_zero(self) -> bool:
        """The bits of minus zero are NaN."""
        return self.nan == self.sign and self.above == self.nan

    def decode(self) -> str:
        """The body that makes a float of bits `b`."""
        parts = [
            f"unsigned m = b & {self.sign - 1}; {_BITS}; v.u = (m << {23 - self.mantissa}) + {127 - self.bias << 23}u;"
        ]
        parts.append(f"float x = m >> {self.mantissa} ? v.f : (float)m * {2.0 ** (1 - self.bias - self.mantissa)!r}f;")
        special = f"b == {self.nan}" if self.one_zero else f"m > {self.top}" if self.top < self.sign - 1 else ""
        infinite = self.above if self.above != self.nan and self.above > self.top else None
        if special:
            code = f"m == {infinite} ? 0x7f800000u : 0x7fc00000u" if infinite is not None else "0x7fc00000u"
            parts.append(f"if ({special}) {{ v.u = {code}; x = v.f; }}")
        return f"{{ {' '.join(parts)} return b & {self.sign} ? -x : x; }}"

    def encode(self) -> str:
        """The body that makes bits of a float `x`."""
        drop, normal = 23 - self.mantissa, 127 + 1 - self.bias << 23
        parts = [f"{_BITS}; v.f = x; unsigned s = v.u >> 31 ? {self.sign} : 0, r; v.u &= 0x7fffffffu;"]
        parts.append(f"if (v.u > 0x7f800000u) return {self._not_a_number()};")
        rounded = (
            f"((v.u + {(1 << drop - 1) - 1} + ((v.u >> {drop}) & 1)) >> {drop}) - {127 - self.bias << self.mantissa}"
        )
        steps = f"(unsigned)rintf(v.f * {2.0 ** (self.bias + self.mantissa - 1)!r}f)"
        parts.append(f"r = v.u >= {normal}u ? {rounded} : {steps};")
        if self.one_zero:
            parts.append(f"return r > {self.top} ? {self.nan} : r ? s | r : 0;")
        else:
            parts.append(f"return s | (r > {self.top} ? {self.above} : r);")
        return f"{{ {' '.join(parts)} }}"

    def _not_a_number(self) -> str:
        return str(self.nan) if self.nan >= self.sign else f"s | {self.nan}"
