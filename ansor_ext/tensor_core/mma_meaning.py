"""What the instructions of `mma.py` compute: as a loop nest, on tiles, and on the registers of a warp.

Floats: products are exact, and their sum with C is rounded once, to the nearest.  A tensor core adds in an order and
with guard bits that are not documented, so its sums may differ in the last places; its products are exact, too.
Integers: exact, sums wrap in 32 bits.

Of TF32 operands a tensor core reads the upper 19 bits, always cutting off what is below.  All products would be too
small, by 2^-10.5 on average, of which a network of fifty layers makes 4 %.  So operands are first multiplied by
`CENTRE`, which adds what is lost on average: they are off by 0.65 * 2^-10 of the value at most, as often up as down.
What has 11 bits stays as it is.  Of groups of warps the tensor cores read B themselves, so what is lost of both is
added to A.  (Rounding to the nearest takes two instructions instead of a multiplication, since
adding half a unit to the bits of a NaN may give a number.)

The copy engine rounds to the nearest on its way, ties to even, what is finite: `nearest` operands are off by 2^-11 of
the value at most, below 2^-126 by 2^-137, and overflow from 2^128 - 2^116 on.

Elements of two parts: x = big + small, the nearest TF32 value and what TF32 reads of the rest, which is off by 2^-23 of
x at most.  Three instructions add up, in this order, and to zero

    small * big + big * small + big * big

(small * small, 2^-22 of the product at most, is left out), and their sum is added to D in float32.  A tensor core cuts
off what does not fit into its sums, always towards zero, so that long sums in it drift; these have 8 terms, and of
groups of warps the 32 of an iteration, which this function adds to D in four parts.  `big` is
at most `BIG`, whatever x is: what is beyond, an infinity too, is in `small`, has the sign of x, and meets the finite
part of the other factor, with which nothing of another sign overflows.  So infinities, NaN and overflows come out as
they do in float32.  The price: of x beyond `BIG` the upper 19 bits are read.  Below 2^-102, where the small
part may be less than the least normal float, x is off by 2^-126 at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ansor.core.target.target import BIG
from te_lite.expr.expr import Const, Expr, Var, binary, cast
from te_lite.loops.stmt import Buffer, For, ForKind, LoweredFunc, Stmt, Store, seq

from .fragment import Fragment
from .mma import F32, Element, Mma

CENTRE = 1 + 369 * 2.0**-20
"""A number of 11 bits loses 2^-10 / 2 of its power of two on average, which is 0.36 * 2^-10 of the number."""


def product(op: Mma, a: Expr, b: Expr) -> Expr:
    """A term of the sum, from an element of A and one of B, in the dtype of the sums."""
    return binary("*", cast(op.sum.dtype, a), cast(op.sum.dtype, b))


def meaning(op: Mma) -> LoweredFunc:
    """The instruction as a program of A[m, k], B[k, n], C[m, n] and D[m, n]; of parts, of A[2, m, k] and B[2, k, n],
    or one of B.

    A and B hold what the instruction reads of its operands (`parts`); a float16 sum is rounded after every term here.
    """
    count, own = op.element.parts, 1 if op.element.apart else op.element.parts
    shapes = ("A", count, (op.m, op.k)), ("B", own, (op.k, op.n))
    a, b = [
        Buffer(x, dtype, s if parts == 1 else (parts, *s))
        for dtype, (x, parts, s) in zip(op.dtypes, shapes, strict=True)
    ]
    c, d = Buffer("C", op.sum.dtype, (op.m, op.n)), Buffer("D", op.sum.dtype, (op.m, op.n))
    i, j, k = Var("m"), Var("n"), Var("k")
    at = i * op.n + j

    def terms(x: int, y: int) -> Stmt:
        factors = a[x * op.m * op.k + i * op.k + k], b[y * op.k * op.n + k * op.n + j]
        return For(k, op.k, ForKind.SERIAL, Store(d, at, binary("+", d[at], product(op, *factors))))

    sums = [terms(x, y) for x, y in pairs(op)]
    if count == 1:
        point = seq(Store(d, at, c[at]), *sums)
    else:
        point = seq(Store(d, at, Const(0.0, d.dtype)), *sums, Store(d, at, binary("+", c[at], d[at])))
    nest = For(i, op.m, ForKind.SERIAL, For(j, op.n, ForKind.SERIAL, point))
    return LoweredFunc(op.name, (a, b, c, d), nest)


def pairs(op: Mma) -> tuple[tuple[int, int], ...]:
    """The parts of A and B that are multiplied, smallest products first."""
    if op.element.parts == 1:
        return ((0, 0),)
    return ((1, 0), (0, 0)) if op.element.apart else ((1, 0), (0, 1), (0, 0))


def centres(op: Mma) -> tuple[float, float]:
    """What operands A and B of TF32 are multiplied by before they are read."""
    return (CENTRE, CENTRE) if op.warps == 1 else (CENTRE * CENTRE, 1.0)


def operands(op: Mma, a: Any, b: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What a tensor core reads of A and B."""
    x, y = [parts(op.element, values, centre) for values, centre in zip((a, b), centres(op), strict=True)]
    return x, (read(op.element, b),) if op.element.apart else y


def parts(element: Element, values: Any, centre: float = CENTRE) -> tuple[Any, ...]:
    """What a tensor core reads of operands, an array of the element's dtype: one number each, or a big and a small."""
    if element.dtype != F32.dtype:
        return (values,)
    if element.nearest:
        return (read(element, _nearest_even(element, values)),)
    if element.parts == 1:
        return (read(element, values * np.float32(centre)),)
    big = _nearest(element, np.fmin(np.fmax(values, -np.float32(BIG)), np.float32(BIG)))
    return big, read(element, values - big)


def _nearest(element: Element, values: Any) -> Any:
    """The nearest numbers that are read as they are, ties away from zero."""
    half = np.uint32(1 << F32.fraction - element.fraction - 1)
    return read(element, (values.view(np.uint32) + half).view(np.float32))


def _nearest_even(element: Element, values: Any) -> Any:
    """The nearest numbers that are read as they are, ties to an even one; infinities and NaN stay what they are."""
    bits, hidden = np.asarray(values).view(np.uint32), F32.fraction - element.fraction
    even = np.uint32((1 << hidden - 1) - 1) + (bits >> hidden & 1)
    found = np.where(np.isfinite(values), bits + even, bits).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), found)


def read(element: Element, values: Any) -> Any:
    """What a tensor core reads of the numbers that it gets: of TF32 the upper bits."""
    hidden = F32.fraction - element.fraction
    if element.dtype != F32.dtype or not hidden:
        return values
    return (values.view(np.uint32) >> hidden << hidden).view(np.float32)


def multiply_add(op: Mma, a: Any, b: Any, c: Any) -> Any:
    """`c + a @ b` of tiles [..., m, k], [..., k, n] and [..., m, n], as the instruction computes it."""
    if op.sum.dtype == "int32":
        return (np.matmul(a.astype(np.int64), b.astype(np.int64)) + c).astype(np.int32)
    x, y = operands(op, a, b)
    if op.element.parts == 1:
        return added(x[0], y[0], c)
    total: Any = np.zeros_like(c)
    for i, j in pairs(op):
        total = added(x[i], y[j], total)
    return c + total


def added(x: Any, y: Any, c: Any) -> Any:
    """`c + x @ y` of floats, rounded once to the dtype of `c`."""
    return (np.matmul(x.astype(np.float64), y.astype(np.float64)) + c).astype(c.dtype)


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
