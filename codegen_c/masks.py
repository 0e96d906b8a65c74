"""Conditions in vectors: masks of ones and zeros, where numbers of one size are compared and chosen; and ends.

A condition on where an element lies, such as inside of what is padded, holds for a whole vector if it does in its first
and its last lane.
"""

from __future__ import annotations

from collections.abc import Callable

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, Compare, Const, Expr, Logical, Not, Select, Var
from te_lite.expr.visit import children, conjuncts, free_vars
from te_lite.loops.register_tile import VECTOR_DTYPES

_OPERATORS = {"&&": "&", "||": "|"}


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
    straight = [isinstance(x, Compare) and x.op[0] in "<>" and all(_is_straight(k, lane) for k in (x.a, x.b))
                for x in conjuncts(e)]  # fmt: skip
    return all(straight)


def _is_straight(e: Expr, lane: Var) -> bool:
    match e:
        case Binary(op="+" | "-", a=a, b=b) | Binary(op="*", a=a, b=Const() as b):
            return _is_straight(a, lane) and _is_straight(b, lane)
    return e is lane or lane not in free_vars(e)


def mask_text(e: Expr, vector: Callable[[Expr], str]) -> str:
    """The mask of a condition, of the texts of the numbers that it compares."""
    if not isinstance(e, Compare | Logical | Not):
        return f"({vector(e)})"
    texts = [mask_text(k, vector) for k in children(e)]
    return f"~{texts[0]}" if isinstance(e, Not) else f"({f' {_OPERATORS.get(e.op, e.op)} '.join(texts)})"
