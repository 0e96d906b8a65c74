"""`ByteProducts`: products of integers in int32 that read bytes themselves, their zero points taken off the sums.

    dense(cast(x) - z, w)   ->   dense(bytes of x, bytes of w) - z * (sums of the rows of w)

    batch_matmul(cast(x) - z, cast(y) - t)
        ->   batch_matmul(bytes of x, bytes of y) - t * (sums of the rows of x - z) - z * (sums of the columns of y)

`x` and `y` are bytes and `w` is a constant of int32 with rows of numbers of 8 bits, as quantised models have it.
Processors multiply bytes of a quarter of the memory, without a sign by such with one, several times as fast as words;
a signed `x`, a `y` without a sign and such rows of `w` are moved by 128 for that, and their zero points, too.  Words
wrap around alike on both sides, so no bit changes.
"""

from __future__ import annotations

import numpy as np

from ..ir.make import call
from ..ir.nodes import Array, Call, Constant, Expr
from ..ir.visit import constant_value, is_op, rewrite
from .sequential import Pass, acts_on

DENSE, BATCHED, CAST, WORD, BYTE, SIGNED = "nn.dense", "nn.batch_matmul", "cast", "int32", "uint8", "int8"
MOVED = 128
LEAST_TERMS = 32
"""Of a product of two tensors: fewer are not worth the sums of these."""


@acts_on(CAST)
def ByteProducts() -> Pass:
    """The pass; level 0, for a CPU."""
    return Pass("ByteProducts", 0, (), lambda function: rewrite(function, _of_bytes))


def _of_bytes(node: Expr) -> Expr:
    if is_op(node, DENSE) and node.dtype == WORD:
        return _by_weight(node) or node
    if is_op(node, BATCHED) and node.dtype == WORD and not node.attrs["transpose_a"]:
        return _of_tensors(node) or node
    return node


def _by_weight(node: Call) -> Expr | None:
    found, weight = _factor(node.args[0], BYTE), constant_value(node.args[1])
    if found is None or weight is None or not weight.size:
        return None
    (data, zero), limits = found, np.iinfo(SIGNED)
    least, most = [reduce(weight, axis=1, keepdims=True).astype(np.int64) for reduce in (np.min, np.max)]
    moved = np.where((least < limits.min) | (most > limits.max), least - limits.min, 0)
    if (most - moved).max() > limits.max:
        return None
    signed = _constant((weight - moved).astype(SIGNED))
    product = call(DENSE, data, signed, units=node.attrs["units"], out_dtype=WORD)
    if moved.any():
        product = call("add", product, call("multiply", _sums(data, -1), _constant(moved.T.astype(WORD))))
    return product if zero is None else call("subtract", product, _times_rows(zero, weight))


def _of_tensors(node: Call) -> Expr | None:
    found, others = _factor(node.args[0], BYTE), _factor(node.args[1], SIGNED)
    if found is None or others is None or node.args[0].shape[-1] < LEAST_TERMS:
        return None
    (data, zero), (other, its_zero) = found, others
    if its_zero is not None and its_zero.shape:
        return None
    turned = other if node.attrs["transpose_b"] else call("transpose", other, axes=(0, 2, 1))
    product = call(BATCHED, data, turned, out_dtype=WORD, transpose_a=False, transpose_b=True)
    if its_zero is not None:
        rows = _sums(data, -1)
        if zero is not None:
            terms = _constant(np.array(data.shape[-1], WORD))
            rows = call("subtract", rows, call("multiply", zero, terms))
        product = call("subtract", product, call("multiply", rows, its_zero))
    if zero is not None:
        columns = call("transpose", _sums(turned, -1), axes=(0, 2, 1))
        product = call("subtract", product, call("multiply", columns, zero))
    return product


def _sums(data: Expr, axis: int) -> Expr:
    return call("sum", call(CAST, data, dtype=WORD), axis=axis, keepdims=True)


def _times_rows(zero: Expr, weight: Array) -> Expr:
    """A zero point, one number or one a row of the product, times the sums of the weight's rows: what it adds."""
    sums = weight.sum(axis=1, dtype=np.int64)[None].astype(WORD)
    known = constant_value(zero)
    if known is None:
        return call("multiply", zero, _constant(sums))
    return _constant((known.astype(np.int64) * sums).astype(WORD))


def _factor(e: Expr, kind: str) -> tuple[Expr, Expr | None] | None:
    """Bytes of a `kind` and what is to be taken off them, int32 and one number or one a row; None for other factors."""
    zero: Expr | None = None
    if is_op(e, "reshape"):
        found = _factor(e.args[0], kind)
        fits = found is not None and (found[1] is None or np.prod(found[1].shape) == 1)
        if found is None or not fits:
            return None
        return call("reshape", found[0], newshape=e.shape), None if found[1] is None else call(
            "reshape", found[1], newshape=()
        )
    if is_op(e, "subtract"):
        e, zero = e.args
        if np.prod(zero.shape) != 1 and zero.shape != (*e.shape[:-1], 1):
            return None
    if not is_op(e, CAST) or e.dtype != WORD or e.args[0].dtype not in (BYTE, SIGNED):
        return None
    data = e.args[0]
    zero = None if zero is None else call("reshape", zero, newshape=()) if np.prod(zero.shape) == 1 else zero
    if data.dtype == kind:
        return data, zero
    moved = _constant(np.array(MOVED if kind == BYTE else -MOVED, WORD))
    return (call(CAST, call("add", e, moved), dtype=kind), moved if zero is None else call("add", zero, moved))


def _constant(array: Array) -> Constant:
    array.setflags(write=False)
    return Constant(array)
