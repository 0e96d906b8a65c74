"""A product in float32, step by step: schedules written by hand, on a processor.

    python -m benchmarks.product_steps [--n 1024] [--json FILE]

Every step changes one thing of the one before it, by schedule primitives; chapter 5 explains them.  All but the last
run on one core.  Programs are timed in turns with NumPy's product and with multiply-adds alone, both on all cores, and
each result is compared with that in float64.  Where `n` is no multiple of 96 there are edges, which are slow here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import codegen_c
import te_lite as te
from ansor.cli.compare import timed_in_turns
from ansor.core.device.nd import aligned_copy
from ansor.core.target.hardware import host_cores
from benchmarks import report
from benchmarks.fma_peak import peak
from codegen_c.processor import host_options
from te_lite.computation.tensor import Tensor
from te_lite.loops.register_tile import largest_divisor
from te_lite.schedule.schedule import Schedule
from tests.workloads import matmul

LANES = host_options().vector_bytes // 4
ROWS, VECTORS = 6, 2
BLOCK_BYTES = 4 << 20
"""The rows of A that one packing of B serves."""
TOLERANCE = 1e-5
ROUNDS, SLICE = 5, 0.1


def plain(s: Schedule, c: Tensor) -> None:
    """The loops as written: each sum waits for itself."""


def rows(s: Schedule, c: Tensor) -> None:
    """Along the rows of B and C: whole cache lines are used."""
    i, j = c.op.axis
    s[c].reorder(i, c.op.reduce_axis[0], j)


def vectors(s: Schedule, c: Tensor) -> None:
    """A vector of sums is held while the reduction runs."""
    i, j = c.op.axis
    outer, lanes = s[c].split(j, factor=LANES)
    s[c].reorder(i, outer, c.op.reduce_axis[0], lanes)
    s[c].vectorize(lanes)


def registers(s: Schedule, c: Tensor) -> None:
    """6 x 2 vectors of sums: what is loaded is used several times, and no sum waits for itself."""
    i, j = c.op.axis
    io, jo, ii, ji = s[c].tile(i, j, ROWS, VECTORS * LANES)
    s[c].reorder(io, jo, c.op.reduce_axis[0], ii, ji)
    s[c].unroll(ii)
    s[c].vectorize(ji)


def packed(s: Schedule, c: Tensor, parallel: bool = False) -> None:
    """The columns of B that a tile needs are copied side by side, once for many rows."""
    a, b = s[c].op.input_tensors()
    panel = s.cache_read(b, "local", [c])
    i, j = c.op.axis
    most = max(1, BLOCK_BYTES // (4 * ROWS * a.shape[1]))
    part, of_part = s[c].split(i, factor=ROWS * int(largest_divisor(-(-a.shape[0] // ROWS), most, most)))
    io, jo, ii, ji = s[c].tile(of_part, j, ROWS, VECTORS * LANES)
    s[c].reorder(part, jo, io, c.op.reduce_axis[0], ii, ji)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    s[panel].compute_at(s[c], jo)
    s[panel].vectorize(panel.op.axis[1])
    if parallel:
        s[c].parallel(s[c].fuse(part, jo))


def threads(s: Schedule, c: Tensor) -> None:
    """Parts and panels are shared out among all cores."""
    packed(s, c, parallel=True)


STEPS: Sequence[Callable[[Schedule, Tensor], None]] = (plain, rows, vectors, registers, packed, threads)


def modules(n: int) -> dict[str, Any]:
    """The compiled program of each step."""
    found = {}
    for step in STEPS:
        *inputs, c = matmul(n, n, n)
        s = te.create_schedule(c.op)
        step(s, c)
        found[step.__name__] = codegen_c.build(te.lower(s, [*inputs, c], name=step.__name__))
    return found


def rates(n: int) -> dict[str, float]:
    """10^9 operations per second, at best: of each step, of NumPy and of multiply-adds alone."""
    a, b = (aligned_copy(np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)) for _ in range(2))
    c, exact = aligned_copy(np.full((n, n), np.nan, np.float32)), a.astype(np.float64) @ b
    runs: dict[str, Callable[[], Any]] = {}
    for name, module in modules(n).items():
        c.fill(np.nan)
        module(a, b, c)
        assert np.abs(c - exact).max() <= TOLERANCE * np.abs(exact).max(), name
        runs[name] = partial(module, a, b, c)
    alone, operations = peak()
    runs |= {"NumPy": lambda: np.matmul(a, b, out=c), "multiply-adds alone": alone}
    seconds = timed_in_turns(runs, ROUNDS, SLICE)
    done = dict.fromkeys(runs, 2.0 * n**3) | {"multiply-adds alone": operations}
    return {name: done[name] / min(times) * 1e-9 for name, times in seconds.items()}


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--n", type=int, default=1152)
    options = p.parse_args()
    report.let_blas_choose()
    found = rates(options.n)
    steps = {step.__name__: (step.__doc__ or "").partition(":")[0].rstrip(".") for step in STEPS}
    won = ["", *[f"{after / before:.2f}" for before, after in pairwise(found[name] for name in steps)], "", ""]
    table = [
        [name, 2e-6 * options.n**3 / rate, rate, gain, steps.get(name, "")]
        for (name, rate), gain in zip(found.items(), won, strict=True)
    ]
    report.table(table, [f"n = {options.n}", "ms", "Gflop/s", "won", "what it does"])
    report.write_json(options.json, {"n": options.n, "threads": host_cores(), "gflops": found})


if __name__ == "__main__":
    report.run(main)
