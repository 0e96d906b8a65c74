"""Is an access in bounds wherever it happens?  Proven, refuted with a point that shows it, or left open.

Three arguments, cheapest first; the walk has tried the range of the index over the boxes of the loops already:

    few points   all points of the loops that the index depends on, where those are few
    forms        the index as a linear form, bounded by the conditions
    all points   up to `MOST_POINTS` of them

Conditions that compare sums bound them: `low <= g <= high`.  For any number k

    index = k*g + (index - k*g)  <=  k*high + (the greatest value of index - k*g over the boxes of its atoms)

so every k gives a bound that holds, and the best ones take atoms out of the index.  As atoms are integers, a condition
c*g + rest <= high also says g <= (high - least rest) // c.

Where an index and the conditions around it are written in different atoms, three identities bring them together:

    x          =  c*(x // c) + x % c                  (`divided`, `spread`)
    x % (g*d)  =  g*((x // g) % d) + x % g            (`cut`)
    x // g     =  d*(x // (g*d)) + (x // g) % d       (`cut`)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..expr.expr import Compare, Expr, Var
from ..loops.stmt_text import pretty
from .verify_form import Ends, Forms, Link, Sum, greatest, plus
from .verify_points import MOST_POINTS, Point, computable, range_at_points, range_of_conditions, value_at
from .verify_scope import Access, Read
from .verify_span import INDICES, Boxes

# --------------------------------------------------------------------------------------- several sums in the same atoms


@dataclass(frozen=True, slots=True)
class _Cut:
    """The atom `whole` is so many `times` the sum `high`, plus the sum `low`."""

    whole: int
    high: Sum
    times: int
    low: Sum


@dataclass(frozen=True, slots=True)
class Common:
    """What is divided in some sums, and the quotients and remainders in them that can be cut."""

    links: tuple[Link, ...]
    cuts: tuple[_Cut, ...]

    @classmethod
    def of(cls, sums: Iterable[Sum], forms: Forms) -> Common:
        links = forms.links(sums)
        return cls(links, (*_cuts(links, forms), *_shorter(links, forms)))

    def cut(self, terms: Sum) -> Sum:
        """A sum with the quotients and remainders cut that can be."""
        for cut in self.cuts:
            k = terms.get(cut.whole)
            if k:
                terms = plus(plus(plus(terms, {cut.whole: -1}, k), cut.high, k * cut.times), cut.low, k)
        return terms

    def divided(self, terms: Sum) -> tuple[Sum, int]:
        """A sum, and a constant to add, with each sum that it contains as a whole written as quotient and remainder."""
        constant = 0
        for link in self.links:
            k = times(terms, link.terms)
            if k:
                terms, constant = _by_quotient(terms, link, k), constant - k * link.constant
        return terms, constant

    def spread(self, terms: Sum) -> tuple[Sum, int]:
        """The same, with each sum of which it contains an atom, for the least of such atoms."""
        constant = 0
        for link in self.links:
            units = [e for e, c in link.terms.items() if abs(c) == 1 and e in terms]
            if units:
                pivot = min(units, key=lambda e: abs(terms[e]))
                k = terms[pivot] * link.terms[pivot]
                terms, constant = _by_quotient(terms, link, k), constant - k * link.constant
        return terms, constant


def times(terms: Sum, part: Sum) -> int:
    """How many times a sum contains another one, term by term; 0 if it does not."""
    found = 0
    for e, c in part.items():
        k, rest = divmod(terms.get(e, 0), c)
        if rest or not k or k != (found or k):
            return 0
        found = k
    return found


def _by_quotient(terms: Sum, link: Link, k: int) -> Sum:
    """A sum with k times what `link` divides taken out of it; k times the constant of `link` is too much."""
    return plus(plus(terms, link.terms, -k), {link.quotient: link.den, link.remainder: 1}, k)


def _cuts(links: tuple[Link, ...], forms: Forms) -> Iterator[_Cut]:
    """The remainders by g*d that are g*((x // g) % d) + x % g, where the remainder by d or that by g occurs, too."""
    remainders = {link.remainder: link.den for link in links}
    for link in links:
        for den in dict.fromkeys(remainders.values()):
            if den != link.den and link.den % den == 0:
                for g in dict.fromkeys((link.den // den, den)):
                    high, n = forms.divided("%", *forms.divided("//", link.terms, link.constant, g), link.den // g)
                    low, m = forms.divided("%", link.terms, link.constant, g)
                    if not n and not m and (remainders.keys() & (high.keys() | low.keys())):
                        yield _Cut(link.remainder, high, g, low)


def _shorter(links: tuple[Link, ...], forms: Forms) -> Iterator[_Cut]:
    """The quotients by g that are d*(x // (g*d)) + (x // g) % d, where the quotient by g*d occurs, too."""
    for link, other in product(links, links):
        d = other.den // link.den
        within = d > 1 and other.den == d * link.den and link.terms == other.terms
        if within and forms.divided("//", {link.quotient: 1}, 0, d) == ({other.quotient: 1}, 0):
            yield _Cut(link.quotient, {other.quotient: 1}, d, forms.divided("%", {link.quotient: 1}, 0, d)[0])


# ------------------------------------------------------------------------------------------------ by arithmetic on sums


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
    goals = _still_open(goals, bounds, ends)
    common = Common.of([terms, *[b.terms for b in bounds]], forms) if goals else None
    if common is None or not common.links:
        return not goals
    goals = [Bound(common.cut(g.terms), g.most) for g in goals]
    bounds += [Bound(common.cut(b.terms), b.most) for b in bounds]
    for way in (common.divided, common.spread):
        more = [*bounds, *_more(bounds, common, way, ends)]
        written = [(g, _written(g, way)) for g in goals]
        goals = [g for g, w in written if _still_open([w], [*more, *_wholes(w.terms, common, bounds, ends)], ends)]
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


def _still_open(goals: list[Bound], bounds: list[Bound], ends: Ends) -> list[Bound]:
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


FEW_POINTS = 1 << 13
_TRIED = 512


@dataclass(frozen=True)
class Shown:
    """In bounds; `points` were looked at (0: by an argument over ranges alone)."""

    points: int = 0


@dataclass(frozen=True)
class Counterexample:
    """Not in bounds: the sentence names a point."""

    sentence: str


@dataclass(frozen=True)
class Open:
    """Neither: the sentence says why."""

    sentence: str


def settle(access: Access | Read) -> Shown | Counterexample | Open:
    """What is known of an access."""
    spans, conditions, size = access.scope.spans, access.scope.conditions, access.size
    found = range_at_points(access.index, conditions, spans, FEW_POINTS)
    if found is None:
        if inside(access.index, size, conditions, access.forms, access.forms.ends(spans)):
            return Shown()
        found = range_at_points(access.index, conditions, spans, MOST_POINTS)
    if found is None:
        return _tried(access)
    if found.low > found.high or (found.low >= 0 and found.high < size):
        return Shown(found.points)
    value, point = (found.low, found.lowest) if found.low < 0 else (found.high, found.highest)
    rest = range_of_conditions(conditions, spans, point.keys())
    if rest is not None and rest.low > rest.high:
        return Shown(found.points + rest.points)
    if not found.exact:
        reach = f"as far as it does not depend on memory, it runs from {found.low} to {found.high}"
        return _open(access, f"{reach}; an index that is read from memory must be clipped")
    if rest is None:
        return _open(access, f"it runs from {found.low} to {found.high}, if the conditions around it hold together")
    return _outside(access, value, point | rest.lowest)


def _open(access: Access | Read, reason: str) -> Open:
    element = access.element(pretty(access.index))
    return Open(f"nothing shows that {element} is inside of {access.size} elements: {reason}")


def _outside(access: Access | Read, value: int, point: Point) -> Counterexample:
    loops = [x.var for x in access.scope.loops]
    where = ", ".join(f"{v.name}={point.get(v, access.scope.spans.boxes[v][0])}" for v in loops)
    return Counterexample(f"{access.element(value)} is outside of {access.size} elements where {where}")


def _tried(access: Access | Read) -> Counterexample | Open:
    """A few points of an access that has too many."""
    spans, size = access.scope.spans, access.size
    if all(computable(e, spans) for e in (access.index, *access.scope.conditions)):
        points = _walk_through(spans.boxes)
        alive = np.logical_and.reduce([value_at(c, points) for c in access.scope.conditions], initial=np.True_)
        index = value_at(access.index, points)
        bad = np.flatnonzero(alive & ((index < 0) | (index >= size)))
        if bad.size:
            at = int(bad[0])
            return _outside(access, int(index[at]), {v: int(x[at]) for v, x in points.items()})
    return _open(access, f"it has more than {MOST_POINTS} points")


def _walk_through(boxes: Boxes) -> dict[Var, Any]:
    """The first, the last, and points between, of all loops; integers of Python."""
    counts = {v: high - low + 1 for v, (low, high) in boxes.items()}
    total = math.prod(counts.values())
    step = max(1, int(total * 0.6180339887) | 1)
    flat = [k * step % total for k in range(_TRIED)] + [total - 1]
    out: dict[Var, Any] = {}
    for v, n in counts.items():
        out[v] = np.array([boxes[v][0] + x % n for x in flat], object)
        flat = [x // n for x in flat]
    return out
