"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite import topi
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, dtype_of, factors, operator, rank, same_dtype, tensors


def _product_type(types: Sequence[Type], attrs: Attrs, ndim: int, what: str, turned: tuple[bool, bool]) -> TensorType:
    a, b = tensors(types, 2, what)
    rank(a, ndim, what)
    rank(b, ndim, what)
    total = dtype_of(attrs["out_dtype"], a.dtype, what)
    factors(a, total, what)
    if not (total == "int32" and {a.dtype, b.dtype} == {"int8", "uint8"}):
        same_dtype([a, b], what)
    rows, depth = a.shape[-2:][::-1] if turned[0] else a.shape[-2:]
    b_depth, columns = b.shape[-2:][::-1] if turned[1] else b.shape[-2:]
    require(depth == b_depth, GraphError, what, "the inner extents must agree", a=a.shape, b=b.shape)
    batches = a.shape[:-2] + b.shape[:-2]
    shared = len({n for n in batches if n != 1}) <= 1
    require(shared, GraphError, what, "the batches must agree or be 1", a=a.shape, b=b.shape)
    batch = (next((n for n in batches if n != 1), 1),) if batches else ()
    return TensorType((*batch, rows, columns), total)


def _product(a: Array, b: Array, attrs: Attrs, turned: tuple[bool, bool]) -> Array:
    dtype = attrs["out_dtype"] or a.dtype
    left, right = (x.swapaxes(-1, -2) if t else x for x, t in zip((a, b), turned, strict=True))
    return np.asarray(left.astype(dtype) @ right.astype(dtype))


def _with_units(found: TensorType, attrs: Attrs, what: str) -> TensorType:
    law = f"units must be the rows of the weight, {found.shape[-1]}"
    require(attrs["units"] in (None, found.shape[-1]), GraphError, what, law, units=attrs["units"])
    return found


def _turned(attrs: Attrs) -> tuple[bool, bool]:
    return bool(attrs["transpose_a"]), bool(attrs["transpose_b"])


@operator(
    "nn.dense",
    OpPattern.OUT_ELEMWISE_FUSABLE,
    lambda types, attrs: _with_units(_product_type(types, attrs, 2, "nn.dense", (False, True)), attrs, "nn.dense"),
    lambda args, attrs: _product(args[0], args[1], attrs, (False, True)),
    lambda args, attrs, target: [topi.nn.dense(args[0], args[1], out_dtype=attrs["out_dtype"] or None)],
)
def dense(data: Expr, weight: Expr, units: int | None = None, out_dtype: str = "") -> Call:
    """[M, K] with weight [units, K] gives [M, units]."""
    return call("nn.dense", data, weight, units=units, out_dtype=out_dtype)


@operator(
    "nn.matmul",
    OpPattern.OUT_ELEMWISE_FUSABLE,
    lambda types, attrs: _with_units(_product_type(types, attrs, 2, "nn.matmul", _turned(attrs)), attrs, "nn.matmul"),
    lambda args, attrs: _product(args[0], args[1], attrs, _turned(attrs)),
    lambda args, attrs, target: [topi.nn.matmul(args[0], args[1], None, attrs["out_dtype"] or None, *_turned(attrs))],
)
def matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    """[M, K] x [K, N], either one transposed, gives [M, N]."""
    return call("nn.matmul", tensor_a, tensor_b, units=units, out_dtype=out_dtype, transpose_a=transpose_a,
                transpose_b=transpose_b)  # fmt: skip


@operator(
    "nn.batch_matmul",
    OpPattern.OUT_ELEMWISE_FUSABLE,
    lambda types, attrs: _product_type(types, attrs, 3, "nn.batch_matmul", _turned(attrs)),
    lambda args, attrs: _product(args[0], args[1], attrs, _turned(attrs)),
    lambda args, attrs, target: [
        topi.nn.batch_matmul(args[0], args[1], None, attrs["out_dtype"] or None, *_turned(attrs))
    ],
)
def batch_matmul(
    tensor_a: Expr, tensor_b: Expr, out_dtype: str = "", transpose_a: bool = False, transpose_b: bool = True
) -> Call:
    """[B, M, K] x [B, N, K] (transposed as asked) gives [B, M, N]; a batch of 1 is shared."""
    return call("nn.batch_matmul", tensor_a, tensor_b, out_dtype=out_dtype, transpose_a=transpose_a,
                transpose_b=transpose_b)  # fmt: skip
