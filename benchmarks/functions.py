"""Functions of float32 on the processor: their largest errors and their times, beside the C library's and PyTorch's.

    python -m benchmarks.functions [--elements 1048576] [--numbers K/N] [--json FILE]

Ours is one stage in parallel, explicit vectors of 16; `libm` is a loop over calls of the C library with the same
compiler, flags and threads; PyTorch writes into an array that is there.  Times are those of the fastest call, taken in
turns, on as many threads as there are processors; GB/s count one read and one write.  `--numbers 0/1` takes the errors
over all float32 numbers.  The last row is a softmax of 4096 x 1024, scheduled by hand: a row stays in cache, and all of
its loops are vectors.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import codegen_c
import te_lite as te
from ansor.core.device.nd import aligned_copy
from benchmarks import pytorch, report
from codegen_c.compile import load
from te_lite import topi
from tests.codegen_c.function_errors import REFERENCES, worst

LANES, EXPONENT = 16, 2.3
ROUNDS, CALLS, REST = 15, 20, 0.05
ROWS, COLUMNS = 4096, 1024
LIBRARY = {"sigmoid": "1.0f / (1.0f + expf(-x))", "pow": f"powf(x, {EXPONENT}f)"}
Array = np.ndarray[Any, np.dtype[Any]]
Runs = dict[str, Callable[[], object]]


def elementwise(name: str, elements: int) -> te.LoweredFunc:
    """The function of every element of a vector."""
    x = te.placeholder((elements,), name="x")
    rest = (te.const(EXPONENT, "float32"),) if name == "pow" else ()
    out = te.compute(x.shape, lambda i: te.call(name, x[i], *rest), name="out")
    s = te.create_schedule(out.op)
    outer, inner = s[out].split(out.op.axis[0], factor=LANES)
    s[out].parallel(s[out].split(outer, nparts=64)[0])
    s[out].vectorize(inner)
    return te.lower(s, [x, out], name="ours")


def library_loop(name: str, elements: int) -> Callable[[Array, Array], None]:
    """The same by calls of the C library."""
    source = f"""#include <math.h>
void library(const float *restrict in, float *restrict out) {{
  #pragma omp parallel for
  for (int i = 0; i < {elements}; ++i) {{ float x = in[i]; out[i] = {LIBRARY.get(name, f"{name}f(x)")}; }}
}}"""
    run = load(source)["library"]
    return lambda x, out: run(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data))


def softmax(rows: int, columns: int) -> te.LoweredFunc:
    """One parallel loop over rows; the largest number and the sum of a row as 16 lanes, then across them."""
    x = te.placeholder((rows, columns), name="x")
    out = topi.nn.softmax(x)
    exp, total = out.op.input_tensors()
    (largest,) = [t for t in exp.op.input_tensors() if t.name != "x"]
    s = te.create_schedule(out.op)
    i, j = out.op.axis
    s[out].vectorize(s[out].split(j, factor=LANES)[1])
    s[out].parallel(i)
    for reduction in (total, largest):
        (k,) = reduction.op.reduce_axis
        part = s.rfactor(reduction, s[reduction].split(k, factor=LANES)[1], 1)
        s[reduction].compute_at(s[out], i)
        s[part].compute_at(s[out], i)
        s[part].reorder(part.op.reduce_axis[0], part.op.axis[1])
        s[part].vectorize(part.op.axis[1])
    s[exp].compute_at(s[out], i)
    s[exp].vectorize(s[exp].split(exp.op.axis[1], factor=LANES)[1])
    return te.lower(s, [x, out], name="softmax")


def figures(runs: Mapping[str, Callable[[], object]], elements: int) -> dict[str, float]:
    """Nanoseconds an element of the fastest call of each run; a rest lets the threads of the others fall asleep."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            time.sleep(REST)
            for _ in range(CALLS):
                start = time.perf_counter()
                run()
                least[name] = min(least[name], time.perf_counter() - start)
    return {name: seconds * 1e9 / elements for name, seconds in least.items()}


def function_row(name: str, elements: int, part: int, parts: int) -> dict[str, Any]:
    low, high = {"log": (0.01, 100), "pow": (0.01, 8)}.get(name, (-6, 6))
    x = aligned_copy(np.random.default_rng(0).uniform(low, high, elements).astype(np.float32))
    out, other = [aligned_copy(np.full_like(x, np.nan)) for _ in range(2)]
    ours, library = codegen_c.build(elementwise(name, elements)), library_loop(name, elements)
    runs: Runs = {"ours": lambda: ours(x, out), "libm": lambda: library(x, other)}
    if pytorch.available():
        runs["PyTorch"] = pytorch.elementwise(name, x, EXPONENT)
    ns = figures(runs, elements)
    np.testing.assert_allclose(out, other, rtol=2e-6)
    return {"function": name, "ulp": worst(name, part=part, parts=parts)[0], "ns": ns, "gb_s": 8 / ns["ours"]}


def softmax_row() -> dict[str, Any]:
    x = aligned_copy(np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32))
    out = aligned_copy(np.full_like(x, np.nan))
    ours = codegen_c.build(softmax(ROWS, COLUMNS))
    runs: Runs = {"ours": lambda: ours(x, out)}
    if pytorch.available():
        runs["PyTorch"] = pytorch.softmax(x)
    ns = figures(runs, x.size)
    wide = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, wide / wide.sum(1, keepdims=True), rtol=1e-5)
    return {"function": f"softmax {ROWS} x {COLUMNS}", "ns": ns, "gb_s": 8 / ns["ours"]}


def numbers(text: str) -> tuple[int, int]:
    """K and N of `K/N`.  Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} must be K/N, two whole numbers")
    return int(found[1]), int(found[2])


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--elements", type=int, default=1 << 20, help="a multiple of 1024")
    p.add_argument(
        "--numbers", type=numbers, default="0/1021", help="K/N: take errors over the numbers whose bits are K modulo N"
    )
    options = p.parse_args()
    part, parts = options.numbers
    rows = [function_row(name, options.elements, part, parts) for name in REFERENCES] + [softmax_row()]
    names = ("ours", "libm", "PyTorch")
    report.table(
        [[r["function"], r.get("ulp", "-"), *[r["ns"].get(n, "-") for n in names], r["gb_s"]] for r in rows],
        ["function", "largest error, ulp", *[f"{n}, ns an element" for n in names], "ours, GB/s"],
    )
    report.write_json(options.json, {"numbers": f"{part}/{parts}", "elements": options.elements, "rows": rows})


if __name__ == "__main__":
    report.run(main)
