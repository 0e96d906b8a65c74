"""Reductions of values with error bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .bounded import DIGITS, LARGEST, SMALLEST, Array, Value, floats, unknown_where
from .operators import cast


def fold(name: str, rows: list[Value], kept: Array, unsure: Array) -> list[Value]:
    """Fold the last dimension; points that are not `kept` do not take part, those that are `unsure` may."""
    lost = (unsure > 0).any(axis=1)
    if name in ("argmax", "argmin"):
        out = _first(name, rows, kept)
    else:
        x = rows[0]
        values, e = np.where(kept, x.v, identity(name, x.dtype)), np.where(kept, x.e, 0.0)
        out = [_fold_floats(name, values, e, x) if x.is_float else _fold_integers(name, values, e, x.dtype)]
    return [_without(f, lost) for f in out]


def _without(x: Value, lost: Array) -> Value:
    """Nothing is known where `lost`."""
    e = np.where(lost, np.inf, x.e)
    return floats(x.v, e, x.dtype, x.unsigned) if x.is_float else replace(x, e=e)


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


def _fold_floats(name: str, v: Array, e: Array, x: Value) -> Value:
    """The sign of a zero is open: it depends on the order, and on what a sum begins with.

    Sums and products of bfloat16 are kept in float32 and rounded once (docs/arithmetic.md).
    """
    if name in ("max", "min"):
        total = v.max(axis=1) if name == "max" else v.min(axis=1)
        out = floats(total, np.where(np.isnan(total), 0.0, e.max(axis=1)), x.dtype)
    else:
        kept = "float32" if x.dtype == "bfloat16" else x.dtype
        out = cast((_sum if name == "sum" else _product)(v, e, kept), x.dtype)
    return replace(out, unsigned=out.v == 0)


def _sum(v: Array, e: Array, dtype: str) -> Value:
    """NaN and infinities decide, unless a sum of the others may be infinite as well."""
    eps, n = 2.0 ** -DIGITS[dtype], v.shape[1]
    number = np.isfinite(v)
    numbers = np.where(number, v, 0.0)
    whole = (numbers * 8 == np.rint(numbers * 8)).all(axis=1) & (e == 0).all(axis=1)
    size, error = np.abs(numbers).sum(axis=1), e.sum(axis=1)
    free = whole & (size * 8 < 2.0 ** DIGITS[dtype])
    bound = np.where(free, 0.0, error + 2 * n * eps * (size + error))
    fits = size + error < 0.49 * LARGEST[dtype]
    special = np.where(number, 0.0, v).sum(axis=1)
    sure = np.isnan(special) | (~number.all(axis=1) & fits)
    total = np.where(number.all(axis=1), numbers.sum(axis=1), special)
    return floats(total, np.where(sure, 0.0, np.where(fits, bound, np.inf)), dtype)


def _product(v: Array, e: Array, dtype: str) -> Value:
    """NaN, and an infinity with a zero, decide; so does an infinity, unless a product of the others may vanish."""
    eps, n = 2.0 ** -DIGITS[dtype], v.shape[1]
    relative = (e / np.abs(v)).sum(axis=1) + 2 * n * eps
    total = v.prod(axis=1)
    number = np.isfinite(v).all(axis=1)
    sizes = np.where(np.isfinite(v), np.abs(v), 1.0)
    largest, least = np.maximum(sizes + e, 1.0).prod(axis=1), np.minimum(sizes, 1.0).prod(axis=1)
    hidden = np.where(least < SMALLEST[dtype] / eps, largest * SMALLEST[dtype], 0.0)
    error = np.where(relative < 0.1, 2 * np.abs(total) * relative, np.inf)
    zero = ((v == 0) & (e == 0)).any(axis=1)
    apart = ((e == 0) | (np.abs(v) > 2 * e)).all(axis=1) & (least > SMALLEST[dtype] / eps)
    infinite = np.isinf(v).any(axis=1)
    total = np.where(infinite & ~zero & ~np.isnan(total), np.copysign(np.inf, np.sign(v).prod(axis=1)), total)
    sure = np.isnan(v).any(axis=1) | (infinite & (zero | apart))
    bound = np.where(zero, 0.0, error + hidden)
    fits = number & (largest + bound < 0.49 * LARGEST[dtype])
    total = np.where(infinite & zero, np.nan, total)
    return floats(total, np.where(sure, 0.0, np.where(fits, bound, np.inf)), dtype)


def _first(name: str, rows: list[Value], kept: Array) -> list[Value]:
    """Index and value of the first of the best, NaN before all; of nothing the largest index, and the identity."""
    index, value = rows
    e = np.where(kept, np.broadcast_to(value.e, value.v.shape), 0.0)
    ties, rivals = _best(name, value, e, kept)
    lowest = np.where(ties, index.v, np.iinfo(index.dtype).max).min(axis=1)
    at = (ties & (index.v == lowest[:, None])).argmax(axis=1)
    rest = np.arange(len(at))
    rivals[rest, at] = False
    nan = value.is_float & np.isnan(np.where(kept, value.v, 0)).any(axis=1)
    unknown = (e == np.inf) & (~nan[:, None] | (index.v < lowest[:, None]))
    bad = (rivals | unknown | (kept & (np.broadcast_to(index.e, index.v.shape) > 0))).any(axis=1)
    some = kept.any(axis=1)
    found = np.where(some, value.v[rest, at], identity(name[3:], value.dtype)).astype(value.v.dtype)
    places = np.where(some, index.v[rest, at], np.iinfo(index.dtype).max).astype(index.v.dtype)
    where = unknown_where(places, bad & some, index.dtype)
    if not value.is_float:
        return [where, unknown_where(found, (e > 0).any(axis=1), value.dtype)]
    return [where, floats(found, np.where(nan, 0.0, e.max(axis=1)), value.dtype, found == 0)]


def _best(name: str, value: Value, e: Array, kept: Array) -> tuple[Array, Array]:
    """Which elements are the best, and which others may be, as far as the errors leave it open."""
    if not value.is_float:
        score = value.v if name == "argmax" else ~value.v
        best = np.where(kept, score, score.min(axis=1)[:, None]).max(axis=1)
        return kept & (score == best[:, None]), np.zeros(kept.shape, bool)
    nan = kept & np.isnan(value.v)
    score = np.where(kept & ~nan, value.v if name == "argmax" else -value.v, -np.inf)
    best = score.max(axis=1)
    ties = np.where(nan.any(axis=1)[:, None], nan, kept & (score == best[:, None]))
    e_best = np.where(ties, e, 0.0).max(axis=1)
    rivals = kept & (score + e >= (best - e_best)[:, None]) & ~(ties & (e == 0) & (e_best == 0)[:, None])
    return ties, rivals & ~nan.any(axis=1)[:, None]
