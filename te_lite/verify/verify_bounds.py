"""Is an index in bounds by the conditions around it?  By arithmetic on sums instead of looking at points.

Conditions that compare sums bound them: `low <= g <= high`.  For any number k

    index = k*g + (index - k*g)  <=  k*high + (the greatest value of index - k*g over the boxes of its atoms)

so every k gives a bound that holds, and the best ones take atoms out of the index.  What is written in different atoms
is brought together (`verify_common.py`); and as atoms are integers, a condition c*g + rest <= high also says
g <= (high - least rest) // c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..expr.expr import Compare, Expr
from .verify_common import Common
from .verify_form import Ends, Forms, Link, Sum, greatest, plus
from .verify_span import INDICES

_MOST_STEPS = 8
_MOST_LAWS = 64


@dataclass(frozen=True, slots=True)
class Bound:
    """`sum of terms <= most`."""

    terms: Sum
    most: int


def inside(index: Expr, size: int, conditions: tuple[Expr, ...], forms: Forms, ends: Ends) -> bool:
    """Whether an index is shown to be one of `size` elements wherever the conditions hold."""
    terms, constant = forms.of(index)
    goals = [Bound(negated(terms), constant), Bound(terms, size - 1 - constant)]
    bounds = [b for c in conditions for b in bounds_of(c, forms)]
    goals = _open(goals, bounds, ends)
    common = Common.of([terms, *[b.terms for b in bounds]], forms) if goals else None
    if common is None or not common.links:
        return not goals
    goals = [Bound(common.cut(g.terms), g.most) for g in goals]
    bounds += [Bound(common.cut(b.terms), b.most) for b in bounds]
    for way in (common.divided, common.spread):
        more = [*bounds, *_more(bounds, common, way, ends)]
        written = [(g, _written(g, way)) for g in goals]
        goals = [g for g, w in written if _open([w], [*more, *_wholes(w.terms, common, bounds, ends)], ends)]
    return not goals


def _written(bound: Bound, way: Callable[[Sum], tuple[Sum, int]]) -> Bound:
    terms, constant = way(bound.terms)
    return Bound(terms, bound.most - constant)


def _more(bounds: list[Bound], common: Common, way: Callable[[Sum], tuple[Sum, int]], ends: Ends) -> list[Bound]:
    """What bounds say of other sums."""
    more = [_written(b, way) for b in bounds]
    more += [r for b in more for r in _rounded(b, ends)]
    more += [b for link in common.links for b in _of_quotient(link, bounds, ends)]
    return more[:_MOST_LAWS]


def negated(terms: Sum) -> Sum:
    return {e: -c for e, c in terms.items()}


def _open(goals: list[Bound], bounds: list[Bound], ends: Ends) -> list[Bound]:
    """The goals that do not follow from bounds."""
    return [g for g in goals if most_of(g.terms, bounds, ends) > g.most]


def bounds_of(cond: Expr, forms: Forms) -> Iterator[Bound]:
    """What a comparison of integers says of sums."""
    if not isinstance(cond, Compare) or cond.a.dtype not in INDICES or cond.op == "!=":
        return
    terms, constant = forms.difference(cond.a, cond.b)
    strict = cond.op in ("<", ">")
    if cond.op in ("<", "<=", "=="):
        yield Bound(terms, -constant - strict)
    if cond.op in (">", ">=", "=="):
        yield Bound(negated(terms), constant - strict)


def most_of(terms: Sum, bounds: list[Bound], ends: Ends) -> int:
    """A number that the sum does not exceed, by taking the bounds that help most, one after the other."""
    best = greatest(terms, ends)
    for _ in range(_MOST_STEPS):
        gain, k, bound = min(_steps(terms, bounds, ends), default=(0, 0, None), key=_first)
        if bound is None or gain >= 0:
            break
        best, terms = best + gain, plus(terms, bound.terms, -k)
    return best


def _first(step: tuple[int, int, Bound | None]) -> int:
    return step[0]


def _steps(terms: Sum, bounds: list[Bound], ends: Ends) -> Iterator[tuple[int, int, Bound]]:
    """By how much the greatest value rises where a bound is taken out of `terms` k times, so that an atom vanishes."""
    for b in bounds:
        shared = [(e, c) for e, c in b.terms.items() if e in terms]
        for k in {terms[e] // c for e, c in shared if terms[e] % c == 0 and (terms[e] > 0) == (c > 0)}:
            gain = k * b.most
            for e, c in b.terms.items():
                old = terms.get(e, 0)
                new = old - k * c
                gain += new * ends[e][new > 0] - old * ends[e][old > 0]
            yield gain, k, b


# ------------------------------------------------------------------------------------------ quotients and remainders


def _of_quotient(link: Link, bounds: list[Bound], ends: Ends) -> Iterator[Bound]:
    """How large and how small the quotient can be where the conditions hold."""
    yield Bound({link.quotient: 1}, (most_of(link.terms, bounds, ends) + link.constant) // link.den)
    yield Bound({link.quotient: -1}, -((link.constant - most_of(negated(link.terms), bounds, ends)) // link.den))


def _wholes(terms: Sum, common: Common, bounds: list[Bound], ends: Ends) -> Iterator[Bound]:
    """How large `high + rest // den`, which `terms` has a multiple of, can be: (den * high + rest) // den."""
    for link in common.links:
        k = terms.get(link.quotient, 0)
        high = {e: terms[e] // k for e in link.terms if k and terms.get(e, 0) % k == 0 and e in terms}
        if high:
            most = most_of(plus(link.terms, high, link.den), bounds, ends) + link.constant
            yield Bound({**high, link.quotient: 1}, most // link.den)


def _rounded(bound: Bound, ends: Ends) -> Iterator[Bound]:
    """What a bound says of the multiples of each of its coefficients."""
    for g in {abs(c) for c in bound.terms.values()} - {1}:
        rest = {e: -c for e, c in bound.terms.items() if c % g}
        high = {e: c // g for e, c in bound.terms.items() if c % g == 0}
        yield Bound(high, (bound.most + greatest(rest, ends)) // g)
