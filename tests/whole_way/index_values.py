"""Index arithmetic, which is exact, and where it becomes data, which wraps around (docs/arithmetic.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .bounded import Value, promoted
from .operators import cast, choose

INDICES = ("int32", "int64")
MADE = ("data", "axes", "const")


def least(*values: Value) -> str:
    """What is made of several values is data if one of them is, and made of axes if one of them is."""
    return min([x.made for x in values], key=MADE.index)


def stored(x: Value) -> Value:
    """`x` as data: wrapped around to its dtype."""
    return replace(x, v=x.v.astype("int32") if x.dtype == "int32" else x.v, made="data")


def unbounded(x: Value) -> Value:
    """`x` for a comparison, which converts nothing: an int32 index is one of int64."""
    return replace(x, dtype="int64") if x.dtype == "int32" and x.v.dtype == np.int64 else x


def is_index(x: Value) -> bool:
    """Whether `x` may be an operand of index arithmetic of int32: promoted integers of axes are data."""
    return x.made == "const" or (x.made == "axes" and x.dtype == "int32")


def together(f: Callable[..., Value], *values: Value) -> Value:
    """An operation on values of the widest of their dtypes: exact on indices of int32, else on what is stored.

    Operands of other dtypes are cast, which converts the exact value of an index.
    """
    dtype = promoted(*[x.dtype for x in values])
    if dtype == "int32" and all(map(is_index, values)):
        out = f(*[Value(x.v.astype("int64"), x.e, "int64") for x in values])
        return Value(out.v, out.e, "int32" if out.dtype == "int64" else out.dtype, least(*values))
    met = [stored(x if x.dtype == dtype else converted(x, dtype)) for x in values]
    return replace(f(*met), made=least(*values))


def chosen(condition: Value, a: Value, b: Value) -> Value:
    """One of two values; between indices by data it is data."""
    if condition.made == "data":
        return choose(condition, stored(a), stored(b))
    out = together(lambda x, y: choose(condition, x, y), a, b)
    return replace(out, made=least(condition, out))


def converted(x: Value, dtype: str) -> Value:
    """A cast: an index in the other index dtype is one still where that has room for it, a constant is a constant."""
    out = cast(x, dtype)
    if x.made == "const" and dtype == "int32":
        return replace(out, v=out.v.astype("int64"), made="const")
    if dtype not in INDICES or x.made != "axes":
        return replace(out, made=x.made)
    if x.dtype not in INDICES or (out.v != x.v).any():
        return stored(out)
    return replace(out, v=x.v, made="axes")
