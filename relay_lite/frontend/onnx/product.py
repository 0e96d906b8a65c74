"""The product of two tensors of matrices, as `numpy.matmul` defines it."""

from __future__ import annotations

from math import prod

from te_lite.topi.broadcast import broadcast_shape

from ...ir.nodes import Expr
from .emit import broadcast_to, call, reshape, transpose


def product(left: Expr, right: Expr, weights: bool = False, out_dtype: str = "") -> Expr:
    """(..., M, K) times (..., K, N); the leading axes broadcast.

    One matrix on the right serves all rows on the left.  `weights`: it is known, so that its transpose costs nothing.
    """
    batch = broadcast_shape(left.shape[:-2], right.shape[:-2])
    out = _flat_product(left, right, batch, weights, out_dtype)
    return reshape(out, (*batch, left.shape[-2], right.shape[-1]))


def product_of_rows(left: Expr, right: Expr) -> Expr:
    """(..., M, K) times the transpose of (..., N, K), whose leading axes are the same."""
    flat = [_flat(x, left.shape[:-2]) for x in (left, right)]
    return reshape(call("nn.batch_matmul", *flat, transpose_b=True), (*left.shape[:-1], right.shape[-2]))


def _flat_product(left: Expr, right: Expr, batch: tuple[int, ...], weights: bool, out_dtype: str) -> Expr:
    """The product of shape (batch, M, N) up to a reshape."""
    k, n = right.shape[-2:]
    if prod(right.shape[:-2]) == 1:
        rows = reshape(left, (prod(left.shape[:-1]), k))
        matrix = reshape(right, (k, n))
        if weights:
            return call("nn.dense", rows, transpose(matrix, (1, 0)), out_dtype=out_dtype)
        return call("nn.matmul", rows, matrix, out_dtype=out_dtype)
    flat = [_flat(x, batch) for x in (left, right)]
    return call("nn.batch_matmul", *flat, transpose_a=False, transpose_b=False, out_dtype=out_dtype)


def _flat(x: Expr, batch: tuple[int, ...]) -> Expr:
    """The leading axes as one; it stays 1 where one matrix serves the whole batch."""
    if prod(x.shape[:-2]) != 1:
        x = broadcast_to(x, (*batch, *x.shape[-2:]))
    return reshape(x, (prod(x.shape[:-2]), *x.shape[-2:]))
