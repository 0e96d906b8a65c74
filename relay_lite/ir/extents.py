"""Open extents of a graph: numbers that are known when a network runs, and what is computed of them.

An extent is an integer, a `te.size_var`, or computed of those: a sum of products, as the rows of a product whose
operand was (batch, length, hidden).  What a person or an operator writes, `n * 4 + m`, is brought to one form,
and one form is one object: extents are the same exactly when they are the same object or the same integer, so shapes
with open extents are compared and hashed as others are.  To kernels a computed size is a size of its own.

    extent(n * 4 // 2)  is  extent(n + n)  is  a size called n_2, of 2 to 8192 for n of 1 to 4096
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np

from te_lite.errors import require
from te_lite.expr.expr import INDEX, Binary, Const, Expr, SizeVar, as_expr

from .errors import GraphError

Extent: TypeAlias = Any
"""An integer or a `SizeVar`; typed as `int` where shapes are, which most graphs have nothing else of."""
Factors: TypeAlias = tuple[SizeVar, ...]
Terms: TypeAlias = Mapping[Factors, int]
"""A sum: how often it has each product of sizes; that of the number is ()."""
Sizes: TypeAlias = Mapping[SizeVar, int]
MOST = 1 << 31
"""What an extent stays below."""


_KNOWN: dict[frozenset[tuple[Factors, int]], SizeVar] = {}
_COMPUTED: dict[SizeVar, Terms] = {}


def extent(value: Any, subject: str = "extent") -> Extent:
    """The extent that an integer or an expression of sizes is.

    Raises GraphError, naming `subject`, for a quotient that is no sum of products for all sizes, for other operators,
    and for what is below 1 or too large for some sizes.
    """
    if isinstance(value, int | SizeVar | np.integer):
        return value if isinstance(value, SizeVar) else int(value)
    law = "extents are integers, sizes as te.size_var('n', 1, 64), and sums, products and whole quotients of them"
    require(isinstance(value, Expr), GraphError, subject, law, got=value)
    terms = _terms(value, subject)
    if not any(terms):
        return terms.get((), 0)
    if list(terms.values()) == [1] and len(next(iter(terms))) == 1:
        return next(iter(terms))[0]
    key = frozenset(terms.items())
    if key not in _KNOWN:
        _KNOWN[key] = found = _computed(terms, value, subject)
        _COMPUTED[found] = terms
    return _KNOWN[key]


def is_open(*extents: Extent) -> bool:
    """Whether an extent is a size."""
    return any([isinstance(d, SizeVar) for d in extents])


def bounds(value: Any) -> tuple[int, int]:
    """The least and the greatest value of an expression of sizes; of a difference, no further apart than these."""
    terms = _terms(value, "extent")
    least, most = [sum([n * _end(f, (n < 0) != top) for f, n in terms.items()]) for top in (False, True)]
    return least, most


def product(extents: Iterable[Extent]) -> Extent:
    """The product of extents."""
    return extent(prod(extents), "product")


def is_computed(d: Extent) -> bool:
    """Whether an extent is computed of sizes."""
    return isinstance(d, SizeVar) and d in _COMPUTED


def greatest(shape: Sequence[Extent]) -> tuple[int, ...]:
    """The greatest extents that a shape may have."""
    return tuple([d.range[1] if isinstance(d, SizeVar) else d for d in shape])


def filled(newshape: Sequence[Extent], shape: Sequence[Extent], subject: str) -> tuple[Extent, ...]:
    """`newshape` with its one -1 replaced so that it holds as many elements as `shape` for all sizes.

    Raises GraphError, naming `subject`, where it does not.
    """
    left = [k for k, d in enumerate(newshape) if not is_open(d) and d == -1]
    require(len(left) <= 1, GraphError, subject, "at most one dimension may be -1", newshape=newshape)
    known, whole = product([d for k, d in enumerate(newshape) if k not in left]), product(shape)
    out = tuple([extent(as_expr(whole) // known, subject) if k in left else d for k, d in enumerate(newshape)])
    law = "the new shape must hold as many elements for all sizes"
    require(product(out) == whole, GraphError, subject, law, newshape=tuple(newshape), shape=tuple(shape))
    return out


def value_of(d: Extent, sizes: Sizes) -> int:
    """An extent at some sizes, which must have all that it is computed of."""
    if is_computed(d):
        return sum([count * prod([value_of(v, sizes) for v in factors]) for factors, count in _COMPUTED[d].items()])
    if isinstance(d, SizeVar):
        require(d in sizes, GraphError, d.name, "this size is no extent of an input", sizes=[v.name for v in sizes])
        return sizes[d]
    return int(d)


def shape_at(shape: Iterable[Extent], sizes: Sizes) -> tuple[int, ...]:
    """A shape at some sizes."""
    return tuple([value_of(d, sizes) for d in shape])


def declared(extents: Iterable[Extent]) -> tuple[SizeVar, ...]:
    """The sizes that extents are, or are computed of, in the order of their use."""
    found: dict[SizeVar, None] = {}
    for d in extents:
        if isinstance(d, SizeVar):
            found.update(dict.fromkeys([v for factors in _COMPUTED.get(d, {(d,): 1}) for v in factors]))
    return tuple(found)


# ----------------------------------------------------------------------------------------------------- arithmetic


def _terms(e: Any, subject: str) -> dict[Factors, int]:
    match e:
        case int() | np.integer() | Const():
            value = int(e.value) if isinstance(e, Const) else int(e)
            return {(): value} if value else {}
        case SizeVar():
            return dict(_COMPUTED.get(e, {(e,): 1}))
        case Binary(op="+" | "-" as op, a=a, b=b):
            return _sum(_terms(a, subject), _terms(b, subject), 1 if op == "+" else -1)
        case Binary(op="*", a=a, b=b):
            return _product(_terms(a, subject), _terms(b, subject))
        case Binary(op="//", a=a, b=b):
            return _quotient(_terms(a, subject), _terms(b, subject), e, subject)
    law = "an extent is computed of open ones by sums, products and whole quotients"
    require(False, GraphError, subject, law, got=e)
    return {}


def _sum(a: Terms, b: Terms, sign: int) -> dict[Factors, int]:
    found = dict(a)
    for factors, count in b.items():
        found[factors] = found.get(factors, 0) + sign * count
    return {factors: count for factors, count in found.items() if count}


def _product(a: Terms, b: Terms) -> dict[Factors, int]:
    parts = [{_ordered((*f, *g)): m * n} for f, m in a.items() for g, n in b.items()]
    return reduce(lambda x, y: _sum(x, y, 1), parts, {})


def _ordered(factors: Factors) -> Factors:
    return tuple(sorted(factors, key=lambda v: (v.name, id(v))))


def _quotient(a: Terms, b: Terms, e: Expr, subject: str) -> dict[Factors, int]:
    """`a // b` where `b` is one product that divides every term."""
    law = "the divisor must divide an open extent for all sizes"
    require(len(b) == 1, GraphError, subject, law, got=e)
    ((below, divisor),) = b.items()
    found = {}
    for factors, count in a.items():
        left = Counter(factors) - Counter(below)
        whole = count % divisor == 0 and left.total() == len(factors) - len(below)
        require(whole, GraphError, subject, law, got=e)
        found[_ordered(tuple(left.elements()))] = count // divisor
    return found


def _computed(terms: Terms, e: Expr, subject: str) -> SizeVar:
    """A size of its own, whose bounds are those of the sum."""
    ends = bounds(e)
    law = f"a computed extent must be 1 to {MOST - 1} for all sizes"
    require(ends[0] >= 1 and ends[1] < MOST, GraphError, subject, f"{law}, and is {ends[0]} to {ends[1]}", got=e)
    name = "_plus_".join([_term_name(f, count) for f, count in terms.items()])
    return SizeVar(name, INDEX, ends)


def _end(factors: Factors, most: bool) -> int:
    return prod([v.range[most] for v in factors])


def _term_name(factors: Factors, count: int) -> str:
    parts = [*[v.name for v in factors], *([] if count == 1 and factors else [str(count).replace("-", "less")])]
    return "_".join(parts)
