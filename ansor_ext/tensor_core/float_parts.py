"""Products of floats by stored parts of others, which are a stage of their own.

    C[m, n] = sum over k of a[m, k] * b[n, k]        becomes, of b that the program computes,

    b.parts[p, n, k] = small part of b[n, k], or the big one
    C[m, n] = sum over p of 2, k of a[m, k] * b.parts[p, n, k]

A big part is the nearest TF32 number, a small one what is left of the float, of which tensor cores read the upper bits.
What lies beyond `BIG`, infinities too, is in the small part, as in `mma_meaning.py`.  They are made once, not for every
block that reads them, and by threads that do not multiply; a is cut in registers (`tf32_splitting.py`).

A float is rounded in float64, by adding and taking away 2^42 times itself.  `maximum` stands between a product and a
sum, which a compiler might otherwise compute without rounding the product.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ansor.core.target.target import BIG
from te_lite.computation.derive import REMEMBERED
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import (
    INDEX,
    Expr,
    IterVar,
    Load,
    Reduce,
    binary,
    cast,
    compare,
    const,
    if_then_else,
    maximum,
    minimum,
)
from te_lite.expr.visit import transform, walk
from te_lite.schedule.state import State

PARTS = 2
UP, LOWEST = 2.0**42 + 1, -(2.0**1000)
"""A float times `UP` has, as a float64, those bits as its last ones that TF32 keeps; less than all such products."""


def has_parts(state: State, k: int) -> bool:
    """Whether stage `k` has parts of floats."""
    key = state.stages[k].op.key
    return isinstance(key, tuple) and key[0] == "PRT"


def by_parts(state: State, k: int) -> bool:
    """Whether stage `k` multiplies by parts of floats."""
    return any(has_parts(state, p) for p in state.access.read_from[k])


@lru_cache(maxsize=REMEMBERED)
def parts_ops(op: ComputeOp, product: ComputeOp) -> tuple[ComputeOp, ComputeOp] | None:
    """The parts of what `op` computes, and `product` of floats by these; None where it is no sum of such products."""
    (body,) = product.body
    read = [e for e in walk(body) if isinstance(e, Load) and e.tensor == op.output()]
    if not isinstance(body, Reduce) or body.combiner.name != "sum" or body.dtype != "float32" or len(read) != 1:
        return None
    part = IterVar("part", INDEX, PARTS, "spatial")
    big, small = parts_of(op.body[0])
    parts = replace(
        op,
        name=f"{op.name}.parts",
        axis=(part, *op.axis),
        body=(if_then_else(compare("==", part, 0), small, big),),
        key=("PRT", op.key),
    )
    term = IterVar("part", INDEX, PARTS, "reduce")
    new = Load(parts.output(), (term, *read[0].indices))
    sources = tuple([transform(e, lambda x: new if x is read[0] else None) for e in body.sources])
    axes = (term, *body.axes)
    return parts, replace(product, body=(replace(body, sources=sources, axes=axes),), reduce_axis=axes)


def parts_of(x: Expr) -> tuple[Expr, Expr]:
    """The big and the small part of a float."""
    top = const(BIG, "float32")
    wide = cast("float64", minimum(maximum(x, -top), top))
    up = binary("*", wide, const(UP, "float64"))
    big = cast("float32", binary("+", maximum(up, const(LOWEST, "float64")), binary("-", wide, up)))
    return big, binary("-", x, big)
