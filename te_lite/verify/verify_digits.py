"""Does touching one element show that two iterations of a loop are the same one?  By the digits of the index.

An index is a sum of terms, read as a mixed-radix number.  If the terms with small coefficients together span less than
one step of those with large coefficients, two equal indices are equal digit by digit.  If `e // d` and `e % d` are
equal in both iterations, so is `e`, which is split in the same way.  What remains are equations for the loop variable.

Sums that conditions bound are atoms of their own before that:

    if by*6 + ty*3 + y < 149 && bx*10 + x < 149:
        C[by*28608 + ty*14304 + y*4768 + bx*320 + x*32 + f]            is C[4768*Y + 32*X + f], with Y, X <= 148

Over the boxes of the loops alone, bx*10 + x could be 149 and more, and a row of C could run into the next one.  With
`Y` and `X` as atoms whose ranges the conditions give, the index is a number whose digits they are.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np

from ..expr.expr import Var
from ..loops.stmt import For
from .verify_access import Bound, Common, bounds_of, most_of, negated, times
from .verify_clash import Pair
from .verify_form import Ends, Forms, Sum, plus
from .verify_scope import Access
from .verify_span import Span


@dataclass(frozen=True)
class BoundedSum:
    """An index, as a sum, and the ranges of its atoms."""

    terms: Sum
    constant: int
    ends: Ends


def ways(one: Access, other: Access) -> Iterator[tuple[BoundedSum, BoundedSum]]:
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


def _plain(access: Access) -> BoundedSum:
    return BoundedSum(*access.forms.of(access.index), access.forms.ends(access.scope.spans))


def _bounds(access: Access) -> list[Bound]:
    return [b for c in access.scope.conditions for b in bounds_of(c, access.forms) if b.terms]


def _brought(access: Access, bounds: list[Bound], common: Common) -> BoundedSum:
    """The index with what conditions bound, both with remainders cut."""
    place = _plain(access)
    terms, constant = common.divided(common.cut(place.terms))
    more = [Bound(common.cut(b.terms), b.most) for b in bounds]
    return _guarded(BoundedSum(terms, place.constant + constant, place.ends), access, bounds + more)


def _guarded(place: BoundedSum, access: Access, bounds: list[Bound]) -> BoundedSum:
    """The index with the sums as atoms that conditions bound, those of most terms first."""
    terms, ends, forms = place.terms, place.ends, access.forms
    spans: dict[int, Span] = {}
    for part in sorted({_one_way(b.terms, forms): None for b in bounds}, key=lambda e: -len(forms.parts[e])):
        k = times(terms, forms.parts[part])
        if k:
            terms = plus(plus(terms, forms.parts[part], -k), {part: 1}, k)
            spans[part] = _range(forms.parts[part], bounds, ends)
    return BoundedSum(terms, place.constant, ends.narrowed(spans))


def _one_way(terms: Sum, forms: Forms) -> int:
    """The atom of a sum, or of its negative: the same for both."""
    first = max(terms, key=lambda e: (abs(terms[e]), e))
    return forms.part(terms if terms[first] > 0 else negated(terms))


def _range(part: Sum, bounds: list[Bound], ends: Ends) -> Span:
    return -most_of(negated(part), bounds, ends), most_of(part, bounds, ends)


_MOST_ITERATIONS = 1 << 18
Atoms = tuple[int, int]
"""An atom in one iteration, and one in another."""
Equation = tuple[Sum, Sum, int]
"""`a - b == k`, of a sum in one iteration and one in another."""


def iterations_equal(loop: For, pair: Pair) -> bool:
    """Whether one access in an iteration of `loop` and the other in another never touch the same element."""
    return any(_differ(loop, pair, one, other) for one, other in ways(*pair.both))


def _differ(loop: For, pair: Pair, one: BoundedSum, other: BoundedSum) -> bool:
    """The same, of indices that are written so."""
    forms = pair.write.forms
    digits = _Digits(loop, pair, (one.ends, other.ends))
    known: dict[Atoms, int] = {}
    done: set[Atoms] = set()
    todo: list[Equation] = [(one.terms, other.terms, other.constant - one.constant)]
    while todo:
        found = digits.split(*todo.pop())
        if found is None:
            return True
        known |= found.atoms
        todo += [*_spelt_out(found.groups, forms), *_wholes(known, done, forms)]
    return _one_iteration(loop, [a for (a, b), k in known.items() if a == b and not k], forms)


def _one_iteration(loop: For, equal: list[int], forms: Forms) -> bool:
    """Whether the values of the atoms `equal`, of the loop variable alone, tell the iterations apart."""
    if any(forms.is_variable(e, loop.var) for e in equal):
        return True
    own = [e for e in equal if forms.variables(e) == {loop.var}]
    if not own or loop.extent > _MOST_ITERATIONS:
        return False
    grid = {loop.var: np.arange(loop.extent)}
    key = np.zeros(loop.extent, np.int64)
    for e in own:
        _, values = np.unique(forms.value(e, grid), return_inverse=True)
        _, key = np.unique(key * loop.extent + values, return_inverse=True)
    return int(key.max()) + 1 == loop.extent


@dataclass(frozen=True)
class _Found:
    """What follows from an equation: differences of atoms, and equations of atoms that no digit tells apart."""

    atoms: dict[Atoms, int]
    groups: list[Equation]


class _Digits:
    """Takes equations apart into those of single atoms."""

    def __init__(self, loop: For, pair: Pair, ends: tuple[Ends, Ends]) -> None:
        self.forms = pair.write.forms
        self.spans = pair.write.scope.spans
        self.ends = ends
        self.free = (_inside(pair.write, loop) | _inside(pair.other, loop)) - pair.same

    def split(self, a: Sum, b: Sum, difference: int) -> _Found | None:
        """What follows from `a - b == difference`; None if it cannot hold."""
        same = [e for e, c in a.items() if b.get(e) == c and self._fixed(e)]
        still = self._still({*a, *b})
        found = {(e, e): x - y for e, (x, y) in still.items()}
        groups: list[Equation] = []
        mine, theirs = [_by_size(terms, same, still) for terms in (a, b)]
        digits = sorted({*mine, *theirs})
        rest = sum([a.get(e, 0) * x - b.get(e, 0) * y for e, (x, y) in still.items() if e not in same], -difference)
        low, high, first = 0, 0, 0
        for k, digit in enumerate(digits):
            here = mine.get(digit, []), theirs.get(digit, [])
            span = _span(*here, *self.ends)
            low, high = low + span[0], high + span[1]
            step = math.gcd(*digits[k + 1 :]) or abs(rest) + abs(low) + abs(high) + 1
            carry = -(-(rest + low) // step) * step
            if carry > rest + high:
                return None
            if carry + step > rest + high:
                if k == first and not _single(digit, carry - rest, *here, found):
                    return None
                if k > first:
                    both = [dict(_of(digits[first : k + 1], side)) for side in (mine, theirs)]
                    groups.append((both[0], both[1], carry - rest))
                rest, low, high, first = carry, 0, 0, k + 1
        return _Found(found, groups) if digits or rest == 0 else None

    def _still(self, atoms: set[int]) -> dict[int, tuple[int, int]]:
        """The atoms that have one value in one place, and one in the other, and both."""
        spans = [(e, *self.ends[0][e], *self.ends[1][e]) for e in atoms]
        return {e: (low, lowest) for e, low, high, lowest, highest in spans if low == high and lowest == highest}

    def _fixed(self, atom: int) -> bool:
        """Whether an atom is the same in all iterations."""
        return not self.forms.variables(atom) & self.free and self.forms.computable(atom, self.spans)


Scaled = tuple[int, int]
"""An atom and its coefficient."""


def _by_size(terms: Sum, *without: Container[int]) -> dict[int, list[Scaled]]:
    """The terms, without some, by the absolute value of their coefficient."""
    out: dict[int, list[Scaled]] = {}
    for e, c in terms.items():
        if not any(e in some for some in without):
            out.setdefault(abs(c), []).append((e, c))
    return out


def _of(digits: list[int], side: dict[int, list[Scaled]]) -> Iterator[Scaled]:
    """The terms of some digits."""
    for digit in digits:
        yield from side.get(digit, [])


def _spelt_out(groups: list[Equation], forms: Forms) -> Iterator[Equation]:
    """The equations in which sums stand as atoms, term by term.

    One access may be guarded and the other one not: what is one atom there is several here.
    """
    for a, b, difference in groups:
        if any(e in forms.parts for e in (*a, *b)):
            yield _terms(a, forms), _terms(b, forms), difference


def _terms(of: Sum, forms: Forms) -> Sum:
    out: Sum = {}
    for e, c in of.items():
        out = plus(out, forms.parts.get(e, {e: 1}), c)
    return out


def _span(mine: list[Scaled], theirs: list[Scaled], ends: Ends, others: Ends) -> tuple[int, int]:
    """The range of the difference of two sums."""
    low = sum([c * ends[e][c < 0] for e, c in mine]) - sum([c * others[e][c > 0] for e, c in theirs])
    high = sum([c * ends[e][c > 0] for e, c in mine]) - sum([c * others[e][c < 0] for e, c in theirs])
    return low, high


def _single(digit: int, total: int, mine: list[Scaled], theirs: list[Scaled], found: dict[Atoms, int]) -> bool:
    """Note what follows from the terms of one coefficient having the difference `total`; False if they cannot."""
    if len(mine) == len(theirs) == 1 and mine[0][1] == theirs[0][1] and total % digit == 0:
        found[mine[0][0], theirs[0][0]] = total // mine[0][1]
    return total % digit == 0


def _inside(access: Access, loop: For) -> set[Var]:
    """The variables of `loop` and of the loops in it around an access."""
    loops = access.scope.loops
    return {x.var for x in loops[loops.index(loop) :]}


def _wholes(known: dict[Atoms, int], done: set[Atoms], forms: Forms) -> Iterator[Equation]:
    """The equations of sums that those of their parts, or of their quotients and remainders, give, each once."""
    for pair in known.keys() - done:
        parts = [forms.parts.get(e) for e in pair]
        if parts[0] is not None and parts[1] is not None:
            done.add(pair)
            yield parts[0], parts[1], known[pair]
        one, other = [forms.by_remainder.get(e) for e in pair]
        if one is not None and other is not None and one.den == other.den:
            quotients = one.quotient, other.quotient
            if quotients in known:
                done.add(pair)
                difference = known[quotients] * one.den + known[pair]
                yield one.terms, other.terms, difference - one.constant + other.constant
