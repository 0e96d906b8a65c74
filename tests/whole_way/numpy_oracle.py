"""What a description means: plain NumPy, which shares nothing with te_lite but the description.

Integers are computed in their dtype, with wrap-around.  Floats are computed in float64, each with a bound of what
rounding in its own dtype may add, carried through every operation (running error analysis).  Where a rounding error
may change a comparison, an integer or an index, the bound is infinite: such elements cannot be compared.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .description import Axes, Dag, Expr, Input, Stage

Array = np.ndarray[Any, np.dtype[Any]]
ORDER = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
DIGITS = {"float16": 11, "float32": 24, "float64": 53}
LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}
SMALLEST = {"float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}
ULPS_OF_CALLS = 8.0


@dataclass(frozen=True, eq=False)
class Value:
    """Values of a dtype (floats as float64), and how far a right program may be off (0 or inf for integers)."""

    v: Array
    e: Array
    dtype: str

    @property
    def is_float(self) -> bool:
        return self.dtype in DIGITS


def exact(v: Any, dtype: str) -> Value:
    """Values without an error."""
    array = np.asarray(v)
    return Value(array.astype("float64" if dtype in DIGITS else dtype), np.zeros((), "float64"), dtype)


def given(array: Array, dtype: str) -> Value:
    """An input; what is not finite makes everything that is computed from it unknown."""
    x = exact(array, dtype)
    if not x.is_float:
        return x
    return _unknown_where(np.where(np.isfinite(x.v), x.v, 0.0), ~np.isfinite(x.v), dtype)


def evaluate(dag: Dag, inputs: Mapping[str, Array]) -> dict[str, Value]:
    """Every tensor of `dag`."""
    known = {i.name: given(inputs[i.name], i.dtype) for i in dag.inputs}
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
    live = np.broadcast_to(mask.v | (mask.e > 0), shape)
    bodies = [_spread(point.value(e, live), shape) for e in stage.body]
    if not stage.fold:
        return bodies
    count = math.prod([n for _, n in stage.axes])
    rows = [Value(b.v.reshape(count, -1), b.e.reshape(count, -1), b.dtype) for b in bodies]
    kept = _spread(mask, shape)
    folded = fold(stage.fold, rows, kept.v.reshape(count, -1), kept.e.reshape(count, -1))
    return [
        Value(f.v.reshape(shape[: len(stage.axes)]), f.e.reshape(shape[: len(stage.axes)]), f.dtype) for f in folded
    ]


def _grid(axes: Axes) -> dict[str, Array]:
    out = {}
    for k, (name, extent) in enumerate(axes):
        shape = [1] * len(axes)
        shape[k] = extent
        out[name] = np.arange(extent, dtype="int32").reshape(shape)
    return out


def _spread(x: Value, shape: tuple[int, ...]) -> Value:
    v = np.broadcast_to(x.v, shape)
    return Value(v, np.broadcast_to(x.e, shape), x.dtype)


# ---------------------------------------------------------------------------------------------- expressions


class _Point:
    """Expressions at all points of an operation at once."""

    def __init__(self, grid: Mapping[str, Array], known: Mapping[str, Value]) -> None:
        self.grid, self.known = grid, known

    def value(self, e: Expr, live: Array) -> Value:
        """`e` at all points; only those that are `live` count."""
        match e:
            case ("axis", name):
                return exact(self.grid[name], "int32")
            case ("const", value, dtype):
                return exact(value, dtype)
            case ("load", name, *indices):
                return self._load(self.known[name], [self.value(i, live) for i in indices], live, name)
            case ("cast", dtype, a):
                return cast(self.value(a, live), dtype)
            case ("call", function, *args):
                return call(function, [self.value(a, live) for a in args])
            case ("not", a):
                x = self.value(a, live)
                return Value(~x.v, x.e, "bool")
            case ("select", c, a, b):
                return choose(self.value(c, live), self.value(a, live), self.value(b, live))
            case ("if", c, a, b):
                condition = self.value(c, live)
                unsure = condition.e > 0
                return choose(
                    condition,
                    self.value(a, live & (condition.v | unsure)),
                    self.value(b, live & (~condition.v | unsure)),
                )
            case ("and" | "or" as op, a, b):
                return junction(op, self.value(a, live), self.value(b, live))
            case (op, a, b):
                x, y = alike(self.value(a, live), self.value(b, live))
                return compare(op, x, y) if op in COMPARE else binary(op, x, y)
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
        e = np.broadcast_to(x.e, x.v.shape)[at]
        return Value(x.v[at], np.where(unsure, np.inf, e), x.dtype)


def alike(a: Value, b: Value) -> tuple[Value, Value]:
    """Both in the dtype of an operation on them: floats win, then the wider one."""
    dtype = max(a.dtype, b.dtype, key=ORDER.index)
    return cast(a, dtype), cast(b, dtype)


def rounded(v: Array, e: Array, dtype: str, exact_inputs: Array | bool = False, ulps: float = 1.0) -> Value:
    """A float result with its own rounding added; what may overflow, and NaN, is unknown."""
    eps = 2.0 ** -DIGITS[dtype]
    narrow = "float32" if dtype == "float64" else dtype
    kept = exact_inputs & (v == v.astype(narrow).astype("float64"))
    e = e + np.where(kept, 0.0, ulps * (eps * (np.abs(v) + e) + eps * SMALLEST[dtype]))
    bad = ~np.isfinite(v) | ~(np.abs(v) + e < 0.99 * LARGEST[dtype])
    return Value(np.where(bad, 0.0, v), np.where(bad, np.inf, e), dtype)


def _unknown_where(v: Array, bad: Array, dtype: str) -> Value:
    return Value(v, np.where(bad, np.inf, 0.0), dtype)


def cast(a: Value, dtype: str) -> Value:
    """As C converts: floats to integers towards zero; what does not fit is unknown."""
    if a.dtype == dtype:
        return a
    if dtype in DIGITS:
        return rounded(a.v.astype("float64"), a.e, dtype, a.e == 0)
    if dtype == "bool":
        unsure = np.abs(a.v) <= a.e if a.is_float else a.e > 0
        return _unknown_where(a.v != 0, unsure & (a.e > 0), dtype)
    if not a.is_float:
        return Value(a.v.astype(dtype), a.e, dtype)
    low, high = np.trunc(a.v - a.e), np.trunc(a.v + a.e)
    info = np.iinfo(dtype)
    most = min(float(info.max), 2.0**62)
    bad = ~(low == high) | ~(low >= max(float(info.min), -(2.0**62))) | ~(high <= most)
    return _unknown_where(np.where(bad, 0.0, low).astype(dtype), bad, dtype)


COMPARE = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def compare(op: str, a: Value, b: Value) -> Value:
    e = a.e + b.e
    unsure = (e > 0) & ~(np.abs(a.v - b.v) > e) if a.is_float else e > 0
    return _unknown_where(COMPARE[op](a.v, b.v), unsure, "bool")


def junction(op: str, a: Value, b: Value) -> Value:
    """`and`, `or`: a sure side may decide alone."""
    if op == "and":
        sure = ((a.e == 0) & ~a.v) | ((b.e == 0) & ~b.v)
        return _unknown_where(a.v & b.v, ~sure & (a.e + b.e > 0), "bool")
    sure = ((a.e == 0) & a.v) | ((b.e == 0) & b.v)
    return _unknown_where(a.v | b.v, ~sure & (a.e + b.e > 0), "bool")


def choose(c: Value, a: Value, b: Value) -> Value:
    a, b = alike(a, b)
    v = np.where(c.v, a.v, b.v)
    e = np.where(c.v, a.e, b.e)
    if not a.is_float:
        return Value(v, np.where((c.e > 0) & ~((a.v == b.v) & (a.e == 0) & (b.e == 0)), np.inf, e), a.dtype)
    return Value(v, np.where(c.e > 0, np.maximum(a.e, b.e) + np.abs(a.v - b.v), e), a.dtype)


def binary(op: str, a: Value, b: Value) -> Value:
    """Operands of one dtype."""
    if not a.is_float:
        return _integers(op, a, b)
    given = (a.e == 0) & (b.e == 0)
    match op:
        case "+" | "-":
            return rounded(a.v + b.v if op == "+" else a.v - b.v, a.e + b.e, a.dtype, given)
        case "*":
            return rounded(a.v * b.v, np.abs(a.v) * b.e + np.abs(b.v) * a.e + a.e * b.e, a.dtype, given)
        case "min" | "max":
            return Value((np.minimum if op == "min" else np.maximum)(a.v, b.v), np.maximum(a.e, b.e), a.dtype)
    least = np.abs(b.v) - b.e
    quotient = a.v / b.v
    error = np.where(least > 0, (a.e + np.abs(quotient) * b.e) / least, np.inf)
    if op == "/":
        return rounded(quotient, error, a.dtype, given)
    near = error + 2.0 ** (2 - DIGITS[a.dtype]) * np.abs(quotient)
    low, high = np.floor(quotient - near), np.floor(quotient + near)
    floor = np.floor(quotient)
    if op == "//":
        return rounded(floor, high - low, a.dtype)
    rest, slip = a.v - b.v * floor, np.abs(b.v) * (high - low)
    return rounded(rest, a.e + np.abs(floor) * b.e + slip + 2.0 ** -DIGITS[a.dtype] * np.abs(b.v * floor) * 2, a.dtype)


def _integers(op: str, a: Value, b: Value) -> Value:
    unsure = (a.e > 0) | (b.e > 0)
    if a.dtype == "bool" and op in ("min", "max"):
        return _unknown_where(a.v & b.v if op == "min" else a.v | b.v, unsure, "bool")
    match op:
        case "+":
            v = a.v + b.v
        case "-":
            v = a.v - b.v
        case "*":
            v = a.v * b.v
        case "min":
            v = np.minimum(a.v, b.v)
        case "max":
            v = np.maximum(a.v, b.v)
        case _:
            v = _division(op, a.v, b.v)
    return _unknown_where(np.asarray(v).astype(a.dtype), unsure, a.dtype)


def _division(op: str, a: Array, b: Array) -> Array:
    """Division by zero gives 0, and so does its remainder; the lowest value divided by -1 wraps around."""
    divisor = np.where(b == 0, np.ones((), b.dtype), b)
    quotient, rest = np.floor_divide(a, divisor), np.remainder(a, divisor)
    if op == "/":
        quotient = quotient + ((rest != 0) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros((), a.dtype), rest if op == "%" else quotient)


# ------------------------------------------------------------------------------------------------------ calls


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=["float64"])(x) if x.size else x


RISING = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh, "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "sinh": np.sinh, "atan": np.arctan,
}  # fmt: skip
STEPS = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}


def call(function: str, args: list[Value]) -> Value:
    """A function of one float (or integer, where that has a meaning), or a power."""
    x = args[0]
    if function == "isnan":
        return _unknown_where(np.zeros(x.v.shape, bool), x.e == np.inf, "bool") if x.is_float else _false(x)
    if not x.is_float:
        assert function in (*STEPS, "abs")
        return Value(np.abs(x.v), x.e, x.dtype) if function == "abs" else x
    if function == "abs":
        return Value(np.abs(x.v), x.e, x.dtype)
    if function in STEPS:
        step = STEPS[function]
        return rounded(step(x.v), np.abs(step(x.v + x.e) - step(x.v - x.e)), x.dtype, x.e == 0)
    if function == "pow":
        return _power(x, args[1])
    return _smooth(function, x)


def _false(x: Value) -> Value:
    return Value(np.zeros(x.v.shape, bool), x.e, "bool")


def _smooth(function: str, x: Value) -> Value:
    low, high = x.v - x.e, x.v + x.e
    ulps = ULPS_OF_CALLS
    if function in RISING:
        f = RISING[function]
        v, e = f(x.v), f(high) - f(low)
    elif function == "rsqrt":
        v, e = 1 / np.sqrt(x.v), 1 / np.sqrt(low) - 1 / np.sqrt(high)
    elif function == "cosh":
        v, e = np.cosh(x.v), np.sinh(np.abs(x.v) + x.e) * 2 * x.e
    elif function in ("sin", "cos"):
        v, e = (np.sin if function == "sin" else np.cos)(x.v), x.e
        ulps, e = 1.0, e + ULPS_OF_CALLS * 2.0 ** -DIGITS[x.dtype]
    else:
        assert function == "tan"
        v = np.tan(x.v)
        slope = 1 + (np.abs(v) + 1) ** 2
        e = np.where(x.e * slope < 0.1, 2 * x.e * slope, np.inf)
    if function in ("tanh", "erf", "sigmoid", "sinh", "atan"):
        e = e + ULPS_OF_CALLS * 2.0 ** -DIGITS[x.dtype]
    return rounded(v, np.where(np.isnan(e), np.inf, e), x.dtype, ulps=ulps)


def _power(x: Value, y: Value) -> Value:
    x, y = alike(x, y)
    v = np.power(x.v, y.v)
    relative = np.abs(y.v) * x.e / np.maximum(x.v - x.e, 0) + np.abs(np.log(np.abs(x.v))) * y.e
    relative = np.where(x.e + y.e == 0, 0.0, relative)
    return rounded(v, np.where(relative < 0.1, 2 * np.abs(v) * relative, np.inf), x.dtype, ulps=ULPS_OF_CALLS)


# -------------------------------------------------------------------------------------------------- reductions


def fold(name: str, rows: list[Value], kept: Array, unsure: Array) -> list[Value]:
    """Fold the last dimension; points that are not `kept` do not take part, those that are `unsure` may."""
    lost = (unsure > 0).any(axis=1)
    if name in ("argmax", "argmin"):
        out = _first(name, rows, kept)
    else:
        x = rows[0]
        values, e = np.where(kept, x.v, identity(name, x.dtype)), np.where(kept, x.e, 0.0)
        out = [_fold_floats(name, values, e, x.dtype) if x.is_float else _fold_integers(name, values, e, x.dtype)]
    return [Value(f.v, np.where(lost, np.inf, f.e), f.dtype) for f in out]


def identity(name: str, dtype: str) -> Any:
    """What an empty reduction gives."""
    if name in ("sum", "prod"):
        return np.asarray(name == "prod", "float64" if dtype in DIGITS else dtype)
    if dtype in DIGITS:
        return -np.inf if name == "max" else np.inf
    if dtype == "bool":
        return name == "min"
    info = np.iinfo(dtype)
    return np.asarray(info.min if name == "max" else info.max, dtype)


def _fold_integers(name: str, v: Array, e: Array, dtype: str) -> Value:
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    if dtype == "bool":
        ufunc = {"sum": np.logical_or, "prod": np.logical_and, "max": np.logical_or, "min": np.logical_and}[name]
    return _unknown_where(ufunc.reduce(v, axis=1, dtype=dtype), (e > 0).any(axis=1), dtype)


def _fold_floats(name: str, v: Array, e: Array, dtype: str) -> Value:
    n = v.shape[1]
    if name in ("max", "min"):
        total = v.max(axis=1) if name == "max" else v.min(axis=1)
        return _bounded(total, e.max(axis=1), dtype)
    eps = 2.0 ** -DIGITS[dtype]
    if name == "sum":
        whole = (v * 8 == np.rint(v * 8)).all(axis=1) & (e == 0).all(axis=1)
        size = np.abs(v).sum(axis=1)
        free = whole & (size * 8 < 2.0 ** DIGITS[dtype])
        bound = e.sum(axis=1) + 2 * n * eps * (size + e.sum(axis=1))
        return _bounded(v.sum(axis=1), np.where(free, 0.0, bound), dtype, size)
    relative = (e / np.abs(v)).sum(axis=1) + 2 * n * eps
    total = v.prod(axis=1)
    largest = np.maximum.reduce([np.abs(v), np.ones_like(v)]).prod(axis=1)
    least = np.minimum.reduce([np.abs(v), np.ones_like(v)]).prod(axis=1)
    hidden = np.where(least < SMALLEST[dtype] / eps, largest * SMALLEST[dtype], 0.0)
    error = np.where(relative < 0.1, 2 * np.abs(total) * relative, np.inf)
    sure_zero = ((v == 0) & (e == 0)).any(axis=1)
    return _bounded(total, np.where(sure_zero, 0.0, error + hidden), dtype, largest)


def _bounded(v: Array, e: Array, dtype: str, size: Array | None = None) -> Value:
    """A folded value; unknown where something on the way, at most `size` large, may overflow."""
    way = np.abs(v) if size is None else size
    bad = ~np.isfinite(v) | ~(way + e < 0.49 * LARGEST[dtype])
    return Value(np.where(bad, 0.0, v), np.where(bad, np.inf, e), dtype)


def _first(name: str, rows: list[Value], kept: Array) -> list[Value]:
    """Index and value of the first of the best; what is as good within the errors makes the index unknown."""
    index, value = rows
    sign = 1.0 if name == "argmax" else -1.0
    floats = value.is_float
    score = value.v.astype("float64") * sign if floats else value.v
    if not floats and name == "argmin":
        score = ~value.v
    order = np.where(kept, score, -np.inf) if floats else score
    best = order.max(axis=1, initial=None) if floats else np.where(kept, score, score.min(axis=1)[:, None]).max(axis=1)
    ties = kept & (order == best[:, None])
    lowest = np.where(ties, index.v, np.iinfo(index.dtype).max).min(axis=1)
    at = (ties & (index.v == lowest[:, None])).argmax(axis=1)
    rest = np.arange(len(at))
    e_best = np.broadcast_to(value.e, value.v.shape)[rest, at]
    rivals = kept & (np.where(kept, score, 0) + value.e >= (best - e_best)[:, None]) if floats else ties
    rivals = rivals & ~(ties & (value.e == 0) & (e_best == 0)[:, None]) if floats else np.zeros_like(ties)
    rivals[rest, at] = False
    bad = rivals.any(axis=1) | (np.broadcast_to(value.e, value.v.shape) == np.inf).any(axis=1) | ~kept.any(axis=1)
    bad |= (np.broadcast_to(index.e, index.v.shape) > 0).any(axis=1)
    worst = np.broadcast_to(value.e, value.v.shape).max(axis=1)
    found = value.v[rest, at]
    e_value = np.where(np.isinf(worst) | ~kept.any(axis=1), np.inf, worst if floats else 0.0)
    return [_unknown_where(index.v[rest, at], bad, index.dtype), Value(found, e_value, value.dtype)]


# ------------------------------------------------------------------------------------------------------ inputs


def random_inputs(dag: Dag) -> dict[str, Array]:
    """The inputs of a description, from its seed."""
    return {i.name: _fill(i, np.random.default_rng([dag.seed, k])) for k, i in enumerate(dag.inputs)}


def _fill(i: Input, rng: np.random.Generator) -> Array:
    if i.dtype == "bool":
        return rng.integers(0, 2, i.shape).astype("bool")
    if i.dtype in DIGITS:
        out = rng.integers(-24, 25, i.shape) / 8
        if i.values != "small":
            out = rng.standard_normal(i.shape) * 10.0 ** rng.integers(-2, 3, i.shape)
    else:
        info = np.iinfo(i.dtype)
        wide = i.values != "small"
        low, high = (info.min, info.max) if wide else (max(-9, info.min), 9)
        out = rng.integers(low, high, i.shape, dtype=i.dtype, endpoint=True)
    out = np.asarray(out).astype(i.dtype)
    return _special(out, rng) if i.values == "special" else out


def _special(x: Array, rng: np.random.Generator) -> Array:
    """A third of the elements replaced by the values that programs stumble over."""
    if x.dtype.kind == "f":
        kinds = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], x.dtype)
    else:
        info = np.iinfo(x.dtype)
        kinds = np.array([0, 0, info.min, info.max, 1, info.max], x.dtype)
    return np.where(rng.random(x.shape) < 0.33, kinds[rng.integers(len(kinds), size=x.shape)], x)


# -------------------------------------------------------------------------------------------------- comparison


def mismatch(want: Value, got: Array) -> str | None:
    """Where `got` is further from `want` than rounding explains, or None."""
    e = np.broadcast_to(want.e, want.v.shape)
    if want.is_float:
        off = np.abs(got.astype("float64") - want.v)
        limit = 2 * e + 4 * SMALLEST[want.dtype] * 2.0 ** -DIGITS[want.dtype]
        wrong = (e < np.inf) & ~(off <= limit)
    else:
        wrong = (e == 0) & (got != want.v)
    if not wrong.any():
        return None
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = [int(x) for x in at]
    return f"{where} is {got[at]}, not {want.v[at]} +- {e[at]:.2g} ({int(wrong.sum())} of {wrong.size} wrong)"


def compared(want: Value) -> float:
    """The share of the elements that can be compared."""
    return float((np.broadcast_to(want.e, want.v.shape) < np.inf).mean())
