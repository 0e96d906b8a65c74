"""Several sums written in the same atoms.

Where an index and the conditions around it are written in different atoms, three laws bring them together:

    x          =  c*(x // c) + x % c                  (`divided`, `spread`)
    x % (g*d)  =  g*((x // g) % d) + x % g            (`cut`)
    x // g     =  d*(x // (g*d)) + (x // g) % d       (`cut`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from .verify_form import Forms, Link, Sum, plus


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
