"""Making nodes by hand: variables, constants and calls by the name of the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr import FLOATS

from .errors import GraphError
from .ir import Call, Constant, Expr, Tuple, Var
from .op.registry import get
from .types import TensorType


def var(name: str, shape: Sequence[int] = (), dtype: str = "float32") -> Var:
    """An input or a parameter.  Raises GraphError for a shape or dtype that no tensor has."""
    extents = tuple(int(d) if isinstance(d, np.integer) else d for d in shape)
    return Var(name, TensorType(extents, dtype))


def const(value: Any, dtype: str | None = None) -> Constant:
    """A constant from a number, a nested list or an array.

    Without `dtype`, Python's floats become float32 and its integers int32; an array keeps its own.  Raises GraphError
    for integers that are too large for that.
    """
    array = np.asarray(value)
    if dtype is None and not isinstance(value, np.ndarray | np.generic):
        dtype = {"float64": "float32", "int64": "int32"}.get(str(array.dtype))
        fits = dtype != "int32" or np.array_equal(array.astype("int32"), array)
        require(fits, GraphError, "constant", "an integer that is no int32 needs a dtype", got=value)
    return Constant(array if dtype is None else array.astype(dtype))


def call(name: str, *args: Expr, **attrs: Any) -> Call:
    """The operator `name` applied to `args`; attributes that are not given have their defaults."""
    return Call(get(name), args, attrs)


def as_expr(value: Any, like: Expr | None = None) -> Expr:
    """`value` as a node: a number becomes a constant of the dtype of `like`.

    Raises GraphError for what is no value, and for a number that an integer dtype cannot hold, such as 0.5.
    """
    if isinstance(value, Expr):
        return value
    ok = isinstance(value, bool | int | float | np.generic | np.ndarray)
    require(ok, GraphError, "graph", "a node, a number or an array is needed", got=type(value).__name__)
    if like is None or isinstance(value, np.ndarray):
        return const(value)
    made = const(value, like.dtype)
    exact = like.dtype in FLOATS or made.value == value
    require(exact, GraphError, "graph", f"a number of dtype {like.dtype} is needed", got=value)
    return made


def as_tuple(value: Any) -> Expr:
    """A sequence of nodes as one tuple; a node stays as it is."""
    return value if isinstance(value, Expr) else Tuple(tuple(as_expr(v) for v in value))
