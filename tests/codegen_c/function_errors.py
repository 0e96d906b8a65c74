"""The largest errors of our functions of float32, against the mathematical library in float64, over all numbers.

    python -m tests.codegen_c.function_errors [--part K/N] [--functions exp,log]

takes every number x whose bits are K modulo N (all of them without `--part`; half a minute a function on two cores),
with fused multiply-add and without, and prints the largest error in units in the last place of the result and where it
is.  `pow` gets an exponent drawn from the bits of x.  An error of a million and more is another class: a NaN, a sign.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Sequence

from codegen_c.compile import FLAGS, compiled
from codegen_c.functions import ULP, definitions

REFERENCES = {
    "exp": "exp(x)", "exp2": "exp2(x)", "log": "log(x)", "log2": "log2(x)", "tanh": "tanh(x)", "erf": "erf(x)",
    "sigmoid": "x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x))", "pow": "pow(x, y)",
}  # fmt: skip
HOST = FLAGS
PLAIN = tuple([f for f in FLAGS if f != "-march=native"])
"""For this processor, and for the oldest of its family, which has no fused multiply-add (on x86)."""

_HEAD = """#include <math.h>
#include <stdint.h>
static double units(float got, double want) {
  if (want != want || got != got) return want != want && got != got ? 0 : 1e9;
  if (!signbit(got) != !signbit(want)) return 1e9;
  double limit = 0x1p128, size = fabs(want) < limit ? fabs(want) : limit;
  double near = isinf(got) ? limit : fabsf(got);
  union { double f; int64_t i; } u = {size < 3e38 ? size : 3e38};
  int64_t e = (u.i >> 52) - 1023;
  u.i = (1023 + 23 - (e < -126 ? -126 : e)) << 52;
  return fabs(near - size) * u.f;
}
static float exponent(uint32_t i, float x) { /* of all sizes, whole, or such that the power is a number */
  uint32_t h = i * 2654435761u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h ^= h >> 13;
  union { uint32_t i; float f; } any = {h};
  float few = (float)((int32_t)h >> 2) * 0x1p-22f;
  return h & 1 ? any.f : h & 2 ? rintf(few) : few / fmaxf(fabsf(log2f(fabsf(x))), 1e-9f);
}"""


def _source(name: str) -> str:
    args = "x, y" if name == "pow" else "x"
    return "\n".join([_HEAD, *definitions(name).values(), f"""
static double reference(double x, double y) {{ return {REFERENCES[name]}; }}
double worst(uint64_t part, uint64_t parts, float *at) {{
  double most = 0;
  #pragma omp parallel for schedule(static)
  for (uint64_t block = 0; block < 4096; ++block) {{
    double mine = 0;
    float where = 0;
    uint64_t first = block << 20;
    for (uint64_t i = first + (part + parts - first % parts) % parts; i < first + (1 << 20); i += parts) {{
      float x = float_i32((int32_t)(uint32_t)i);
      float y = exponent((uint32_t)i, x);
      double error = units({name}_f32({args}), reference(x, y));
      if (error > mine) {{ mine = error; where = x; }}
    }}
    #pragma omp critical
    if (mine > most) {{ most = mine; *at = where; }}
  }}
  return most;
}}"""])  # fmt: skip


def worst(name: str, flags: Sequence[str] = HOST, part: int = 0, parts: int = 1) -> tuple[float, float]:
    """The largest error of a function in ulp, and its argument, over the numbers whose bits are `part` mod `parts`."""
    library = ctypes.CDLL(str(compiled(_source(name), flags, ".so", ("-lm",), f"the sweep of {name}")))
    library.worst.restype, library.worst.argtypes = ctypes.c_double, [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
    at = ctypes.c_float()
    return library.worst(part, parts, ctypes.byref(at)), at.value


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--part", default="0/1", help="K/N: the numbers whose bits are K modulo N")
    p.add_argument("--functions", default=",".join(REFERENCES))
    options = p.parse_args()
    part, parts = map(int, options.part.split("/"))
    for name in options.functions.split(","):
        for flags, which in ((HOST, "host"), (PLAIN, "plain")):
            error, at = worst(name, flags, part, parts)
            print(f"{name} {which} {options.part}: {error:.3f} ulp at {at!r}, promised {ULP[name]}", flush=True)


if __name__ == "__main__":
    main()
