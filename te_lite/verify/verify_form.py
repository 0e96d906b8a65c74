"""Indices as sums of scaled atoms and a constant; an atom is a number, and equal atoms have the same one.

Atoms are loop variables, quotients, remainders, and whatever is no sum.  What a divisor divides stands outside of
quotients, and nowhere in remainders, and a quotient of a sum with a quotient is one by the product of the divisors, so
equal quotients and remainders are written in the same way: (a*19 + b) // 3 is a*6 + (a + b) // 3, and
(a*8 + b // 16) // 115 is (a*128 + b) // 1840.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..expr.expr import Binary, Const, Expr, Var
from ..expr.visit import free_vars, walk
from .verify_points import Values, computable, value_at
from .verify_span import INDICES, Span, Spans, quotient_span, remainder_span

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


@dataclass(frozen=True, slots=True)
class _Divided:
    """The quotient (`//`) or remainder (`%`) of a sum by a number."""

    op: str
    terms: Sum
    constant: int
    den: int


class Forms:
    """The sums of a program."""

    def __init__(self) -> None:
        self.by_remainder: dict[int, Link] = {}
        self._by_quotient: dict[int, Link] = {}
        self._links: list[Link] = []
        self._inside: dict[int, list[int]] = {}
        self._by_sum: dict[tuple[frozenset[tuple[int, int]], int, int], Link] = {}
        self._atoms: list[Expr | _Divided] = []
        self._numbers: dict[Expr, int] = {}
        self._known: dict[int, tuple[Expr, Sum, int]] = {}
        self._variables: dict[int, frozenset[Var]] = {}
        self._ends: dict[int, Ends] = {}
        self.parts: dict[int, Sum] = {}
        self._by_part: dict[frozenset[tuple[int, int]], int] = {}

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

    # ------------------------------------------------------------------------------------------------- quotients

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
        found = self._by_sum.get(key)
        if found is None:
            quotient = self._quotient(terms, constant, den)
            remainder = self._new(_Divided("%", terms, constant, den))
            found = self._by_sum[key] = Link(terms, constant, den, quotient, remainder)
            self.by_remainder[remainder] = found
            self._by_quotient.setdefault(quotient, found)
            for atom in (quotient, remainder):
                self._inside.setdefault(atom, [len(self._links)])
            self._links.append(found)
        return found

    def _quotient(self, terms: Sum, constant: int, den: int) -> int:
        """The atom of a quotient; that of (a + b // k) // den is that of (a*k + b) // (k*den)."""
        for atom, k in terms.items():
            inner = self._by_quotient.get(atom)
            if inner is not None and k == 1:
                whole = plus(inner.terms, plus(terms, {atom: 1}, -1), inner.den)
                out, more = self.divided("//", whole, inner.constant + constant * inner.den, inner.den * den)
                if not more and list(out.values()) == [1]:
                    return next(iter(out))
        return self._new(_Divided("//", terms, constant, den))

    def links(self, sums: Iterable[Sum]) -> tuple[Link, ...]:
        """What is divided anywhere in some sums, inner sums before those of which they are atoms."""
        found: set[int] = set()
        todo = [atom for terms in sums for atom in terms]
        while todo:
            for k in self._inside.get(todo.pop(), ()):
                if k not in found:
                    found.add(k)
                    todo.extend(self._links[k].terms)
        return tuple([self._links[k] for k in sorted(found)])

    # ----------------------------------------------------------------------------------------------------- atoms

    def part(self, terms: Sum) -> int:
        """An atom that is the sum of `terms`, which `parts` gives back."""
        key = frozenset(terms.items())
        found = self._by_part.get(key)
        if found is None:
            found = self._by_part[key] = self._new(_Divided("//", terms, 0, 1))
            self.parts[found] = terms
        return found

    def _new(self, atom: Expr | _Divided) -> int:
        self._atoms.append(atom)
        return len(self._atoms) - 1

    def _atom(self, e: Expr) -> int:
        found = self._numbers.get(e)
        if found is None:
            sums = [] if isinstance(e, Var) else [self.of(x)[0] for x in walk(e) if _is_divided(x)]
            found = self._numbers[e] = self._new(e)
            self._inside[found] = [k for terms in sums for atom in terms for k in self._inside.get(atom, ())]
        return found

    def is_variable(self, atom: int, var: Var) -> bool:
        return self._atoms[atom] is var

    def variables(self, atom: int) -> frozenset[Var]:
        """The loop variables that an atom depends on."""
        found = self._variables.get(atom)
        if found is None:
            e = self._atoms[atom]
            own = map(self.variables, e.terms) if isinstance(e, _Divided) else [free_vars(e)]
            found = self._variables[atom] = frozenset[Var]().union(*own)
        return found

    def computable(self, atom: int, spans: Spans) -> bool:
        """Whether the value of an atom is known at a point of the loops."""
        e = self._atoms[atom]
        if isinstance(e, _Divided):
            return all(self.computable(x, spans) for x in e.terms)
        return computable(e, spans)

    def value(self, atom: int, grid: Mapping[Var, Values]) -> Values:
        """The values of a computable atom at the points of `grid`."""
        e = self._atoms[atom]
        if not isinstance(e, _Divided):
            return value_at(e, grid)
        total = sum([self.value(x, grid) * c for x, c in e.terms.items()], e.constant)
        return total // e.den if e.op == "//" else total % e.den

    def ends(self, spans: Spans) -> Ends:
        """The spans of the atoms in one place of the program."""
        found = self._ends.get(id(spans))
        if found is None:
            found = self._ends[id(spans)] = Ends(self._atoms, spans)
        return found


def _is_divided(e: Expr) -> bool:
    match e:
        case Binary(op="//" | "%", b=Const(value=value)):
            return e.dtype in INDICES and value > 0
    return False


class Ends(dict[int, Span]):
    """The spans of atoms, each looked at once."""

    def __init__(self, atoms: list[Expr | _Divided], spans: Spans) -> None:
        super().__init__()
        self._atoms = atoms
        self._spans = spans

    def narrowed(self, to: Mapping[int, Span]) -> Ends:
        """The same, with the spans of some atoms as given."""
        found = Ends(self._atoms, self._spans)
        found.update(self)
        found.update(to)
        return found

    def __missing__(self, atom: int) -> Span:
        e = self._atoms[atom]
        found = self[atom] = self._of_divided(e) if isinstance(e, _Divided) else self._spans.of(e)
        return found

    def _of_divided(self, e: _Divided) -> Span:
        low = e.constant - greatest({x: -c for x, c in e.terms.items()}, self)
        span, by = (low, e.constant + greatest(e.terms, self)), (e.den, e.den)
        found = quotient_span(span, by) if e.op == "//" else remainder_span(span, by)
        assert found is not None, "no divisor is 0"
        return found


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


def greatest(terms: Sum, ends: Ends) -> int:
    """The greatest value over the spans of the atoms."""
    return sum([c * ends[e][c > 0] for e, c in terms.items()])
