"""Indices as sums of scaled atoms and a constant; an atom is a number, and equal atoms have the same one.

Atoms are loop variables, quotients, remainders, and whatever is no sum.  What a divisor divides stands outside of
quotients, and nowhere in remainders, so equal quotients and remainders are written in the same way:
(a*19 + b) // 3 is a*6 + (a + b) // 3.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from .expr import Binary, Const, Expr, Var
from .verify_span import INDICES, Span, Spans, of_quotient, of_remainder
from .visit import walk

Sum = dict[int, int]
"""The coefficients of atoms."""


@dataclass(frozen=True, slots=True)
class Link:
    """The sum `terms` (+ `constant`) is `den` times the atom `quotient` plus the atom `remainder`."""

    terms: Sum
    constant: int
    den: int
    quotient: int
    remainder: int


class Forms:
    """The sums of one place of a program: `ends` are the spans of its atoms, `links` tell of what is divided.

    Inner links stand before those of sums that their atoms are in.
    """

    def __init__(self, spans: Spans) -> None:
        self.ends: list[Span] = []
        self.links: dict[Hashable, Link] = {}
        self._spans = spans
        self._atoms: dict[Expr, int] = {}
        self._known: dict[int, tuple[Expr, Sum, int]] = {}

    def of(self, e: Expr) -> tuple[Sum, int]:
        """An index as a sum, which stays as it is."""
        known = self._known.get(id(e))
        if known is None:
            terms: Sum = {}
            constant = self._add(e, 1, terms)
            known = self._known[id(e)] = (e, terms, constant)
        return known[1], known[2]

    def difference(self, a: Expr, b: Expr) -> tuple[Sum, int]:
        """`a - b` as a sum."""
        terms: Sum = {}
        constant = self._add(a, 1, terms) + self._add(b, -1, terms)
        return terms, constant

    def _add(self, e: Expr, scale: int, terms: Sum) -> int:
        """Add `scale * e` to `terms`; its constant part is returned."""
        match e:
            case Const(value=value):
                return int(value) * scale
            case Binary() if e.dtype not in INDICES:
                pass
            case Binary(op="+", a=a, b=b):
                return self._add(a, scale, terms) + self._add(b, scale, terms)
            case Binary(op="-", a=a, b=b):
                return self._add(a, scale, terms) + self._add(b, -scale, terms)
            case Binary(op="*", a=a, b=Const(value=value)) | Binary(op="*", a=Const(value=value), b=a):
                return self._add(a, scale * int(value), terms)
            case Binary(op="//" | "%" as op, a=a, b=Const(value=value)) if value > 0:
                inner, constant = self.divided(op, *self.of(a), int(value))
                add(terms, inner, scale)
                return scale * constant
        add(terms, {self._atom(e): 1}, scale)
        return 0

    def divided(self, op: str, terms: Sum, constant: int, den: int) -> tuple[Sum, int]:
        """The quotient or remainder of a sum."""
        high = {e: k // den if k > 0 else -(-k // den) for e, k in terms.items()}
        low = {e: k - high[e] * den for e, k in terms.items() if k != high[e] * den}
        more, left = divmod(constant, den)
        link = self._link(low, left, den) if low else None
        if op == "%":
            return ({}, left) if link is None else ({link.remainder: 1}, 0)
        out = {e: k for e, k in high.items() if k}
        if link is not None:
            out[link.quotient] = 1
        return out, more

    def _link(self, terms: Sum, constant: int, den: int) -> Link:
        key = (frozenset(terms.items()), constant, den)
        found = self.links.get(key)
        if found is None:
            low = constant - greatest({e: -c for e, c in terms.items()}, self.ends)
            span, by = (low, constant + greatest(terms, self.ends)), (den, den)
            atoms = [self._new(of_quotient(span, by)), self._new(of_remainder(span, by))]
            found = self.links[key] = Link(terms, constant, den, *atoms)
        return found

    def _new(self, span: Span | None) -> int:
        assert span is not None, "no divisor is 0"
        self.ends.append(span)
        return len(self.ends) - 1

    def _atom(self, e: Expr) -> int:
        found = self._atoms.get(e)
        if found is None:
            if not isinstance(e, Var):
                self._note_divided(e)
            found = self._atoms[e] = self._new(self._spans.of(e))
        return found

    def _note_divided(self, e: Expr) -> None:
        """Make links of what is divided somewhere inside an atom."""
        for x in walk(e):
            match x:
                case Binary(op="//" | "%" as op, a=a, b=Const(value=value)) if a.dtype in INDICES and value > 0:
                    self.divided(op, *self.of(a), int(value))


def add(terms: Sum, other: Sum, k: int) -> None:
    """Add `k * other` to `terms`."""
    for e, c in other.items():
        rest = terms.get(e, 0) + k * c
        if rest:
            terms[e] = rest
        else:
            terms.pop(e, None)


def plus(terms: Sum, other: Sum, k: int) -> Sum:
    """`terms + k * other`."""
    out = dict(terms)
    add(out, other, k)
    return out


def greatest(terms: Sum, ends: list[Span]) -> int:
    """The greatest value over the spans of the atoms."""
    return sum([c * ends[e][c > 0] for e, c in terms.items()])
