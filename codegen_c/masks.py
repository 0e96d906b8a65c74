"""Conditions in vectors: masks of ones and zeros, where numbers of one size are compared and chosen; and ends.

A condition on where an element lies, such as inside of what is padded, holds for a whole vector if it does in its first
and its last lane.
"""

from __future__ import annotations

from collections.abc import Callable

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, Call, Compare, Const, Expr, Logical, Not, Select, Var
from te_lite.expr.visit import children, free_vars
from te_lite.loops.register_tile import VECTOR_DTYPES
from te_lite.loops.stmt import For


def numbers(e: Expr) -> list[Expr]:
    """What a condition compares; what is no comparison is itself."""
    return [x for k in children(e) for x in numbers(k)] if isinstance(e, Compare | Logical | Not) else [e]


def operands(e: Select) -> list[Expr]:
    """What is compared and what is chosen."""
    return [*numbers(e.cond), e.a, e.b]


def is_masked(e: Select) -> bool:
    """Whether a mask can pick the lanes of a choice, both of whose sides may be computed."""
    return all(x.dtype in VECTOR_DTYPES and BYTES[x.dtype] == BYTES[e.dtype] for x in numbers(e.cond))


def holds_between(e: Expr, lane: Var) -> bool:
    """Whether a condition that holds in two lanes does so in all between: it says where a straight line is."""
    match e:
        case Logical(op="&&", a=a, b=b) | Compare(op="<" | "<=" | ">" | ">=", a=a, b=b):
            return holds_between(a, lane) and holds_between(b, lane)
        case Binary(op="+" | "-", a=a, b=b) | Binary(op="*", a=a, b=Const() as b):
            return holds_between(a, lane) and holds_between(b, lane)
    return e is lane or lane not in free_vars(e)


def is_short(guarded: Call, loop: For, vector_bytes: int) -> bool:
    """Whether a loop across the ends of a guard has less than a vector, which is hardly ever inside as a whole."""
    return loop.var in free_vars(guarded.args[0]) and loop.extent * BYTES[guarded.dtype] < vector_bytes


def mask_text(e: Expr, vector: Callable[[Expr], str]) -> str:
    """The mask of a condition, of the texts of the numbers that it compares."""
    if not isinstance(e, Compare | Logical | Not):
        return f"({vector(e)})"
    texts = [mask_text(k, vector) for k in children(e)]
    sign = e.op[0] if isinstance(e, Logical) else "" if isinstance(e, Not) else e.op
    return f"({f' {sign} '.join(texts)})" if sign else f"~{texts[0]}"
