"""Is an index in bounds by the conditions around it?  By arithmetic on sums instead of looking at points.

Conditions that compare sums bound them: `low <= g <= high`.  For any number k

    index = k*g + (index - k*g)  <=  k*high + (the greatest value of index - k*g over the boxes of its atoms)

so every k gives a bound that holds, and the best ones take atoms out of the index.  Where an index and its conditions
are written in different atoms, x = c*(x // c) + x % c and x % (g*d) = g*((x // g) % d) + x % g bring them together; and
as atoms are integers, a condition c*g + rest <= high also says g <= (high - least rest) // c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .expr import Compare, Expr
from .verify_form import Ends, Forms, Link, Sum, greatest, plus
from .verify_span import INDICES

_MOST_STEPS = 8
_MOST_LAWS = 64


@dataclass(frozen=True, slots=True)
class _Bound:
    """`sum of terms <= most`."""

    terms: Sum
    most: int


def inside(index: Expr, size: int, conditions: tuple[Expr, ...], forms: Forms, ends: Ends) -> bool:
    """Whether an index is shown to be one of `size` elements wherever the conditions hold."""
    terms, constant = forms.of(index)
    goals = [_Bound(_negated(terms), constant), _Bound(terms, size - 1 - constant)]
    bounds = [b for c in conditions for b in _bounds(c, forms)]
    goals = _open(goals, bounds, ends)
    links = forms.links([terms, *[b.terms for b in bounds]]) if goals else ()
    if not goals or not links:
        return not goals
    cuts = tuple(_cuts(links, forms))
    goals = [_Bound(_cut(g.terms, cuts), g.most) for g in goals]
    bounds += [_Bound(_cut(b.terms, cuts), b.most) for b in bounds]
    more = [_Bound(_written_in(b.terms, links), b.most) for b in bounds]
    more += [r for b in more for r in _rounded(b, ends)]
    more += [b for link in links for b in _of_quotient(link, bounds, ends)]
    goals = [_Bound(_written_in(g.terms, links), g.most) for g in goals]
    return not _open(goals, [*bounds, *more][:_MOST_LAWS], ends)


def _negated(terms: Sum) -> Sum:
    return {e: -c for e, c in terms.items()}


def _open(goals: list[_Bound], bounds: list[_Bound], ends: Ends) -> list[_Bound]:
    """The goals that do not follow from bounds."""
    return [g for g in goals if _most(g.terms, bounds, ends) > g.most]


def _bounds(cond: Expr, forms: Forms) -> Iterator[_Bound]:
    """What a comparison of integers says of sums."""
    if not isinstance(cond, Compare) or cond.a.dtype not in INDICES or cond.op == "!=":
        return
    terms, constant = forms.difference(cond.a, cond.b)
    strict = cond.op in ("<", ">")
    if cond.op in ("<", "<=", "=="):
        yield _Bound(terms, -constant - strict)
    if cond.op in (">", ">=", "=="):
        yield _Bound(_negated(terms), constant - strict)


def _most(terms: Sum, bounds: list[_Bound], ends: Ends) -> int:
    """A number that the sum does not exceed, by taking the bounds that help most, one after the other."""
    best = greatest(terms, ends)
    for _ in range(_MOST_STEPS):
        gain, k, bound = min(_steps(terms, bounds, ends), default=(0, 0, None), key=_first)
        if bound is None or gain >= 0:
            break
        best, terms = best + gain, plus(terms, bound.terms, -k)
    return best


def _first(step: tuple[int, int, _Bound | None]) -> int:
    return step[0]


def _steps(terms: Sum, bounds: list[_Bound], ends: Ends) -> Iterator[tuple[int, int, _Bound]]:
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


@dataclass(frozen=True, slots=True)
class _Cut:
    """The remainder `whole` by g*d is g times the remainder `high` by d, plus `low`, the remainder by g."""

    whole: int
    high: int
    times: int
    low: Sum


def _cuts(links: tuple[Link, ...], forms: Forms) -> Iterator[_Cut]:
    """The remainders by g*d that can be written as g*((x // g) % d) + x % g, where the remainder by d occurs too."""
    dens = [(link.remainder, link.den) for link in links]
    for link in links:
        for small, d in dens:
            g = link.den // d
            if link.den % d or g in (1, link.den):
                continue
            if forms.divided("%", *forms.divided("//", link.terms, link.constant, g), d) == ({small: 1}, 0):
                rest, n = forms.divided("%", link.terms, link.constant, g)
                if not n:
                    yield _Cut(link.remainder, small, g, rest)


def _cut(terms: Sum, cuts: tuple[_Cut, ...]) -> Sum:
    """A sum with the remainders cut that can be."""
    for cut in cuts:
        k = terms.get(cut.whole)
        if k:
            terms = plus(plus(terms, {cut.whole: -1, cut.high: cut.times}, k), cut.low, k)
    return terms


def _of_quotient(link: Link, bounds: list[_Bound], ends: Ends) -> Iterator[_Bound]:
    """How large and how small the quotient can be where the conditions hold."""
    yield _Bound({link.quotient: 1}, (_most(link.terms, bounds, ends) + link.constant) // link.den)
    yield _Bound({link.quotient: -1}, -((link.constant - _most(_negated(link.terms), bounds, ends)) // link.den))


def _written_in(terms: Sum, links: tuple[Link, ...]) -> Sum:
    """A sum with the sums that are divided somewhere written as quotients and remainders.

    Constants are those of the loops' origin only if the divided sum has none; others are left as they are.
    """
    for link in links:
        units = [e for e, c in link.terms.items() if abs(c) == 1 and e in terms]
        if not units or link.constant:
            continue
        pivot = min(units, key=lambda e: abs(terms[e]))
        k = terms[pivot] * link.terms[pivot]
        terms = plus(plus(terms, link.terms, -k), {link.quotient: link.den, link.remainder: 1}, k)
    return terms


def _rounded(bound: _Bound, ends: Ends) -> Iterator[_Bound]:
    """What a bound says of the multiples of each of its coefficients."""
    for g in {abs(c) for c in bound.terms.values()} - {1}:
        rest = {e: -c for e, c in bound.terms.items() if c % g}
        high = {e: c // g for e, c in bound.terms.items() if c % g == 0}
        yield _Bound(high, (bound.most + greatest(rest, ends)) // g)
