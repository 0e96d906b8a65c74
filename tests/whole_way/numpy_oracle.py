"""What a description means: plain NumPy, which shares nothing with te_lite but the description.

Integers are computed in their dtype, with wrap-around; what is made of axes and int32 constants only is exact
(`index_values.py`).  Floats are computed in float64, each with a bound of what rounding in its own dtype may add,
carried through every operation (running error analysis).  Where a rounding error may change a comparison, an integer
or an index, the bound is infinite: such elements cannot be compared.  Infinities, NaN, zeros and their signs, division
by zero and casts follow docs/arithmetic.md; what it leaves open is unknown: a sum or product that may overflow on the
way, the sign of a sum of zeros and of the larger or smaller of two zeros.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .bounded import Array, Value, exact, floats
from .description import Axes, Dag, Expr, Stage
from .folds import fold
from .index_values import chosen, converted, least, stored, together, unbounded
from .operators import COMPARE, alike, binary, call, compare, junction


def evaluate(dag: Dag, inputs: Mapping[str, Array]) -> dict[str, Value]:
    """Every tensor of `dag`."""
    known = {i.name: exact(inputs[i.name], i.dtype) for i in dag.inputs}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for stage in dag.stages:
            known.update(zip(stage.names, evaluate_stage(stage, known), strict=True))
    return known


def evaluate_stage(stage: Stage, known: Mapping[str, Value]) -> list[Value]:
    """The tensors of one operation."""
    axes = (*stage.axes, *stage.reduce)
    shape = tuple([n for _, n in axes])
    point = _Point(_grid(axes), known)
    everywhere = np.ones(shape, bool)
    mask = point.value(stage.where, everywhere) if stage.where is not None else exact(everywhere, "bool")
    if stage.extent is not None:
        mask = _within(stage, point, mask)
    live = np.broadcast_to(mask.v | (mask.e > 0), shape)
    bodies = [_spread(stored(point.value(e, live)), shape) for e in stage.body]
    if not stage.fold:
        return bodies
    count = math.prod([n for _, n in stage.axes])
    rows = [b.rearranged(lambda x: x.reshape(count, -1)) for b in bodies]
    kept = _spread(mask, shape)
    folded = fold(stage.fold, rows, kept.v.reshape(count, -1), kept.e.reshape(count, -1))
    return [f.rearranged(lambda x: x.reshape(shape[: len(stage.axes)])) for f in folded]


def _within(stage: Stage, point: _Point, mask: Value) -> Value:
    """The points that the extent of the first axis of the reduction leaves."""
    (name, most), *_ = stage.reduce
    extent = point.value(stage.extent, np.ones((), bool)).v
    if (extent < 1).any() or (extent > most).any():
        raise ValueError(f"the extent of {name} leaves 1 to {most}")
    return replace(mask, v=mask.v & (point.grid[name] < extent))


def _grid(axes: Axes) -> dict[str, Array]:
    out = {}
    for k, (name, extent) in enumerate(axes):
        shape = [1] * len(axes)
        shape[k] = extent
        out[name] = np.arange(extent, dtype="int64").reshape(shape)
    return out


def _spread(x: Value, shape: tuple[int, ...]) -> Value:
    return replace(x, v=np.broadcast_to(x.v, shape), e=np.broadcast_to(x.e, shape))


# ---------------------------------------------------------------------------------------------- expressions


class _Point:
    """Expressions at all points of an operation at once."""

    def __init__(self, grid: Mapping[str, Array], known: Mapping[str, Value]) -> None:
        self.grid, self.known = grid, known

    def value(self, e: Expr, live: Array) -> Value:
        """`e` at all points; only those that are `live` count."""
        match e:
            case ("axis", name):
                return Value(self.grid[name], np.zeros(()), "int32", "axes")
            case ("const", value, dtype):
                x = exact(value, dtype)
                return Value(x.v.astype("int64") if dtype == "int32" else x.v, x.e, dtype, "const")
            case ("load", name, *indices):
                return self._load(self.known[name], [self.value(i, live) for i in indices], live, name)
            case ("cast", dtype, a):
                return converted(self.value(a, live), dtype)
            case ("call", function, *args):
                values = [self.value(a, live) for a in args]
                out = together(lambda *x: call(function, list(x)), *values)
                return out if function == "abs" or out.is_float or out.dtype == "bool" else stored(out)
            case ("not", a):
                x = self.value(a, live)
                return Value(~x.v, x.e, "bool", x.made)
            case ("select", c, a, b):
                return chosen(self.value(c, live), self.value(a, live), self.value(b, live))
            case ("if", c, a, b):
                condition = self.value(c, live)
                unsure = condition.e > 0
                return chosen(
                    condition,
                    self.value(a, live & (condition.v | unsure)),
                    self.value(b, live & (~condition.v | unsure)),
                )
            case ("and" | "or" as op, a, b):
                x, y = self.value(a, live), self.value(b, live)
                return replace(junction(op, x, y), made=least(x, y))
            case (op, a, b):
                x, y = self.value(a, live), self.value(b, live)
                if op in COMPARE:
                    return replace(compare(op, *alike(unbounded(x), unbounded(y))), made=least(x, y))
                return together(lambda x, y: binary(op, *alike(x, y)), x, y)
        raise ValueError(f"no expression: {e!r}")

    def _load(self, x: Value, indices: list[Value], live: Array, name: str) -> Value:
        place, unsure = [], np.zeros((), bool)
        for i, n in zip(indices, x.v.shape, strict=True):
            outside = live & ((i.v < 0) | (i.v >= n)) & ~(i.e > 0)
            if outside.any():
                raise IndexError(f"the description reads outside of {name}")
            unsure = unsure | (i.e > 0)
            place.append(np.clip(i.v.astype("int64"), 0, n - 1))
        at = tuple(np.broadcast_arrays(*place)) if place else ()
        read = x.rearranged(lambda y: y[at])
        e = np.where(unsure, np.inf, read.e)
        return floats(read.v, e, x.dtype, read.unsigned) if x.is_float else replace(read, e=e)
