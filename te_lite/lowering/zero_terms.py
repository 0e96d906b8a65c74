"""Products with the zeros of a constant matrix are no terms of a sum: the transforms of Winograd's convolution.

`sum(x * B[i, j])` with `B` computed in place is lowered as the sum of `-0.0 if B[i, j] == 0 else x * B[i, j]`, so that
the terms go where loops over `i` and `j` are written out.  As the operation is written, `inf * 0` would be a NaN there:
only operations that ask for it, by the attribute with which they ask the search to unroll these loops, are changed.
"""

from __future__ import annotations

from dataclasses import replace

from ..expr.expr import FLOATS, Binary, BufferLoad, Const, Expr, Load, Reduce, compare, logical_or, select
from ..expr.visit import walk


def without_zero_terms(body: Expr) -> Expr:
    """The body of an operation that asks for it, in whose sum no product with a constant zero is a term."""
    if not isinstance(body, Reduce) or body.combiner.name != "sum" or body.dtype not in FLOATS:
        return body
    (source,) = body.sources
    zeros = [compare("==", f, 0.0) for f in _factors(source) if _is_constant(f)]
    return replace(body, sources=(select(logical_or(*zeros), -0.0, source),)) if zeros else body


def _factors(e: Expr) -> list[Expr]:
    return _factors(e.a) + _factors(e.b) if isinstance(e, Binary) and e.op == "*" else [e]


def _is_constant(e: Expr) -> bool:
    """It varies with axes only, and is no single number."""
    return not isinstance(e, Const) and not any(isinstance(x, Load | BufferLoad | Reduce) for x in walk(e))
