"""Det: the determinant of matrices by elimination, whose steps are written out."""

from __future__ import annotations

from math import prod

import numpy as np

from te_lite.expr.expr import FLOATS

from ...ir.nodes import Expr
from .emit import binary, call, const, mul, reshape, sub
from .node import Converters, Node
from .select import pick

MOST_ROWS = 64


def det(node: Node) -> Expr:
    """Det of (..., M, M), floats; the row with the largest element leads every step."""
    x = node.input(0)
    square = len(x.shape) >= 2 and x.shape[-1] == x.shape[-2] <= MOST_ROWS and x.dtype in FLOATS
    node.require(square, f"square matrices of floats with at most {MOST_ROWS} rows are needed", shape=x.shape)
    rest = reshape(x, (prod(x.shape[:-2]), *x.shape[-2:]))
    total: Expr = const(np.ones(rest.shape[0]), x.dtype)
    while rest.shape[1] > 0:
        lead, sign, rest = _step(rest)
        total = mul(total, mul(lead, sign))
    return reshape(total, x.shape[:-2])


def _step(x: Expr) -> tuple[Expr, Expr, Expr]:
    """The leading element (B) of matrices (B, M, M), the sign of the swap of rows, and what is left (B, M-1, M-1)."""
    batch, rows = x.shape[:2]
    first = call("abs", reshape(pick(x, {2: range(1)}), (batch, rows)))
    best = call("argmax", first, axis=(1,), keepdims=True)
    at = reshape(best, (batch, 1, 1))
    lead = call("gather", x, call("broadcast_to", at, shape=(batch, 1, rows)), axis=1)
    top = pick(x, {1: range(1)})
    below = pick(x, {1: range(1, rows)}) if rows > 1 else const(np.zeros((batch, 0, rows)), x.dtype)
    here = binary("equal", const(np.arange(1, rows).reshape(1, rows - 1, 1), "int32"), at)
    below = call("where", here, top, below) if rows > 1 else below
    pivot = pick(lead, {2: range(1)})
    sign = call("where", binary("equal", reshape(best, (batch,)), 0), const(1, x.dtype), const(-1, x.dtype))
    return reshape(pivot, (batch,)), sign, _eliminated(below, lead, pivot)


def _eliminated(below: Expr, lead: Expr, pivot: Expr) -> Expr:
    """The rows below (B, M, N) without their part of the leading one, and without its column."""
    rows, columns = below.shape[1:]
    if rows == 0:
        return const(np.zeros((below.shape[0], 0, 0)), below.dtype)
    safe = call("where", binary("equal", pivot, 0.0), const(1, below.dtype), pivot)
    part = binary("divide", pick(below, {2: range(1)}), safe)
    return sub(pick(below, {2: range(1, columns)}), mul(part, pick(lead, {2: range(1, columns)})))


CONVERTERS: Converters = {"Det": {11: det}}
