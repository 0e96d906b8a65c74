"""Reduction axes and the usual reducers: `sum`, `prod`, `min`, `max`."""

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
    Const,
    Expr,
    ExprLike,
    IterVar,
    Reduce,
    Var,
    as_expr,
    binary,
    cast,
    const,
    logical_and,
    logical_or,
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


def axes_of(axis: IterVar | Sequence[IterVar] | None, subject: str) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    law = f"reduces over reduction axes only; write k = te.reduce_axis((0, n), 'k') and te.{subject}(..., axis=k)"
    require(axes, ExprError, subject, law, got=axis)
    for v in axes:
        ok = isinstance(v, IterVar) and v.kind == "reduce"
        require(ok, ExprError, subject, law, axis=v.name if isinstance(v, Var) else v)
    return axes


def combiner_of(
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


def term_of(e: Expr) -> Expr:
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
        return combiner_of(name, [dtype], combine, identity, multiple=False)

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
            term = source if op in ("min", "max") else term_of(source)
            axes = axes_of(axis if value is None else value, name)
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
