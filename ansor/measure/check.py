"""Is the output of a program right?  A fast wrong program must not win.

The reference is the DAG evaluated in float64.  A float output passes when the largest absolute difference, taken
relative to the largest absolute reference value, is at most

    16 * eps(dtype) * sqrt(1 + terms)        (at most 0.05)

where `terms` is the sum of the reduction lengths of the computation: rounding errors of a sum add up like a random
walk, about 0.3 * eps * sqrt(terms), so the limit leaves a factor of some 50 and still catches one missing term.
Integers and booleans must be equal.  Elements whose reference is not finite are not compared.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from te_lite import ComputeDAG
from te_lite.tensor import ComputeOp

Array = np.ndarray[Any, np.dtype[Any]]


def reduction_terms(dag: ComputeDAG) -> int:
    """The sum over the operations of the number of terms one element adds up."""
    total = 0
    for op in dag.ops:
        if isinstance(op, ComputeOp) and op.reduce_axis:
            total += math.prod([v.extent if isinstance(v.extent, int) else 64 for v in op.reduce_axis])
    return total


def tolerance(dtype: str, terms: int) -> float:
    """The largest relative difference that rounding explains (see the module)."""
    kind = np.dtype(dtype)
    if kind.kind != "f":
        return 0.0
    return min(0.05, 16 * float(np.finfo(kind).eps) * math.sqrt(1 + terms))


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """What outputs hold before a run: NaN, the lowest integer, or True."""
    kind = np.dtype(dtype)
    value: Any = np.nan if kind.kind == "f" else True if kind.kind == "b" else np.iinfo(kind).min + 77
    return np.full(shape, value, kind)


def mismatch(got: Array, reference: Array, limit: float) -> str:
    """Empty when `got` is right, else one sentence with the worst element."""
    if got.dtype.kind != "f":
        wrong = np.asarray(got != reference)
        if not wrong.any():
            return ""
        where = tuple(int(k) for k in np.argwhere(wrong)[0])
        count = int(wrong.sum())
        return f"{count} of {got.size} elements differ, the first at {where}: {got[where]}, not {reference[where]}"
    known = np.isfinite(reference)
    scale = float(np.abs(reference, where=known, out=np.zeros_like(reference)).max(initial=0.0)) or 1.0
    error = np.where(known, np.abs(got.astype(np.float64) - np.where(known, reference, 0)), 0.0) / scale
    error = np.where(np.isnan(error), np.inf, error)
    worst = float(error.max(initial=0.0))
    if worst <= limit:
        return ""
    where = tuple(int(k) for k in np.unravel_index(int(error.argmax()), error.shape))
    values = f"{got[where]}, not {reference[where]:.9g}"
    return f"the error at {where} is {worst:.3g} of the largest value, above {limit:.3g}: {values}"
