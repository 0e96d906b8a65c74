"""One computation on every backend: the reference, the interpreter, compiled C in two schedules, emulated CUDA."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import codegen_c
import te_lite as te
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.meaning import interp, reference

Arrays = dict[te.Tensor, np.ndarray]
Schedule = Callable[[te.Schedule, te.Tensor], None]
USUAL = ("reference", "interpreter", "C vectors", "CUDA")
HAS_GXX = shutil.which("g++") is not None


def vectorized(s: te.Schedule, t: te.Tensor) -> None:
    """The innermost loop in vectors of 8."""
    _, inner = s[t].split(s[t].op.axis[-1], 8)
    s[t].vectorize(inner)


def unrolled(s: te.Schedule, t: te.Tensor) -> None:
    """All loops in one, its parts unrolled."""
    _, inner = s[t].split(s[t].fuse(*s[t].op.axis), 4)
    s[t].unroll(inner)


def threads(s: te.Schedule, t: te.Tensor) -> None:
    """All loops in one, on blocks of 32 threads."""
    outer, inner = s[t].split(s[t].fuse(*s[t].op.axis), 32)
    s[t].bind(outer, te.thread_axis("blockIdx.x"))
    s[t].bind(inner, te.thread_axis("threadIdx.x"))


def lowered(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor], schedule: Schedule) -> te.LoweredFunc:
    """The program of a computation with one schedule for each of its stages."""
    s = te.create_schedule([t.op for t in dict.fromkeys(outputs)])
    for op in dict.fromkeys(t.op for t in outputs):
        schedule(s, op.output(0))
    return te.lower(s, [*inputs, *outputs])


def _poisoned(t: te.Tensor) -> np.ndarray:
    return np.full(t.shape, np.nan if t.dtype.startswith("float") else 113, t.dtype)


def results(
    outputs: Sequence[te.Tensor], inputs: Arrays, backends: Sequence[str] = USUAL
) -> dict[str, list[np.ndarray]]:
    """The arrays of `outputs` by backend: those of `USUAL`, or `backends`."""

    def run(schedule: Schedule, how: Callable[[te.LoweredFunc, list[Any]], Any]) -> list[np.ndarray]:
        arrays = [_poisoned(t) for t in outputs]
        how(lowered(list(inputs), outputs, schedule), [*[a.copy() for a in inputs.values()], *arrays])
        return arrays

    def evaluated() -> list[np.ndarray]:
        found = reference.evaluate([*inputs, *outputs], inputs)
        return [found[t] for t in outputs]

    found: dict[str, Callable[[], list[np.ndarray]]] = {
        "reference": evaluated,
        "interpreter": lambda: run(threads, interp.run),
        "C vectors": lambda: run(vectorized, lambda f, args: codegen_c.build(f)(*args)),
        "C unrolled": lambda: run(unrolled, lambda f, args: codegen_c.build(f)(*args)),
    }
    if HAS_GXX:
        found["CUDA"] = lambda: run(threads, lambda f, args: run_program(emit(f), args))
    return {name: f() for name, f in found.items() if name in backends}
