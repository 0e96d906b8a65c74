"""`ByteProducts`: products of integers in int32 that read bytes themselves, their zero points taken off the sums.

    dense(cast(x) - z, w)   ->   dense(bytes of x, bytes of w) - z * (sums of the rows of w)

`x` are bytes and `w` is a constant of int32 whose numbers fit int8, as quantised models have it.  Processors multiply
bytes of a quarter of the memory, without a sign by such with one, several times as fast as words; a signed `x` is
moved by 128 for that, and its zero point, too.  Words wrap around alike on both sides, so no bit changes.
"""

from __future__ import annotations

import numpy as np

from ..ir.make import call
from ..ir.nodes import Array, Call, Constant, Expr
from ..ir.visit import constant_value, is_op, rewrite
from .sequential import Pass, acts_on

DENSE, CAST, WORD, BYTE, SIGNED = "nn.dense", "cast", "int32", "uint8", "int8"
MOVED = 128


@acts_on(CAST)
def ByteProducts() -> Pass:
    """The pass; level 0, for a CPU."""
    return Pass("ByteProducts", 0, (), lambda function: rewrite(function, _of_bytes))


def _of_bytes(node: Expr) -> Expr:
    if not (isinstance(node, Call) and is_op(node, DENSE) and node.dtype == WORD):
        return node
    found, weight = _factor(node.args[0]), constant_value(node.args[1])
    limits = np.iinfo(SIGNED)
    if found is None or weight is None or not weight.size or weight.min() < limits.min or weight.max() > limits.max:
        return node
    data, zero = found
    product = call(DENSE, data, Constant(_sealed(weight.astype(SIGNED))), units=node.attrs["units"], out_dtype=WORD)
    return product if zero is None else call("subtract", product, _times_rows(zero, weight))


def _times_rows(zero: Expr, weight: Array) -> Expr:
    """A zero point, one number or one a row of the product, times the sums of the weight's rows: what it adds."""
    sums = weight.sum(axis=1, dtype=np.int64)[None].astype(WORD)
    known = constant_value(zero)
    if known is None:
        return call("multiply", zero, Constant(_sealed(sums)))
    return Constant(_sealed((known.astype(np.int64) * sums).astype(WORD)))


def _factor(e: Expr) -> tuple[Expr, Expr | None] | None:
    """Unsigned bytes and what is to be taken off them, int32 and one number or one a row; None for other factors."""
    zero: Expr | None = None
    if is_op(e, "reshape"):
        found = _factor(e.args[0])
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
    if data.dtype == BYTE:
        return data, zero
    moved = Constant(_sealed(np.array(MOVED, WORD)))
    return (
        call(CAST, call("add", e, moved), dtype=BYTE),
        moved if zero is None else call("add", zero, moved),
    )


def _sealed(array: Array) -> Array:
    array.setflags(write=False)
    return array
