"""Bounds of an index from the conditions around it, by arithmetic on linear forms instead of looking at points.

A form is a sum of scaled atoms (loop variables, quotients, remainders, whatever is no sum) and a constant.  Conditions
that compare such sums bound forms: `low <= g <= high`.  For any number k

    index = k*g + (index - k*g)  <=  k*high + (the greatest value of index - k*g over the boxes of its atoms)

so every k gives a bound that holds, and the best ones take atoms out of the index.  Where an index and its conditions
are written in different atoms, x = c*(x // c) + x % c and x % (g*d) = g*((x // g) % d) + x % g bring them together; and
as atoms are integers, a condition c*g + rest <= high also says g <= (high - least rest) // c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from .expr import Binary, Compare, Const, Expr
from .verify_points import Terms, sum_of
from .verify_span import INDICES, Span, Spans
from .visit import walk

_MOST_STEPS = 8
_MOST_LAWS = 64


@dataclass(frozen=True)
class _Bound:
    """`sum of terms <= most`."""

    terms: Terms
    most: int


def bounds_under(index: Expr, conditions: tuple[Expr, ...], spans: Spans) -> Span:
    """Numbers that an index is not below and not above where the conditions hold."""
    terms, constant = _form(index)
    bounds = [b for c in conditions for b in _bounds(c)]
    low, high = _ends(terms, bounds, spans)
    links = _links([terms, *[b.terms for b in bounds]])
    if links:
        terms = _cut(terms, links)
        bounds += [_Bound(_cut(b.terms, links), b.most) for b in bounds]
        wide = _written_in(terms, links)
        more = [_Bound(_written_in(b.terms, links), b.most) for b in bounds]
        more += [r for b in more for r in _rounded(b, spans)]
        more += [b for link in links for b in _of_quotient(link, bounds, spans)]
        least, most = _ends(wide, [*bounds, *more][:_MOST_LAWS], spans)
        low, high = max(low, least), min(high, most)
    return low + constant, high + constant


def _ends(terms: Terms, bounds: list[_Bound], spans: Spans) -> Span:
    flipped = {e: -c for e, c in terms.items()}
    return -_greatest(flipped, bounds, spans), _greatest(terms, bounds, spans)


def _bounds(cond: Expr) -> Iterator[_Bound]:
    """What a comparison of integers says of sums."""
    if not isinstance(cond, Compare) or cond.a.dtype not in INDICES or cond.op == "!=":
        return
    terms, constant = _form(Binary("-", cond.a, cond.b))
    strict = cond.op in ("<", ">")
    if cond.op in ("<", "<=", "=="):
        yield _Bound(terms, -constant - strict)
    if cond.op in (">", ">=", "=="):
        yield _Bound({e: -c for e, c in terms.items()}, constant - strict)


def _most(terms: Terms, spans: Spans) -> int:
    """The greatest value over the boxes of the atoms."""
    return sum(max(c * x for x in spans.of(e)) for e, c in terms.items())


def _less(terms: Terms, other: Terms, k: int) -> Terms:
    """`terms - k * other`."""
    out = dict(terms)
    for e, c in other.items():
        rest = out.get(e, 0) - k * c
        if rest:
            out[e] = rest
        else:
            out.pop(e, None)
    return out


def _greatest(terms: Terms, bounds: list[_Bound], spans: Spans) -> int:
    """A number that the form does not exceed, by taking the conditions that help most, one after the other."""
    best, taken = _most(terms, spans), 0
    for _ in range(_MOST_STEPS):
        steps = [(k * b.most, _less(terms, b.terms, k)) for b in bounds for k in _factors(terms, b.terms)]
        found = min(((taken + n + _most(rest, spans), taken + n, rest) for n, rest in steps), default=None, key=_first)
        if found is None or found[0] >= best:
            return best
        best, taken, terms = found
    return best


def _first(step: tuple[int, int, Terms]) -> int:
    return step[0]


def _factors(terms: Terms, other: Terms) -> set[int]:
    """The positive numbers of times that `other` can be taken out of `terms` so that an atom vanishes."""
    return {terms[e] // c for e, c in other.items() if e in terms and terms[e] % c == 0 and terms[e] // c > 0}


# ------------------------------------------------------------------------------------------ quotients and remainders


def _form(e: Expr) -> tuple[Terms, int]:
    """An index as a sum: what a divisor divides stands outside of quotients, and nowhere in remainders.

    So equal quotients and remainders are written in the same way: (a*19 + b) // 3 is a*6 + (a + b) // 3.
    """
    terms: Terms = {}
    constant = 0
    plain, n = sum_of(e)
    for atom, k in plain.items():
        match atom:
            case Binary(op="//" | "%" as op, a=a, b=Const(value=value)) if a.dtype in INDICES and value > 0:
                inner, m = _divided(op, *_form(a), int(value))
                terms, constant = _less(terms, inner, -k), constant + k * m
            case _:
                terms = _less(terms, {atom: 1}, -k)
    return terms, constant + n


def _divided(op: str, terms: Terms, constant: int, den: int) -> tuple[Terms, int]:
    """The quotient or remainder of a sum."""
    high = {e: k // den if k > 0 else -(-k // den) for e, k in terms.items()}
    low = {e: k - high[e] * den for e, k in terms.items() if k != high[e] * den}
    more, left = divmod(constant, den)
    out = {e: k for e, k in high.items() if k} if op == "//" else {}
    number = more if op == "//" else 0 if low else left
    if low:
        out[Binary(op, _written(low, left), Const(den))] = 1
    return out, number


def _written(terms: Terms, constant: int) -> Expr:
    """A sum as an expression, the same for equal sums."""
    parts = [e if k == 1 else Binary("*", e, Const(k)) for e, k in sorted(terms.items(), key=_place)]
    parts += [Const(constant)] if constant else []
    return reduce(lambda a, b: Binary("+", a, b), parts)


def _place(term: tuple[Expr, int]) -> tuple[int, int]:
    return hash(term[0]), term[1]


@dataclass(frozen=True)
class _Link:
    """The sum `terms` (+ `constant`) is `den` times the quotient plus the remainder."""

    terms: Terms
    constant: int
    den: int
    quotient: Expr
    remainder: Expr


def _links(forms: list[Terms]) -> list[_Link]:
    """The quotients and remainders by constants that occur anywhere in some forms, the inner ones first."""
    found: dict[tuple[Expr, int], None] = {}
    for atom in (e for terms in forms for e in terms):
        for x in walk(atom):
            match x:
                case Binary(op="//" | "%", a=a, b=Const(value=value)) if a.dtype in INDICES and value > 0:
                    found[a, int(value)] = None
    order = sorted(found, key=lambda key: sum(1 for _ in walk(key[0])))
    return [_link(a, den) for a, den in order]


def _link(a: Expr, den: int) -> _Link:
    terms, constant = _form(a)
    by = Const(den)
    return _Link(terms, constant, den, Binary("//", a, by), Binary("%", a, by))


def _cut(terms: Terms, links: list[_Link]) -> Terms:
    """A form with x % (g*d) written as g*((x // g) % d) + x % g wherever the remainder by d occurs too."""
    known = {link.remainder: link.den for link in links}
    for link in links:
        for small, d in known.items():
            g = link.den // d
            if link.remainder not in terms or link.den % d or g in (1, link.den):
                continue
            if _divided("%", *_divided("//", link.terms, link.constant, g), d) == ({small: 1}, 0):
                k = terms[link.remainder]
                rest, n = _divided("%", link.terms, link.constant, g)
                if not n:
                    terms = _less(_less(terms, {link.remainder: 1, small: -g}, k), rest, -k)
    return terms


def _of_quotient(link: _Link, bounds: list[_Bound], spans: Spans) -> Iterator[_Bound]:
    """How large and how small the quotient can be where the conditions hold."""
    low, high = _ends(link.terms, bounds, spans)
    yield _Bound({link.quotient: 1}, (high + link.constant) // link.den)
    yield _Bound({link.quotient: -1}, -((low + link.constant) // link.den))


def _written_in(terms: Terms, links: list[_Link]) -> Terms:
    """A form with the sums that are divided somewhere written as quotients and remainders.

    Constants are those of the loops' origin only if the divided sum has none; others are left as they are.
    """
    for link in links:
        units = [abs(terms[e]) for e, c in link.terms.items() if abs(c) == 1 and e in terms]
        if not units or link.constant or link.quotient in link.terms:
            continue
        pivot = next(e for e, c in link.terms.items() if abs(c) == 1 and e in terms and abs(terms[e]) == min(units))
        k = terms[pivot] * link.terms[pivot]
        terms = _less(terms, link.terms, k)
        terms = _less(terms, {link.quotient: link.den, link.remainder: 1}, -k)
    return terms


def _rounded(bound: _Bound, spans: Spans) -> Iterator[_Bound]:
    """What a bound says of the multiples of each of its coefficients."""
    for g in {abs(c) for c in bound.terms.values()} - {1}:
        rest = {e: -c for e, c in bound.terms.items() if c % g}
        high = {e: c // g for e, c in bound.terms.items() if c % g == 0}
        yield _Bound(high, (bound.most + _most(rest, spans)) // g)
