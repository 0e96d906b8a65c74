"""Reduction axes and reducers: `sum`, `prod`, `min`, `max`, `argmax`, `argmin` and reducers of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..errors import ExprError, require, require_name
from .constant_folding import stored
from .dtype import INTEGER_BITS, computed, largest, python_number
from .expr import (
    DTYPES,
    FLOATS,
    INDEX,
    Binary,
    Cast,
    Combiner,
    Compare,
    Const,
    Expr,
    ExprLike,
    IterVar,
    Logical,
    Not,
    Reduce,
    Select,
    Var,
    as_expr,
    binary,
    cast,
    compare,
    const,
    logical_and,
    logical_not,
    logical_or,
    select,
)


def reduce_axis(dom: tuple[ExprLike, ExprLike], name: str = "rv") -> IterVar:
    """Declare a reduction axis over `range(*dom)`; `dom` must start at 0."""
    require_name("reduce_axis", name)
    pair = isinstance(dom, tuple | list) and len(dom) == 2
    require(pair, ExprError, name, "a pair is needed, as in te.reduce_axis((0, n), 'k')", dom=dom)
    lo, extent = (python_number(x.value if isinstance(x, Const) else x) for x in dom)
    law = "a reduction axis starts at 0; write te.reduce_axis((0, stop - start), 'k') and read at start + k"
    require(isinstance(lo, int) and lo == 0, ExprError, name, law, dom=dom)
    whole = extent.dtype in INTEGER_BITS if isinstance(extent, Expr) else isinstance(extent, int) and extent > 0
    require(whole, ExprError, name, "the extent must be a positive integer, or an expression of one", dom=dom)
    return IterVar(name, INDEX, extent if isinstance(extent, Expr) else int(extent), "reduce")


def min_value(dtype: str) -> Const:
    """The lowest finite value of `dtype`."""
    if dtype == "bool":
        return const(False, dtype)
    if dtype in FLOATS:
        return const(-largest(dtype), dtype)
    bits = INTEGER_BITS[dtype]
    return const(0 if dtype.startswith("u") else -(1 << (bits - 1)), dtype)


def max_value(dtype: str) -> Const:
    """The largest finite value of `dtype`."""
    if dtype == "bool":
        return const(True, dtype)
    if dtype in FLOATS:
        return const(largest(dtype), dtype)
    bits = INTEGER_BITS[dtype]
    return const((1 << (bits if dtype.startswith("u") else bits - 1)) - 1, dtype)


def least(dtype: str) -> Const:
    """What is below or equal to every value of `dtype`: -inf where there is one; the identity of `max`."""
    infinite = dtype in FLOATS and stored(-math.inf, dtype) == -math.inf
    return const(-math.inf, dtype) if infinite else min_value(dtype)


def greatest(dtype: str) -> Const:
    """What is above or equal to every value of `dtype`: inf where there is one; the identity of `min`."""
    infinite = dtype in FLOATS and stored(math.inf, dtype) == math.inf
    return const(math.inf, dtype) if infinite else max_value(dtype)


def _axes(axis: IterVar | Sequence[IterVar] | None, subject: str) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    law = f"reduces over reduction axes only; write k = te.reduce_axis((0, n), 'k') and te.{subject}(..., axis=k)"
    require(axes, ExprError, subject, law, got=axis)
    for v in axes:
        ok = isinstance(v, IterVar) and v.kind == "reduce"
        require(ok, ExprError, subject, law, axis=v.name if isinstance(v, Var) else v)
    return axes


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
        combiner = _combiner(name, dtypes, fcombine, fidentity, multiple)
        if dtypes != list(map(computed, dtypes)) and not chooses(combiner):
            combiner = _combiner(name, list(map(computed, dtypes)), fcombine, fidentity, multiple)
            sources = tuple(map(_term, sources))
        nodes = tuple([Reduce(combiner, sources, _axes(axis, name), where, k) for k in range(len(sources))])
        rounded = tuple(map(cast, dtypes, nodes))
        return rounded if multiple else rounded[0]

    return reducer


def _combiner(
    name: str,
    dtypes: Sequence[str],
    fcombine: Callable[[Any, Any], Any],
    fidentity: Callable[..., Any],
    multiple: bool,
) -> Combiner:
    lhs = tuple([Var(f"x{k}" if multiple else "x", d) for k, d in enumerate(dtypes)])
    rhs = tuple([Var(f"y{k}" if multiple else "y", d) for k, d in enumerate(dtypes)])
    result = fcombine(lhs, rhs) if multiple else (fcombine(lhs[0], rhs[0]),)
    identity = fidentity(*dtypes) if multiple else (fidentity(dtypes[0]),)
    return Combiner(name, lhs, rhs, tuple(map(as_expr, result)), tuple(map(as_expr, identity)))


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


def _term(e: Expr) -> Expr:
    """What a reduction that computes folds: of a stored dtype the value in the dtype that is computed with, of a
    product before it is rounded, as products of matrices have it."""
    match e:
        case Cast(a=Binary(op="*", a=a, b=b)) if all(_of_dtype(x, e.dtype) for x in (a, b)):
            return e.a
    return cast(computed(e.dtype), e)


def _of_dtype(factor: Expr, dtype: str) -> bool:
    """Whether a factor was a number of a stored dtype before the operation converted it."""
    was = factor.a.dtype == dtype if isinstance(factor, Cast) else isinstance(factor, Const)
    return was and factor.dtype == computed(dtype) != dtype


_JUNCTIONS = {"&&": logical_and, "||": logical_or}


def _builtin(name: str, op: str, identity: Callable[[str], Const]) -> Callable[..., Expr]:
    def combine(x: ExprLike, y: ExprLike) -> Expr:
        return _JUNCTIONS[op](x, y) if op in _JUNCTIONS else binary(op, x, y)

    @lru_cache(maxsize=len(DTYPES))
    def combiner(dtype: str) -> Combiner:
        return _combiner(name, [dtype], combine, identity, multiple=False)

    def reducer(
        expr: ExprLike,
        value: ExprLike | list[IterVar] | tuple[IterVar, ...] | None = None,
        where: Expr | None = None,
        *,
        axis: IterVar | Sequence[IterVar] | None = None,
    ) -> Expr:
        source = as_expr(expr)
        require(value is None or axis is None, ExprError, name, "two values have no axis", value=value, axis=axis)
        if value is None or isinstance(value, IterVar | list | tuple):
            term = source if op in ("min", "max") else _term(source)
            axes = _axes(axis if value is None else value, name)
            return cast(source.dtype, Reduce(combiner(term.dtype), (term,), axes, where))
        return combine(source, value)  # of two values: te.max(x, 0.0)

    reducer.__name__ = name
    reducer.__doc__ = f"""Reduce `expr` with `{op}` over `axis` (where the condition holds), or combine two values.

    A reduction of a stored dtype is computed in the dtype of `STORED` and rounded once."""
    return reducer


sum = _builtin("sum", "+", lambda dtype: const(0, dtype))
prod = _builtin("prod", "*", lambda dtype: const(1, dtype))
min = _builtin("min", "min", greatest)
max = _builtin("max", "max", least)
all_reduce = _builtin("all", "&&", lambda dtype: const(True, "bool"))
any_reduce = _builtin("any", "||", lambda dtype: const(False, "bool"))


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
