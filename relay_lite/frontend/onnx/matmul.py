"""Matrix products: every form of MatMul and Gemm becomes dense or batch_matmul with constants already transposed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from te_lite.errors import ExprError
from te_lite.topi.broadcast import broadcast_shape

from ...ir.nodes import Expr
from .emit import add, call, mul, reshape, transpose, value_of
from .node import Converters, Node
from .product import product


def gemm(node: Node) -> Expr:
    """Gemm: alpha * A' B' + beta * C, A' (M, K), B' (K, N); C broadcasts to (M, N) and may be absent."""
    a, b = _matrix(node, 0), node.input(1)
    node.require(len(b.shape) == 2, "B must be a matrix", shape=b.shape)
    data = transpose(a, (1, 0)) if node.integer("transA", 0) else a
    weight = b if node.integer("transB", 0) else transpose(b, (1, 0))
    law = "the matrices must agree on the extent they are multiplied over"
    node.require(data.shape[1] == weight.shape[1], law, a=a.shape, b=b.shape)
    alpha = node.number("alpha", 1.0)
    if alpha != 1:
        data, weight = (mul(data, alpha), weight) if value_of(weight) is None else (data, mul(weight, alpha))
    return _plus_c(node, call("nn.dense", data, weight))


def _matrix(node: Node, index: int) -> Expr:
    """An input as a matrix; more axes than two are flattened into the second."""
    x = node.input(index)
    node.require(len(x.shape) >= 2, f"input {index} must be a matrix", shape=x.shape)
    return x if len(x.shape) == 2 else call("nn.batch_flatten", x)


def _plus_c(node: Node, out: Expr) -> Expr:
    c, beta = node.optional(2), node.number("beta", 1.0)
    if c is None or beta == 0:
        return out
    fits = len(c.shape) <= 2 and all(d in (1, o) for d, o in zip(c.shape[::-1], out.shape[::-1], strict=False))
    node.require(fits, f"C must broadcast to {out.shape}", shape=c.shape)
    c = c if beta == 1 else mul(c, beta)
    if prod(c.shape) == out.shape[1] and c.shape[-1:] == out.shape[1:]:
        return call("nn.bias_add", out, reshape(c, out.shape[1:]), axis=-1)
    return add(out, c)


def matmul(node: Node) -> Expr:
    """MatMul, as `numpy.matmul`: a vector gets an axis for the time of the product, leading axes broadcast."""
    a, b = node.input(0), node.input(1)
    node.require(a.shape and b.shape, "operands must have at least one axis", a=a.shape, b=b.shape)
    left = reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    law = "the operands must agree on the extent they are multiplied over"
    node.require(left.shape[-1] == right.shape[-2], law, a=a.shape, b=b.shape)
    batch = _batch(node, left.shape[:-2], right.shape[:-2])
    out = product(left, right, weights=node.known(1) is not None)
    rows = () if len(a.shape) == 1 else left.shape[-2:-1]
    columns = () if len(b.shape) == 1 else right.shape[-1:]
    return reshape(out, (*batch, *rows, *columns))


def _batch(node: Node, a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    try:
        return broadcast_shape(tuple(a), tuple(b))
    except ExprError:
        node.require(False, "the leading axes must broadcast", a=tuple(a), b=tuple(b))
        raise


CONVERTERS: Converters = {"Gemm": {1: gemm}, "MatMul": {1: matmul}}
