"""An index with the sums that conditions bound as atoms of their own.

    if by*6 + ty*3 + y < 149 && bx*10 + x < 149:
        C[by*28608 + ty*14304 + y*4768 + bx*320 + x*32 + f]            is C[4768*Y + 32*X + f], with Y, X <= 148

Over the boxes of the loops alone, bx*10 + x could be 149 and more, and a row of C could run into the next one.  With
`Y` and `X` as atoms whose ranges the conditions give, the index is a number whose digits they are (`verify_digits.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .verify_bounds import Bound, bounds_of, most_of, negated
from .verify_common import Common, times
from .verify_form import Ends, Forms, Sum, plus
from .verify_scope import Access
from .verify_span import Span


@dataclass(frozen=True)
class Place:
    """An index, as a sum, and the ranges of its atoms."""

    terms: Sum
    constant: int
    ends: Ends


def ways(one: Access, other: Access) -> Iterator[tuple[Place, Place]]:
    """Two indices as they are written; with what conditions bound; and the same, brought together first."""
    yield _plain(one), _plain(other)
    if one.scope.conditions or other.scope.conditions:
        bounds = [_bounds(x) for x in (one, other)]
        yield _guarded(_plain(one), one, bounds[0]), _guarded(_plain(other), other, bounds[1])
        sums = [x.forms.of(x.index)[0] for x in (one, other)] + [b.terms for some in bounds for b in some]
        common = Common.of(sums, one.forms)
        if common.links:
            a, b = [_brought(x, some, common) for x, some in zip((one, other), bounds, strict=True)]
            yield a, b


def _plain(access: Access) -> Place:
    return Place(*access.forms.of(access.index), access.forms.ends(access.scope.spans))


def _bounds(access: Access) -> list[Bound]:
    return [b for c in access.scope.conditions for b in bounds_of(c, access.forms) if b.terms]


def _brought(access: Access, bounds: list[Bound], common: Common) -> Place:
    """The index with what conditions bound, both with remainders cut."""
    place = _plain(access)
    terms, constant = common.divided(common.cut(place.terms))
    more = [Bound(common.cut(b.terms), b.most) for b in bounds]
    return _guarded(Place(terms, place.constant + constant, place.ends), access, bounds + more)


def _guarded(place: Place, access: Access, bounds: list[Bound]) -> Place:
    """The index with the sums as atoms that conditions bound, those of most terms first."""
    terms, ends, forms = place.terms, place.ends, access.forms
    spans: dict[int, Span] = {}
    for part in sorted({_one_way(b.terms, forms): None for b in bounds}, key=lambda e: -len(forms.parts[e])):
        k = times(terms, forms.parts[part])
        if k:
            terms = plus(plus(terms, forms.parts[part], -k), {part: 1}, k)
            spans[part] = _range(forms.parts[part], bounds, ends)
    return Place(terms, place.constant, ends.narrowed(spans))


def _one_way(terms: Sum, forms: Forms) -> int:
    """The atom of a sum, or of its negative: the same for both."""
    first = max(terms, key=lambda e: (abs(terms[e]), e))
    return forms.part(terms if terms[first] > 0 else negated(terms))


def _range(part: Sum, bounds: list[Bound], ends: Ends) -> Span:
    return -most_of(negated(part), bounds, ends), most_of(part, bounds, ends)
