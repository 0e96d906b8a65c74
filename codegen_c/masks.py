"""Conditions as masks: a vector of ones and zeros for all lanes, where numbers of one size are compared and chosen."""

from __future__ import annotations

from collections.abc import Callable

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Compare, Expr, Logical, Not, Select
from te_lite.expr.visit import children
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


def mask_text(e: Expr, vector: Callable[[Expr], str]) -> str:
    """The mask of a condition, of the texts of the numbers that it compares."""
    if not isinstance(e, Compare | Logical | Not):
        return f"({vector(e)})"
    texts = [mask_text(k, vector) for k in children(e)]
    return f"~{texts[0]}" if isinstance(e, Not) else f"({f' {_OPERATORS.get(e.op, e.op)} '.join(texts)})"
