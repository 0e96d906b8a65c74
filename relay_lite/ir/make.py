"""Making nodes by hand: variables, constants and calls by the name of the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require

from .errors import GraphError
from .nodes import Call, Expr, Tuple, Var, as_expr
from .op_registry import get
from .types import TensorType


def var(name: str, shape: Sequence[int] = (), dtype: str = "float32") -> Var:
    """An input or a parameter.  Raises GraphError for a shape or dtype that no tensor has."""
    extents = tuple(int(d) if isinstance(d, np.integer) else d for d in shape)
    return Var(name, TensorType(extents, dtype))


def call(name: str, *args: Expr, **attrs: Any) -> Call:
    """The operator `name` applied to `args`; attributes that are not given have their defaults."""
    return Call(get(name), args, attrs)


def as_tuple(value: Any) -> Expr:
    """A sequence of nodes as one tuple; a node stays as it is."""
    if isinstance(value, Expr):
        return value
    require(isinstance(value, Sequence), GraphError, "tuple", "a list of nodes is needed", got=value)
    return Tuple(tuple(as_expr(v) for v in value))
