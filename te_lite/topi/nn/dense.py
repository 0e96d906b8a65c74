"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, cast
from ..tag import BROADCAST
from ..utils import get_const_tuple


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """[M, K] x [K, N] (either one transposed) gives [M, N]; stage `T_matmul_<NN, NT, TN or TT>`.

    A `bias` [N] is added in a stage `compute`.  Raises ExprError when the ranks or K differ.
    """
    name = f"T_matmul_{'NT'[transpose_a]}{'NT'[transpose_b]}"
    ok = tensor_a.ndim == 2 and tensor_b.ndim == 2
    require(ok, ExprError, name, "both operands must be matrices", a=tensor_a.shape, b=tensor_b.shape)
    depth, rows = tensor_a.shape if transpose_a else tensor_a.shape[::-1]
    columns, b_depth = tensor_b.shape if transpose_b else tensor_b.shape[::-1]
    require(depth == b_depth, ExprError, name, "the inner extents must agree", a=tensor_a.shape, b=tensor_b.shape)
    dtype = out_dtype or tensor_a.dtype
    k = reduction.reduce_axis((0, depth), "k")

    def element(i: Expr, j: Expr) -> Expr:
        a = tensor_a[k, i] if transpose_a else tensor_a[i, k]
        b = tensor_b[j, k] if transpose_b else tensor_b[k, j]
        return reduction.sum(cast(dtype, a) * cast(dtype, b), axis=k)

    tag = "dense" if name == "T_matmul_NT" else "matmul"
    free = [tensor_b] if tensor_a.dtype == tensor_b.dtype else []  # bytes by bytes are read along the terms
    product = compute((rows, columns), element, name, tag, {"layout_free_placeholders": free})
    if bias is None:
        return product
    require(bias.shape == (columns,), ExprError, name, "the bias must be a vector of N elements", bias=bias.shape)
    return compute((rows, columns), lambda i, j: product[i, j] + cast(dtype, bias[j]), tag=BROADCAST)


def dense(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """Data [M, K] with weight [N, K] gives [M, N]."""
    return matmul(data, weight, bias, out_dtype, False, True)


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Sequence[int] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """[B, M, K] x [B, N, K] (transposed as asked) gives [B, M, N]; a batch of 1 is shared."""
    name = f"T_batch_matmul_{'NT'[transpose_a]}{'NT'[transpose_b]}"
    ok = tensor_a.ndim == 3 and tensor_b.ndim == 3
    require(ok, ExprError, name, "both operands must have 3 dimensions", a=tensor_a.shape, b=tensor_b.shape)
    depth, rows = tensor_a.shape[1:] if transpose_a else tensor_a.shape[:0:-1]
    columns, b_depth = tensor_b.shape[1:] if transpose_b else tensor_b.shape[:0:-1]
    batches = {tensor_a.shape[0], tensor_b.shape[0]} - {1}
    fits = len({depth, b_depth}) == 1 and len(batches) <= 1
    require(fits, ExprError, name, "batches and inner extents must agree", a=tensor_a.shape, b=tensor_b.shape)
    shape = (*(batches or {1}), rows, columns)
    require(oshape is None or get_const_tuple(oshape) == shape, ExprError, name, "oshape is not the result's shape",
            oshape=oshape, shape=shape)  # fmt: skip
    dtype = out_dtype or tensor_a.dtype
    k = reduction.reduce_axis((0, depth), "k")

    def element(b: Expr, i: Expr, j: Expr) -> Expr:
        at_a, at_b = [b if t.shape[0] in batches or not batches else 0 for t in (tensor_a, tensor_b)]
        x = tensor_a[at_a, k, i] if transpose_a else tensor_a[at_a, i, k]
        y = tensor_b[at_b, j, k] if transpose_b else tensor_b[at_b, k, j]
        return reduction.sum(cast(dtype, x) * cast(dtype, y), axis=k)

    return compute(shape, element, name, "batch_matmul", {"layout_free_placeholders": [tensor_b]})
