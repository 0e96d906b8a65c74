"""Vectorisable elementary functions: exp, log, tanh, erf, sigmoid, pow and their like in float32, as C text.

A call of the mathematical library keeps a loop from becoming vectors.  These functions are straight lines of
multiplications, additions and bits: no branch, no table, no call, and what depends on a comparison is picked by a mask
(`-(a > b)` is all ones or zero).  So gcc and clang vectorize the loops that call them, the loops over the lanes of a
vector among them, which `vector_text.py` writes; scalar and vector code round alike.

Arguments are reduced as usual (Muller, Elementary Functions, 3rd ed., chapter 11): `e^x = 2^k e^r` with r in
[-ln2/2, ln2/2], k rounded by adding 1.5 * 2^23; `log x = k ln2 + log(1 + f)` with 1 + f in [sqrt(1/2), sqrt(2)]; ln2 is
0.693359375 - 2.12194440e-4, of which the first has few bits.  Polynomials are minimax in the relative error of their
function (Remez' algorithm), the coefficients rounded afterwards.  `pow` is computed in float64.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from te_lite.expr.expr import Call, Const, Expr

ULP: Mapping[str, float] = {
    "exp": 1.5, "exp2": 1.5, "log": 1.0, "log2": 2.0, "tanh": 3.0, "erf": 2.0, "sigmoid": 3.0, "pow": 1.0,
    "root": 0.5, "square": 0.5, "cube": 1.0, "sqrt": 0.5, "rsqrt": 1.5,
}  # fmt: skip
"""The largest errors in units in the last place of the result (a subnormal one's, too), over all float32 numbers, with
fused multiply-add and without; NaN, infinities and signed zeros are those of docs/arithmetic.md.  `cube` of what
underflows on the way is off by one subnormal step more."""

_POWERS = {0.5: "root", 2.0: "square", 3.0: "cube"}

_INSTRUCTIONS = ("sqrt", "rsqrt", "abs", "floor", "ceil", "trunc", "round")
"""What processors have instructions for, in vectors too."""


def _one_line(head: str, body: str) -> str:
    return f"static inline {head} {{ {body} }}"


_HELPERS = {
    "bits_f32": _one_line("int32_t bits_f32(float x)", "union { float f; int32_t i; } u = {x}; return u.i;"),
    "float_i32": _one_line("float float_i32(int32_t x)", "union { int32_t i; float f; } u = {x}; return u.f;"),
    "pick_f32": """static inline float pick_f32(int32_t mask, float a, float b) {
  return float_i32((mask & bits_f32(a)) | (~mask & bits_f32(b)));
}""",
    "signed_f32": """static inline float signed_f32(float a, float x) { /* a >= 0 with the sign of x */
  return float_i32(bits_f32(a) | (bits_f32(x) & INT32_MIN));
}""",
    "scale_f32": """static inline float scale_f32(float x, int32_t k) { /* x * 2^k, rounded once */
  int32_t h = k >> 1;
  return x * float_i32((h + 127) << 23) * float_i32((k - h + 127) << 23);
}""",
    "expm_f32": """static inline float expm_f32(float r) { /* e^r - 1 for small r */
  float p = (1.389838638e-3f * r + 8.366685361e-3f) * r + 4.166686162e-2f;
  return ((p * r + 1.666654348e-1f) * r + 0.5f) * (r * r) + r;
}""",
    "logm_f32": """static inline float logm_f32(float f) { /* log(1 + f) - f for small f */
  float p = (-7.634995133e-2f * f + 1.276528686e-1f) * f - 1.316165924e-1f;
  p = ((p * f + 1.420136392e-1f) * f - 1.662318408e-1f) * f + 2.000123858e-1f;
  return (((p * f - 2.500082552e-1f) * f + 3.333333135e-1f) * f - 0.5f) * (f * f);
}""",
    "logx_f32": """static inline float logx_f32(float x, float y) { /* y, or the logarithm of 0, inf, NaN, x < 0 */
  y = pick_f32(-(x < INFINITY), y, x);
  y = pick_f32(-(x < 0.0f), NAN, y);
  return pick_f32(-(x == 0.0f), -INFINITY, y);
}""",
    "whole_f32": """static inline int32_t whole_f32(float x) { /* whether x >= 0 is an integer */
  return -(x >= 8388608.0f) | -((x + 8388608.0f) - 8388608.0f == x);
}""",
    "power_f32": """static inline float power_f32(float x, float y) { /* x^y for x >= 0, NaN as other numbers */
  int32_t small = -(x < 1.17549435e-38f), i = bits_f32(pick_f32(small, x * 8388608.0f, x)) - 0x3f3504f3;
  float k = (float)((i >> 23) - (small & 23));
  k = pick_f32(-(x < INFINITY), k, INFINITY);
  k = pick_f32(-(x == 0.0f), -INFINITY, k);
  double m = float_i32((i & 0x7fffff) + 0x3f3504f3), f = (m - 1.0) / (m + 1.0), z = f * f;
  double p = ((0.3407322046802187 * z + 0.4116726109341963) * z + 0.5770835866681368) * z + 0.9617966733334575;
  double t = y * ((p * z + 2.885390081790092) * f + k);
  union { double f; int64_t i; } n = {t + 6755399441055744.0};
  double r = t - (n.f - 6755399441055744.0);
  n.i = (n.i + 1023) << 52;
  p = ((1.534580343452075e-4 * r + 1.3399958129196973e-3) * r + 9.618489179155403e-3) * r + 5.550328710291235e-2;
  p = ((p * r + 0.24022646886900176) * r + 0.6931472057679587) * r + 1.0000000005548453;
  float e = (float)t, out = (float)(p * n.f);
  out = pick_f32(-(e > 200.0f), INFINITY, out);
  return pick_f32(-(e < -200.0f), 0.0f, out);
}""",
}


def _power_of_e(name: str, last: float, first: float, times: str, rest: str) -> str:
    """`name` of x: infinite above `last`, 0 below `first`; x is `times` * k and a `rest` in float32 of n and x."""
    return f"""static inline float {name}_f32(float x) {{
  float n = x{times} + 12582912.0f;
  int32_t k = bits_f32(n) - 0x4b400000;
  n -= 12582912.0f;
  float y = scale_f32(expm_f32({rest}) + 1.0f, k);
  y = pick_f32(-(x > {last}f), INFINITY, y);
  return pick_f32(-(x < {first}f), 0.0f, y);
}}"""


def _logarithm(name: str, result: str) -> str:
    """`name` of x = 2^k (1 + f), as a `result` in k and f."""
    return f"""static inline float {name}_f32(float x) {{
  int32_t small = -(x < 1.17549435e-38f), i = bits_f32(pick_f32(small, x * 8388608.0f, x)) - 0x3f3504f3;
  float k = (float)((i >> 23) - (small & 23)), f = float_i32((i & 0x7fffff) + 0x3f3504f3) - 1.0f;
  return logx_f32(x, {result});
}}"""


_FUNCTIONS = {
    "exp": _power_of_e("exp", 89.0, -104.0, " * 1.44269504f", "x - n * 0.693359375f + n * 2.12194440e-4f"),
    "exp2": _power_of_e("exp2", 129.0, -151.0, "", "(x - n) * 0.693147181f"),
    "log": _logarithm("log", "k * 0.693359375f + (f + (logm_f32(f) - k * 2.12194440e-4f))"),
    "log2": _logarithm("log2", "(logm_f32(f) + f) * 1.44269504f + k"),
    "sigmoid": """static inline float sigmoid_f32(float x) {
  float e = exp_f32(-fabsf(x));
  return pick_f32(-(x < 0.0f), e, 1.0f) / (1.0f + e);
}""",
    "tanh": """static inline float tanh_f32(float x) {
  float t = 2.0f * fabsf(x), n = t * 1.44269504f + 12582912.0f;
  int32_t k = bits_f32(n) - 0x4b400000;
  n -= 12582912.0f;
  float s = float_i32((k + 127) << 23); /* 2^k */
  float e = expm_f32(t - n * 0.693359375f + n * 2.12194440e-4f) * s + (s - 1.0f); /* e^t - 1 */
  return signed_f32(pick_f32(-(t > 20.0f), 1.0f, e / (e + 2.0f)), x);
}""",
    "erf": """static inline float erf_f32(float x) {
  float t = fabsf(x), z = x * x;
  float p = ((7.853867993e-5f * z - 8.010195452e-4f) * z + 5.188327748e-3f) * z - 2.685381286e-2f;
  float y = (((p * z + 1.128358543e-1f) * z - 3.761262596e-1f) * z + 1.283791661e-1f) * x + x; /* for t <= 1 */
  float g = ((-1.863762736e-4f * t + 2.947630128e-3f) * t - 2.183795348e-2f) * t + 1.031065285e-1f;
  g = ((g * t + 6.381450891e-1f) * t + 1.127089024f) * t + 3.415575193e-4f; /* -log(1 - erf(t)) */
  g = pick_f32(-(t > 4.0f), 1.0f, 1.0f - exp_f32(-g));
  return pick_f32(-(t > 1.0f), signed_f32(g, x), y);
}""",
    "root": """static inline float root_f32(float x) { /* x^0.5, which of -0.0 and -inf is not the square root */
  return pick_f32(-(x == -INFINITY), INFINITY, sqrtf(x + 0.0f));
}""",
    "square": _one_line("float square_f32(float x)", "return x * x;"),
    "cube": _one_line("float cube_f32(float x)", "return x * x * x;"),
    "pow": """static inline float pow_f32(float x, float y) {
  float a = fabsf(x), b = fabsf(y);
  int32_t whole = whole_f32(b), odd = whole & ~whole_f32(0.5f * b);
  float out = float_i32(bits_f32(power_f32(a, y)) | (odd & bits_f32(x) & INT32_MIN));
  out = pick_f32(-(x != x) | (-(x < 0.0f) & -(a < INFINITY) & ~whole), NAN, out);
  return pick_f32(-(y == 0.0f) | -(x == 1.0f) | (-(a == 1.0f) & -(b == INFINITY)), 1.0f, out);
}""",
}
_TEXTS = {**_HELPERS, **{f"{name}_f32": text for name, text in _FUNCTIONS.items()}}


def function_name(e: Call) -> str:
    """The name of what `e` computes: some powers are functions of their own, of one argument."""
    match e:
        case Call(func="pow", args=(_, Const(value=exponent))):
            return _POWERS.get(exponent, "pow")
    return e.func


def is_ours(e: Call) -> bool:
    """Whether this is a function of float32 (float16 is computed in it) that has a text here."""
    return e.args[0].dtype in ("float16", "float32") and function_name(e) in _FUNCTIONS


def in_vectors(e: Call) -> bool:
    """Whether a loop over lanes that computes `e` becomes vector instructions."""
    dtype = e.args[0].dtype
    return (dtype == "float32" and is_ours(e)) or (dtype in ("float32", "float64") and e.func in _INSTRUCTIONS)


@lru_cache(maxsize=64)
def _size(name: str) -> int:
    return sum(map(len, definitions(name).values())) // 4


def nodes(e: Expr) -> int:
    """How many nodes a compiler sees of the top of `e`: one, but for a function that is text here."""
    return _size(function_name(e)) if isinstance(e, Call) and is_ours(e) else 1


def definitions(name: str) -> dict[str, str]:
    """The texts of the function `name` of float32 and of all that it calls, by C name, in an order for a compiler."""
    return dict(_definitions(f"{name}_f32"))


def _definitions(name: str) -> Iterator[tuple[str, str]]:
    for called in re.findall(r"\w+(?=\()", _TEXTS[name]):
        if called in _TEXTS and called != name:
            yield from _definitions(called)
    yield name, _TEXTS[name]
