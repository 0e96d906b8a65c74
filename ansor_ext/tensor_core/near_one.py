"""Factors `1 + erf(x)` and `1 + tanh(x)` of values that are rounded to 16 bits, by half of the instructions.

    half(x * (1 + erf(y)))         ->   one = erfc(-y), half(x * one)
    half(x * 0.5 * (1 + erf(y)))   ->   one = 0.5 * erfc(-y), half(x * one)

As they stand in GELU.  A relative error of a factor is one of the product, so what is small beside half a unit in the
last place of 16 bits (2^-12 for float16) may be left out before these are rounded:

    1 + tanh(x)   1 / (0.5 + 0.5 * 2^(-2 x / ln 2)), off by 2^-20 at most where it is above 2^-14
    1 + erf(x)    2^p(|x|) where x is negative, else 2 minus that, for a polynomial p of degree 7 that is near log2 of
                  erfc; off by 2^-16 at most where it is above 2^-14

Half of either takes an instruction less. Both give what the sums of float32 lose where they are near zero, infinities
and NaN as these do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from te_lite.expr.expr import Binary, BufferLoad, Call, Const, Expr, as_expr, binary
from te_lite.expr.visit import transform
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, Stmt, Store, bodies, seq, with_bodies

from .instructions import NearOne
from .row_folds import rounded_value

HALF = 0.5
_HEAD = "static __device__ __forceinline__ float"
HELPERS = {
    "erf": f"""\
// 1 + erf(x), of which 16 bits are right; or half of that.
template <bool half> {_HEAD} one_and_erf(float x) {{
  const float size = fabsf(x);
  float power = fmaf(size, -1.86267201e-5f, 4.62343987e-4f);
  power = fmaf(size, power, -5.09594209e-3f);
  power = fmaf(size, power, 3.35813617e-2f);
  power = fmaf(size, power, -1.52015546e-1f);
  power = fmaf(size, power, -9.17311349e-1f);
  power = fmaf(size, power, -1.62802306f);
  power = half ? fmaf(size, power, -1.0f) : size * power;
#ifdef __CUDA_ARCH__
  float rest;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(power));
#else
  const float rest = exp2f(power);
#endif
  return x >= 0.0f ? (half ? 1.0f : 2.0f) - rest : rest;
}}""",
    "tanh": f"""\
// 1 + tanh(x * factor), of which 20 bits are right; or half of that.
template <bool half> {_HEAD} one_and_tanh(float x, float factor = 1.0f) {{
  const float power = x * (factor * -2.88539008f), part = half ? 1.0f : 0.5f;
#ifdef __CUDA_ARCH__
  float rest, one;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(power));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(one) : "f"(fmaf(rest, part, part)));
  return one;
#else
  return 1.0f / fmaf(exp2f(power), part, part);
#endif
}}""",
}


def with_near_ones(s: Stmt) -> Stmt:
    """A statement with such factors, in all that it rounds to 16 bits."""
    match s:
        case Store(value=value):
            rounded = rounded_value(value)
            return s if rounded is None else stored_near_one(s, rounded)
        case For(kind=ForKind.VECTORIZED, body=Store() as store):
            made = with_near_ones(store)
            return s if made is store else replace(s, kind=ForKind.UNROLLED, body=made)
    return with_bodies(s, tuple(map(with_near_ones, bodies(s))))


def stored_near_one(s: Store, value: Expr) -> Stmt:
    """The store of what `value` is rounded to, with one such factor of it computed before."""
    factors = list(_factors(value))
    found = next((x for x in factors if _of_one(x) is not None), None)
    call = None if found is None else _of_one(found)
    if found is None or call is None:
        return s
    at = BufferLoad(Buffer("one", "float32", (1,), "local"), as_expr(0))
    others = [x for x in factors if x is not found and not _is_half(x)]
    half = (len(factors), len(others)) == (3, 1)
    old, new = (value, binary("*", others[0], at)) if half else (found, at)
    stored = replace(s, value=transform(s.value, lambda x: new if x is old else None))
    return Alloc(at.buffer, seq(NearOne(at, *_argument(call), call.func, half), stored))


def _argument(call: Call) -> tuple[Expr, float]:
    """What a function is of, and a constant factor of that, which costs nothing where it is known."""
    match call.args[0]:
        case Binary("*", x, Const(value=factor)) | Binary("*", Const(value=factor), x):
            if call.func == "tanh" and math.isfinite(factor):
                return x, float(factor)
    return call.args[0], 1.0


def _is_half(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == HALF


def _factors(e: Expr) -> Iterator[Expr]:
    match e:
        case Binary(op="*", a=a, b=b):
            yield from _factors(a)
            yield from _factors(b)
        case _:
            yield e


def _of_one(e: Expr) -> Call | None:
    """The function that is added to one."""
    match e:
        case Binary("+", Call() as call, Const(value=1.0)) | Binary("+", Const(value=1.0), Call() as call):
            return call if call.func in HELPERS and e.dtype == "float32" else None
    return None
