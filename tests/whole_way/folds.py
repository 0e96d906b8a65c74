"""Reductions of values with error bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import DIGITS, LARGEST, SMALLEST, Array, Value, unknown_where


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
    return unknown_where(ufunc.reduce(v, axis=1, dtype=dtype), (e > 0).any(axis=1), dtype)


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
    return [unknown_where(index.v[rest, at], bad, index.dtype), Value(found, e_value, value.dtype)]
