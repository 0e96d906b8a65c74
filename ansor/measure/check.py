"""Is the output of a program right?  A fast wrong program must not win.

The reference is the DAG evaluated in float64.  An element is right when it differs from it by no more than twice what
rounding can change in this element (`rounding.py`: magnitudes are summed through the whole computation, so a small
element has a small bound beside large ones), plus four of the smallest numbers of the dtype.  Integers, booleans, and
floats that are moved and not computed must be equal.  NaN, +inf and -inf are each right where the reference has them.
Where an error is infinite the value may be anything: rounding decides on the class of the result.

All this is settled once a task, as the interval of values that are accepted for each element.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from te_lite import ComputeDAG
from te_lite.computation.tensor import Tensor
from te_lite.expr.dtype import FLOATS, SMALL_FLOATS, computed, largest
from te_lite.expr.interval import dtype_interval
from te_lite.meaning.reference import MOST_THREADS, evaluate

from ..core.target.target import STRICT
from .rounding import rounding_errors
from .rounding_expr import SAFETY, least

Array = np.ndarray[Any, np.dtype[Any]]
PIECE = 1 << 16
NO_NAN = "float4_e2m1fn"
MARGIN = 1 / 32
"""Of a number beyond the ends of a dtype: how far off it may be, where its error is not known."""


def poison_value(dtype: str) -> Array:
    """What each element of an output holds before a run, as an array of one: NaN (of float4, which has none, the lowest
    number), a low integer, or True."""
    kind = np.dtype(dtype)
    if dtype in FLOATS:
        return np.array(np.nan if dtype != NO_NAN else -largest(dtype)).astype(kind)
    low, high = dtype_interval(dtype)
    return np.array(True if dtype == "bool" else min(int(low) + 77, int(high))).astype(kind)


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """An array of poison."""
    return np.full(shape, poison_value(dtype))


def save_whole(path: Path, array: Array) -> None:
    """Write an array to a `.npy` file, which is whole whenever it is there."""
    scratch = path.with_name(f"{path.stem}.part.npy")
    np.save(scratch, array, allow_pickle=False)
    scratch.replace(path)


@dataclass(frozen=True, eq=False)
class Accepted:
    """What is right for an output, element by element: `low` to `high`, both of the output's dtype.

    NaN is right, too, where `nan` says so; None says nowhere.
    """

    low: Array
    high: Array
    nan: Array | None = None

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        return sum(a.nbytes for a in self._named().values())

    def save(self, stem: Path) -> None:
        """Keep the arrays in files whose names start with `stem`."""
        for name, array in self._named().items():
            save_whole(stem.with_name(f"{stem.name}.{name}.npy"), array)

    @staticmethod
    def load(stem: Path) -> Accepted | None:
        """What `save` kept; None when there is nothing."""
        paths = [stem.with_name(f"{stem.name}.{name}.npy") for name in ("low", "high", "nan")]
        if not all(p.exists() for p in paths):
            return None
        low, high, nan = [np.load(p, allow_pickle=False) for p in paths]
        return Accepted(low, high, nan if nan.size else None)

    def _named(self) -> dict[str, Array]:
        return {"low": self.low, "high": self.high, "nan": np.empty(0, bool) if self.nan is None else self.nan}


def accepted_values(dag: ComputeDAG, inputs: Mapping[Tensor, Array], precision: str = STRICT) -> dict[Tensor, Accepted]:
    """What is right for each output of `dag` on these inputs, computed with `precision` (`Target.precision`).

    Raises InterpError as `te_lite.meaning.reference` does."""
    errors = rounding_errors(dag, precision)
    wanted = [*dag.tensors, *[errors[t] for t in dag.outputs if t in errors]]
    values = evaluate(wanted, inputs, "float64")
    return {t: accepted(values[t], values[errors[t]] if t in errors else None, t.dtype) for t in dag.outputs}


def accepted(reference: Array, error: Array | None, dtype: str) -> Accepted:
    """What is right where the reference (float64, or exact) may be off by `error` (float64); None is nothing.

    Of a stored dtype, the ends are of the dtype that is computed with.
    """
    with np.errstate(all="ignore"):
        reference = reference.astype(computed(str(reference.dtype)))
        if dtype not in FLOATS:
            return _whole(reference, error, np.dtype(computed(dtype)))
        if error is None:
            values = reference.astype(computed(dtype))
            nan = np.isnan(values)
            return Accepted(np.where(nan, np.inf, values).astype(values.dtype), values, nan if nan.any() else None)
        return _piece_by_piece(reference, error, dtype)


def _whole(reference: Array, error: Array | None, kind: np.dtype[Any]) -> Accepted:
    if error is None or not error.any():
        return Accepted(reference, reference)
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    steps = np.where(np.isfinite(error), np.ceil(error), np.inf)
    below = np.where(steps > 0, np.clip(reference - steps, low, high), low)
    above = np.where(steps > 0, np.clip(reference + steps, low, high), high)
    # a float64 that was clipped to the largest int64 does not fit one
    below, above = [np.where(np.abs(x) < 2.0**62, x, np.sign(x) * 2.0**62).astype(kind) for x in (below, above)]
    below, above = [np.where(np.isinf(steps), kind.type(end), x) for x, end in ((below, low), (above, high))]
    return Accepted(np.where(steps > 0, np.minimum(below, reference), reference),
                    np.where(steps > 0, np.maximum(above, reference), reference))  # fmt: skip


def _piece_by_piece(reference: Array, error: Array, dtype: str) -> Accepted:
    """`_around`, on pieces that stay in a cache; several threads take them."""
    if reference.size <= PIECE:
        return _around(reference, error, dtype)
    low, high = [np.empty(reference.shape, computed(dtype)) for _ in range(2)]
    nan, flat = np.zeros(reference.shape, bool), [np.ravel(x) for x in (reference, error)]

    def fill(start: int) -> None:
        part = slice(start, start + PIECE)
        with np.errstate(all="ignore"):  # threads do not inherit it
            made = _around(flat[0][part], flat[1][part], dtype)
        low.reshape(-1)[part], high.reshape(-1)[part] = made.low, made.high
        if made.nan is not None:
            nan.reshape(-1)[part] = made.nan

    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(fill, range(0, reference.size, PIECE)))
    return Accepted(low, high, nan if nan.any() else None)


def _around(reference: Array, error: Array, dtype: str) -> Accepted:
    kind: Any = np.dtype(computed(dtype)).type
    finite = np.isfinite(reference)
    anything = np.isposinf(error) | (finite & np.isnan(error))
    factor = 1.0 if dtype in SMALL_FLOATS else SAFETY  # the error of their rounding has it already
    limit = np.where(finite & ~anything, factor * error + 4 * least(computed(dtype)), 0.0)
    low = np.nextafter((reference - limit).astype(kind), kind(-np.inf))
    high = np.nextafter((reference + limit).astype(kind), kind(np.inf))
    ended = reference.astype(np.dtype(dtype)).astype(kind)
    beyond = anything & _beyond(reference, dtype) if anything.any() else anything
    exact = beyond | (~finite & ~anything)
    low, high = np.where(exact, ended, low), np.where(exact, ended, high)
    free, nan = anything & ~beyond, np.isnan(ended) & exact | np.isnan(reference)
    low, high = np.where(free, kind(-np.inf), low), np.where(free, kind(np.inf), high)
    either = anything | nan
    return Accepted(low.astype(kind), high.astype(kind), either if either.any() else None)


def _beyond(reference: Array, dtype: str) -> Array:
    """Where the reference is finite, beyond the largest number, and certain to become what follows that there."""
    near, far = [(reference * scale).astype(dtype).astype(computed(dtype)) for scale in (1 - MARGIN, 1 + MARGIN)]
    alike: Array = (near == far) | (np.isnan(near) & np.isnan(far))
    return alike & np.isfinite(reference) & (np.abs(reference) > largest(dtype))


@dataclass(frozen=True)
class Fault:
    """What is wrong with an output: how many elements are, the flat index of the worst, what it is and should be."""

    count: int
    worst: int
    got: str
    want: str


def fault(got: Array, right: Accepted) -> Fault | None:
    """What is wrong with `got`; None when nothing is."""
    got = got.astype(computed(str(got.dtype)), copy=False)
    fine = (got >= right.low) & (got <= right.high)
    if fine.all():
        return None
    if right.nan is not None:
        fine |= right.nan & np.isnan(got)
    if fine.all():
        return None
    wrong = np.flatnonzero(~fine)
    low, high, values = [x[~fine].astype(np.float64) for x in (right.low, right.high, got)]
    with np.errstate(all="ignore"):
        middle, half = (low + high) / 2, (high - low) / 2
        excess = np.abs(values - middle) / np.maximum(half, np.finfo(np.float64).tiny)
    worst = int(np.where(np.isnan(excess), np.inf, excess).argmax())
    want = f"{middle[worst]:.9g}" + (f" to within {half[worst]:.2g}" if half[worst] > 0 else "")
    return Fault(len(wrong), int(wrong[worst]), str(got.flat[wrong[worst]]), want)


def fault_text(count: int, shape: tuple[int, ...], which: str, place: int, got: str, want: str) -> str:
    """One sentence on `count` wrong elements, and on the one at the flat index `place`."""
    where = tuple([int(k) for k in np.unravel_index(place, shape)])
    text = "1 element is" if count == 1 else f"{count} elements are"
    return f"{text} wrong of {prod(shape)}, {which} at {where}: {got}, not {want}"


def mismatch(got: Array, right: Accepted) -> str:
    """Empty when `got` is right, else one sentence with the number of wrong elements and the worst of them."""
    found = fault(got, right)
    return "" if found is None else fault_text(found.count, got.shape, "the worst", found.worst, found.got, found.want)
