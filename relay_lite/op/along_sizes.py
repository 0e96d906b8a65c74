"""Operators on tensors with open extents: which take them, and shapes and counts that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import Expr, cast, const

from ..ir.errors import GraphError
from ..ir.extents import extent
from ..ir.types import Type, fields_of

OPEN = frozenset((
    "abs", "add", "all", "any", "arange", "atan", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "cast",
    "ceil", "clip", "concatenate", "copy", "cos", "divide", "equal", "erf", "exp", "expand_dims", "fast_erf",
    "fast_tanh", "floor", "floor_divide", "floor_mod", "full", "greater", "greater_equal", "isnan", "less",
    "less_equal", "log", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "mean", "min",
    "minimum", "mod", "multiply", "negative", "nn.adaptive_avg_pool2d", "nn.avg_pool2d", "nn.batch_flatten",
    "nn.batch_matmul", "nn.batch_norm", "nn.bias_add", "nn.conv2d", "nn.dense", "nn.dropout", "nn.global_avg_pool2d",
    "nn.global_max_pool2d", "nn.layer_norm", "nn.leaky_relu", "nn.log_softmax", "nn.matmul", "nn.max_pool2d",
    "nn.relu", "nn.softmax", "not_equal", "ones_like", "power", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin",
    "split", "sqrt", "squeeze", "strided_slice", "subtract", "sum", "take", "tanh", "transpose", "trunc", "variance",
    "where", "zeros_like",
))  # fmt: skip
"""The operators that take tensors with open extents, each tested at several sizes (tests/relay_lite/open_networks)."""


def open_shapes(types: Sequence[Type]) -> list[tuple[int, ...]]:
    """The shapes of arguments that have open extents."""
    return [t.shape for kind in types for t in fields_of(kind) if t.is_open]


def extents(value: Any, what: str) -> tuple[int, ...]:
    """A shape that is given as an attribute, or an extent: integers, which may be codes, and open extents."""
    values = value if isinstance(value, list | tuple) else (value,)
    whole = all(isinstance(v, int | np.integer | Expr) and not isinstance(v, bool) for v in values)
    require(whole, GraphError, what, "integers are needed", got=value)
    return tuple([extent(v, what) for v in values])


def counted(count: Any, dtype: str) -> Expr:
    """A count of elements as a number to divide by."""
    return const(float(count), dtype) if isinstance(count, int) else cast(dtype, count)
