"""Scores of attention in the shape in which products in batches give them, up to the product that reads them.

    softmax(reshape(batch_matmul(q, k), [B, H, M, N]) * scale + mask[1, 1, M, N])    reshape to [B*H, M, N] behind it
    softmax(batch_matmul(q, k) * scale + mask[1, M, N])                              none

Frontends write so, since products in batches have one axis of batches and attention has two.  A reshape that keeps rows
and columns is moved behind what is computed element by element and behind the softmax, where every other operand has a
shape without it; in the end it meets the one that undoes it.  So all of it can be one kernel (`fuse_attention.py`), and
nothing of it is stored; where it is not, masks are applied in the kernel of the product.
"""

from __future__ import annotations

from math import prod

from ..ir.make import call
from ..ir.nodes import Call, Expr, Function
from ..ir.visit import is_op, rewrite
from .row_shapes import is_elementwise
from .sequential import Pass

PRODUCT, SOFTMAX, RESHAPE = "nn.batch_matmul", "nn.softmax", "reshape"


def ScoresInBatches(whole: bool = True) -> Pass:
    """Move reshapes of products in batches behind the softmax that reads them.

    Not where another operand has batches of its own, unless `whole`: to give it the shape of the scores may be a
    kernel, which is worth it where all of an attention then is one.
    """
    return Pass("ScoresInBatches", 0, (), lambda function: _run(function, whole))


def _run(function: Function, whole: bool) -> Function:
    scores: set[Expr] = set()

    def change(node: Expr) -> Expr:
        if is_op(node, RESHAPE) and is_op(node.args[0], RESHAPE) and node.args[0].args[0] in scores:
            inner = node.args[0].args[0]
            return inner if inner.shape == node.shape else call(RESHAPE, inner, newshape=node.shape)
        moved = _moved(node, scores, whole)
        if is_op(node, PRODUCT):
            scores.add(node)
        return node if moved is None else moved

    return rewrite(function, change)


def _moved(node: Expr, scores: set[Expr], whole: bool) -> Expr | None:
    """A node computed before the reshape of its scores, which then follows it; None for another node."""
    if not isinstance(node, Call) or not (is_elementwise(node) or _is_softmax(node)):
        return None
    plain = [a for a in node.args if a in scores]
    if plain and is_elementwise(node) and all(a.shape == node.shape for a in plain):
        scores.add(node)
        return None
    given = [a for a in node.args if is_op(a, RESHAPE) and a.args[0] in scores and a.shape == node.shape]
    batched = given[0].args[0].shape if given and is_op(given[0], RESHAPE) else ()
    if len(batched) != 3 or batched[-2:] != node.shape[-2:]:
        return None
    args = [_in_batches(a, node.shape, batched) for a in node.args]
    small = [a for a in node.args if a not in given and prod(a.shape[:-2]) == 1]
    if any(a is None for a in args) or (not whole and len(given) + len(small) < len(args)):
        return None
    attrs = {**node.attrs, "axis": -1} if _is_softmax(node) else node.attrs
    made = call(node.op.name, *[a for a in args if a is not None], **attrs)
    scores.add(made)
    return call(RESHAPE, made, newshape=node.shape)


def _is_softmax(node: Call) -> bool:
    return node.op.name == SOFTMAX and node.attrs["axis"] in (-1, len(node.shape) - 1)


def _in_batches(x: Expr, whole: tuple[int, ...], batched: tuple[int, ...]) -> Expr | None:
    """An operand that broadcasts to `whole`, so that it broadcasts to `batched`; None where there is no such shape."""
    if is_op(x, RESHAPE) and x.args[0].shape == batched and x.shape == whole:
        return x.args[0]
    leading = x.shape[:-2]
    if len(x.shape) <= 2:
        return x
    if prod(leading) == 1 or x.shape[: len(leading)] == whole[:-2]:
        return call(RESHAPE, x, newshape=(prod(leading), *x.shape[-2:]))
    return None
