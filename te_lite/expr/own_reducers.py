"""Reducers of one's own; `argmax` and `argmin`, which are such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ExprError, require
from .dtype import computed
from .expr import (
    FLOATS,
    Binary,
    Cast,
    Combiner,
    Compare,
    Const,
    Expr,
    IterVar,
    Logical,
    Not,
    Reduce,
    Select,
    Var,
    as_expr,
    cast,
    compare,
    logical_and,
    logical_not,
    logical_or,
    select,
)
from .reduction import axes_of, combiner_of, greatest, least, term_of


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Make a reducer of one's own.

    `fcombine(x, y)` and `fidentity(dtype, ...)` work on one value, or on tuples for several (argmax: index and
    value).  The reducer is called as `f(expr_or_tuple, axis=..., where=None)`.
    """
    law = "two functions are needed, lambda x, y: x * y and, for the identity, lambda dtype: te.const(1, dtype)"
    require(callable(fcombine) and callable(fidentity), ExprError, "comm_reducer", law, got=(fcombine, fidentity))

    def reducer(expr: Any, axis: IterVar | Sequence[IterVar] | None = None, where: Expr | None = None) -> Any:
        sources = tuple([as_expr(e) for e in (expr if isinstance(expr, tuple | list) else (expr,))])
        multiple = isinstance(expr, tuple | list)
        dtypes = [e.dtype for e in sources]
        combiner = combiner_of(name, dtypes, fcombine, fidentity, multiple)
        if dtypes != list(map(computed, dtypes)) and not chooses(combiner):
            combiner = combiner_of(name, list(map(computed, dtypes)), fcombine, fidentity, multiple)
            sources = tuple(map(term_of, sources))
        nodes = tuple([Reduce(combiner, sources, axes_of(axis, name), where, k) for k in range(len(sources))])
        rounded = tuple(map(cast, dtypes, nodes))
        return rounded if multiple else rounded[0]

    return reducer


def chooses(combiner: Combiner) -> bool:
    """Whether a reducer takes one of its operands, and computes nothing that could be rounded."""
    return all(_choice(e) for e in combiner.result)


def _choice(e: Expr) -> bool:
    match e:
        case Binary(op="min" | "max", a=a, b=b) | Compare(a=a, b=b) | Logical(a=a, b=b):
            return _choice(a) and _choice(b)
        case Select(cond=cond, a=a, b=b):
            return _choice(cond) and _choice(a) and _choice(b)
        case Cast(a=a) | Not(a=a):
            return _choice(a)
    return isinstance(e, Var | Const)


def _first_of(better: str) -> Callable[[Any, Any], Any]:
    """The position and value of the better one; the smaller position of equals, and a NaN is better than any number."""
    no_better = {">": "<=", "<": ">="}[better]

    def combine(x: Any, y: Any) -> Any:
        (i, a), (j, b) = x, y
        if a.dtype in FLOATS:
            number, both = compare("==", b, b), logical_and(compare("!=", a, a), compare("!=", b, b))
            wins = logical_and(number, logical_not(compare(no_better, a, b)))
            keep = logical_or(wins, logical_and(logical_or(a.equal(b), both), i < j))
        else:
            keep = logical_or(compare(better, a, b), logical_and(a.equal(b), i < j))
        return select(keep, i, j), select(keep, a, b)

    return combine


argmax = comm_reducer(_first_of(">"), lambda i, v: (greatest(i), least(v)), "argmax")
argmin = comm_reducer(_first_of("<"), lambda i, v: (greatest(i), greatest(v)), "argmin")
