"""What the instructions of `mma.py` compute: as a loop nest, on tiles, and on the registers of a warp.

Floats: products are exact, and their sum with C is rounded once, to the nearest.  A tensor core adds in an order and
with guard bits that are not documented, so its sums may differ in the last places; its products are exact, too.
TF32 operands are the upper 19 bits of a float: what is below is cut off, which is off by 2^-10 of the value at most.
A program that wants the nearest value (2^-11) rounds before it.  Integers: exact, sums wrap in 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .expr import Expr, Var, binary, cast
from .fragment import Fragment
from .mma import F32, Element, Mma
from .stmt import Buffer, For, ForKind, LoweredFunc, Store, seq


def product(op: Mma, a: Expr, b: Expr) -> Expr:
    """A term of the sum, from an element of A and one of B, in the dtype of the sums."""
    return binary("*", cast(op.sum.dtype, a), cast(op.sum.dtype, b))


def meaning(op: Mma) -> LoweredFunc:
    """The instruction as a program of A[m, k], B[k, n], C[m, n] and D[m, n].

    A and B hold what the instruction reads of its operands (`read`); a float16 sum is rounded after every term here.
    """
    a, b = Buffer("A", op.element.dtype, (op.m, op.k)), Buffer("B", op.element.dtype, (op.k, op.n))
    c, d = Buffer("C", op.sum.dtype, (op.m, op.n)), Buffer("D", op.sum.dtype, (op.m, op.n))
    i, j, k = Var("m"), Var("n"), Var("k")
    at = i * op.n + j
    term = Store(d, at, binary("+", d[at], product(op, a[i * op.k + k], b[k * op.n + j])))
    point = seq(Store(d, at, c[at]), For(k, op.k, ForKind.SERIAL, term))
    nest = For(i, op.m, ForKind.SERIAL, For(j, op.n, ForKind.SERIAL, point))
    return LoweredFunc(op.name, (a, b, c, d), nest)


def read(element: Element, values: Any) -> Any:
    """What the instruction reads of operands, an array of the element's dtype: of TF32 the upper bits."""
    hidden = F32.fraction - element.fraction
    if element.dtype != F32.dtype or not hidden:
        return values
    return (values.view(np.uint32) >> hidden << hidden).view(np.float32)


def multiply_add(op: Mma, a: Any, b: Any, c: Any) -> Any:
    """`c + a @ b` of tiles [..., m, k], [..., k, n] and [..., m, n], as the instruction computes it."""
    if op.sum.dtype == "int32":
        return (np.matmul(a.astype(np.int64), b.astype(np.int64)) + c).astype(np.int32)
    x, y = [read(op.element, t).astype(np.float64) for t in (a, b)]
    return (np.matmul(x, y) + c).astype(op.sum.dtype)


def execute(op: Mma, a: Any, b: Any, c: Any) -> Any:
    """The same on registers: arrays [..., lanes, values] of the elements of each lane, in the order of its values."""
    tiles = [gathered(op.fragment(operand), x) for operand, x in zip("abd", (a, b, c), strict=True)]
    return scattered(op.d, multiply_add(op, *tiles))


def gathered(fragment: Fragment, held: Any) -> Any:
    """The tile [..., rows, columns] that lanes hold, from [..., lanes, values]."""
    lane, value = fragment.holder(*np.indices((fragment.rows, fragment.columns)))
    return held[..., lane, value]


def scattered(fragment: Fragment, tile: Any) -> Any:
    """What each lane holds of a tile: [..., lanes, values], from [..., rows, columns]."""
    row, column = fragment.place(*np.indices((fragment.lanes, fragment.values)))
    return tile[..., row, column]
