"""The matrix product of packed tensors.

data     (N / 1, CI / 16, 1, 16)         int8
weights  (CO / 16, CI / 16, 16, 16)      int8
result   (N / 1, CO / 16, 1, 16)         int32
"""

from __future__ import annotations

from te_lite import Tensor, compute, reduce_axis
from te_lite import sum as te_sum
from te_lite.errors import ExprError, require
from te_lite.expr.expr import Expr

TAG = "dense_pack"


def dense_packed(data: Tensor, weights: Tensor, out_dtype: str = "int32") -> Tensor:
    """The product of data with the transposed weights.  Raises ExprError for shapes or dtypes that do not fit."""
    _check_arguments(data, weights, out_dtype)
    k_o, k_i = reduce_axis((0, data.shape[1]), "k_o"), reduce_axis((0, data.shape[3]), "k_i")

    def element(bo: Expr, c: Expr, bi: Expr, cc: Expr) -> Expr:
        x = data[bo, k_o, bi, k_i].astype(out_dtype)
        made: Expr = te_sum(x * weights[c, k_o, cc, k_i].astype(out_dtype), axis=[k_o, k_i])
        return made

    shape = (data.shape[0], weights.shape[0], data.shape[2], weights.shape[2])
    made: Tensor = compute(shape, element, "dense", TAG)
    return made


def _check_arguments(data: Tensor, weights: Tensor, out_dtype: str) -> None:
    ok = data.ndim == 4 and weights.ndim == 4
    law = "data and weights have four dimensions"
    require(ok, ExprError, "dense_packed", law, data=data.shape, weights=weights.shape)
    ok = data.shape[1] == weights.shape[1] and data.shape[3] == weights.shape[3]
    law = "the input channels of data and weights must agree"
    require(ok, ExprError, "dense_packed", law, data=data.shape, weights=weights.shape)
    dtypes = (data.dtype, weights.dtype, out_dtype)
    require(dtypes == ("int8", "int8", "int32"), ExprError, "dense_packed", "int8 by int8 gives int32", dtypes=dtypes)
