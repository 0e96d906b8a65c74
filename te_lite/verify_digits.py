"""Does touching one element show that two iterations of a loop are the same one?  By the digits of the indices.

An index is a sum of terms.  Where the terms of small coefficients cannot make up for a step of those of large ones, two
equal sums are equal in each part, as equal numbers are in their digits.  Where `e // d` and `e % d` are known, `e` is,
which is a sum itself.  What remains are equations of the loop variable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from .expr import Binary, Const, Expr, Var
from .stmt import For
from .verify_points import Terms, computable, sum_of, value_at
from .verify_span import Span
from .verify_walk import Access
from .visit import free_vars

_MOST_ITERATIONS = 1 << 18
Equation = tuple[Expr, Expr, int]
"""`a - b == k`, of an expression of one iteration and one of another."""


def iterations_equal(loop: For, one: Access, other: Access) -> bool:
    """Whether `one` in an iteration of `loop` and `other` in another never touch the same element."""
    known: dict[tuple[Expr, Expr], int] = {}
    seen: set[tuple[Expr, Expr]] = set()
    todo: list[Equation] = [(one.index, other.index, 0)]
    while todo:
        digits = _Digits(loop, one, other)
        if not digits.split(*todo.pop()):
            return True
        known |= {(a, b): k for a, b, k in digits.found}
        todo = [x for x in _wholes(known) if (x[0], x[1]) not in seen]
        seen |= {(a, b) for a, b, _ in todo}
    return _one_iteration(loop, [a for (a, b), k in known.items() if k == 0 and _same(a, b)])


def _same(a: Expr, b: Expr) -> bool:
    return bool(a == b)


def _one_iteration(loop: For, equal: list[Expr]) -> bool:
    """Whether the values of `equal`, expressions of the loop variable alone, tell the iterations apart."""
    if any(e is loop.var for e in equal):
        return True
    own = [e for e in equal if free_vars(e) == {loop.var}]
    if not own or loop.extent > _MOST_ITERATIONS:
        return False
    grid = {loop.var: np.arange(loop.extent)}
    key = np.zeros(loop.extent, np.int64)
    for e in own:
        _, values = np.unique(value_at(e, grid), return_inverse=True)
        _, key = np.unique(key * loop.extent + values, return_inverse=True)
    return int(key.max()) + 1 == loop.extent


@dataclass(frozen=True)
class _Digits:
    """An equation, taken apart into those of single terms."""

    loop: For
    one: Access
    other: Access
    found: list[Equation] = field(default_factory=list)

    def split(self, a: Expr, b: Expr, difference: int) -> bool:
        """Note what follows from `a - b == difference`; False if it cannot hold."""
        (mine, x), (theirs, y) = sum_of(a), sum_of(b)
        self._cancel(mine, theirs)
        digits = sorted({abs(c) for c in (*mine.values(), *theirs.values())})
        rest, low, high, first = x - y - difference, 0, 0, 0
        for k, digit in enumerate(digits):
            span = self._span(digit, mine, theirs)
            low, high = low + span[0], high + span[1]
            step = math.gcd(*digits[k + 1 :]) or abs(rest) + abs(low) + abs(high) + 1
            carry = -(-(rest + low) // step) * step
            if carry > rest + high:
                return False
            if carry + step > rest + high:
                if k == first and not self._single(digit, carry - rest, mine, theirs):
                    return False
                rest, low, high, first = carry, 0, 0, k + 1
        return bool(digits) or rest == 0

    def _cancel(self, mine: Terms, theirs: Terms) -> None:
        """Take away what is the same in all iterations."""
        inside = _inside(self.one, self.loop) | _inside(self.other, self.loop)
        for e in [e for e, c in mine.items() if theirs.get(e) == c]:
            if not free_vars(e) & inside and computable(e, self.one.scope.spans):
                del mine[e], theirs[e]

    def _span(self, digit: int, mine: Terms, theirs: Terms) -> Span:
        """The range of the terms of one coefficient."""
        low = high = 0
        for terms, access, sign in ((mine, self.one, 1), (theirs, self.other, -1)):
            for e, c in terms.items():
                if abs(c) == digit:
                    ends = sorted(sign * c * end for end in access.scope.spans.of(e))
                    low, high = low + ends[0], high + ends[1]
        return low, high

    def _single(self, digit: int, total: int, mine: Terms, theirs: Terms) -> bool:
        """Note what follows from the terms of one coefficient having the sum `total`; False if they cannot."""
        a = [e for e, c in mine.items() if abs(c) == digit]
        b = [e for e, c in theirs.items() if abs(c) == digit]
        if len(a) == len(b) == 1 and mine[a[0]] == theirs[b[0]] and total % digit == 0:
            self.found.append((a[0], b[0], total // mine[a[0]]))
        return total % digit == 0


def _inside(access: Access, loop: For) -> set[Var]:
    """The variables of `loop` and of the loops in it around an access."""
    loops = access.scope.loops
    return {x.var for x in loops[loops.index(loop) :]}


def _wholes(known: dict[tuple[Expr, Expr], int]) -> Iterator[Equation]:
    """The equations of `e` that those of `e // d` and `e % d` give."""
    for (a, b), remainder in known.items():
        match a, b:
            case Binary(op="%", a=x, b=Const(value=d)), Binary(op="%", a=y, b=Const(value=e)) if d == e:
                for pair in zip(_quotients(x, int(d)), _quotients(y, int(d)), strict=False):
                    if pair in known:
                        yield x, y, known[pair] * int(d) + remainder


def _quotients(e: Expr, d: int) -> list[Expr]:
    """The ways to write `e // d`."""
    out: list[Expr] = [Binary("//", e, Const(d, e.dtype))]
    if isinstance(e, Binary) and e.op == "//" and isinstance(e.b, Const):
        out.append(Binary("//", e.a, Const(int(e.b.value) * d, e.dtype)))
    return out
