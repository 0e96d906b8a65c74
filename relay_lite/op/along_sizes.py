"""Operators on tensors with open extents: which take them, and shapes and counts that have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import Expr, cast, const

from ..ir.errors import GraphError
from ..ir.extents import extent

OPEN = frozenset((
    "abs", "acos", "acosh", "add", "all", "annotation.stop_fusion", "any", "arange", "argmax", "argmin", "asin",
    "asinh", "atan", "atanh", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "cast", "ceil", "clip",
    "concatenate", "copy", "cos", "cosh", "cumsum", "divide", "equal", "erf", "exp", "expand_dims", "fast_erf",
    "fast_tanh", "floor", "floor_divide", "floor_mod", "full", "full_like", "gather", "gather_nd", "greater",
    "greater_equal", "image.resize2d", "isnan", "layout_transform", "left_shift", "less", "less_equal", "log",
    "log10", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "mean", "min",
    "minimum", "mod", "moments", "multiply", "negative", "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d",
    "nn.adaptive_avg_pool3d", "nn.adaptive_max_pool1d", "nn.adaptive_max_pool2d", "nn.adaptive_max_pool3d",
    "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.batch_flatten", "nn.batch_matmul", "nn.batch_norm",
    "nn.bias_add", "nn.causal", "nn.conv1d", "nn.conv1d_transpose", "nn.conv2d", "nn.conv2d_transpose", "nn.conv3d",
    "nn.conv3d_transpose", "nn.dense", "nn.depth_to_space", "nn.dropout", "nn.global_avg_pool2d",
    "nn.global_max_pool2d", "nn.group_norm", "nn.instance_norm", "nn.l2_normalize", "nn.layer_norm", "nn.leaky_relu",
    "nn.log_softmax", "nn.lrn", "nn.matmul", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.pad", "nn.prelu",
    "nn.relu", "nn.softmax", "nn.space_to_depth", "nn.upsampling", "not_equal", "one_hot", "ones_like", "power",
    "prod", "repeat", "reshape", "reverse", "right_shift", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
    "sort_with_positions", "split", "sqrt", "squeeze", "stack", "strided_slice", "subtract", "sum", "take", "tan",
    "tanh", "tile", "transpose", "trunc", "variance", "where", "zeros_like",
))  # fmt: skip
"""The operators that take tensors with open extents, each tested at several sizes (tests/relay_lite/open_networks)."""


def extents(value: Any, what: str) -> tuple[int, ...]:
    """A shape that is given as an attribute, or an extent: integers, which may be codes, and open extents."""
    values = value if isinstance(value, list | tuple) else (value,)
    whole = all(isinstance(v, int | np.integer | Expr) and not isinstance(v, bool) for v in values)
    require(whole, GraphError, what, "integers are needed", got=value)
    return tuple([extent(v, what) for v in values])


def counted(count: Any, dtype: str) -> Expr:
    """A count of elements as a number to divide by."""
    return const(float(count), dtype) if isinstance(count, int) else cast(dtype, count)
