"""Regions of index values, on ints and on lanes alike.

A region is an interval `[min, min + extent)`.  Its `min` is linear in atoms: loops that are fixed while the region
is looked at, or quotients and remainders of such.  Coefficients, constants and extents are ints or int64 lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..expr.lanes import both, ceildiv, gcd, larger, smaller, where


@dataclass(frozen=True, slots=True)
class LoopAtom:
    """The value of a loop in a region: iterator `uid` of stage `stage`, running through `0 .. extent-1`."""

    stage: int
    uid: int
    extent: Any = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class DivAtom:
    """`base // divisor` (or `base % divisor` with `mod`); values in `low .. low + extent - 1`."""

    base: Linear
    divisor: Any
    mod: bool
    low: Any
    extent: Any


Atom = LoopAtom | DivAtom


@dataclass(frozen=True, slots=True)
class Linear:
    """`const + sum of coefficient * atom`."""

    terms: dict[Atom, Any]
    const: Any = 0

    def add(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            terms[atom] = terms[atom] + c if atom in terms else c
        return Linear(terms, self.const + other.const)

    def scale(self, factor: Any) -> Linear:
        return Linear({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    def loops(self) -> set[tuple[int, int]]:
        """The iterators `(stage, uid)` that it depends on (those with a coefficient, an int, that is not 0)."""
        found: set[tuple[int, int]] = set()
        for atom in [a for a, c in self.terms.items() if c != 0]:
            found |= atom.base.loops() if isinstance(atom, DivAtom) else {(atom.stage, atom.uid)}
        return found

    def range(self) -> tuple[Any, Any]:
        """The smallest and the largest value over all values of the atoms."""
        low = high = self.const
        for atom, c in self.terms.items():
            first = atom.low if isinstance(atom, DivAtom) else 0
            a, b = c * first, c * (first + atom.extent - 1)
            low, high = low + smaller(a, b), high + larger(a, b)
        return low, high


ZERO = Linear({})


@dataclass(frozen=True, slots=True)
class Region:
    """`min .. min + extent - 1`."""

    min: Linear
    extent: Any

    def add(self, other: Region) -> Region:
        return Region(self.min.add(other.min), self.extent + other.extent - 1)

    def scale(self, factor: int) -> Region:
        """The hull of all multiples; a negative factor turns the interval round."""
        return self.multiple(factor, backward=factor < 0)

    def multiple(self, factor: Any, backward: bool) -> Region:
        """The hull of all multiples by a factor of any kind, which is negative, in some lane, only if `backward`."""
        low, reach = self.min.scale(factor), self.extent - 1
        if backward:
            low = low.add(Linear({}, smaller(factor, 0) * reach))
        return Region(low, reach * abs(factor) + 1)

    def shift(self, const: Any) -> Region:
        return Region(self.min.add(Linear({}, const)), self.extent)


def _offset(base: Linear, divisor: Any) -> Any:
    """The largest possible `base % divisor`, from the common divisor of the coefficients of loops that run."""
    step: Any = 0
    for atom, c in base.terms.items():
        step = gcd(step, where(atom.extent == 1, 0, abs(c)) if isinstance(atom, LoopAtom) else abs(c))
    period = gcd(step, divisor)
    return divisor - period + base.const % period


def _quotient(base: Linear, divisor: Any) -> Linear:
    if not base.terms:
        return Linear({}, base.const // divisor)
    low, high = base.range()
    low = low // divisor
    return Linear({DivAtom(base, divisor, False, low, high // divisor - low + 1): 1})


def floordiv(region: Region, divisor: Any) -> Region:
    """The hull of the quotients."""
    extent = (_offset(region.min, divisor) + region.extent - 1) // divisor + 1
    return Region(_quotient(region.min, divisor), extent)


def floormod(region: Region, divisor: Any) -> Region:
    """The hull of the remainders: tight when the interval never crosses a multiple of the divisor."""
    tight = _offset(region.min, divisor) + region.extent <= divisor
    if region.min.terms:
        low = Linear({DivAtom(region.min, divisor, True, 0, divisor): where(tight, 1, 0)})
    else:
        low = Linear({}, where(tight, region.min.const % divisor, 0))
    return Region(low, where(tight, region.extent, divisor))


def unite(a: Region, b: Region) -> Region:
    """The hull of two intervals; exact when their minima differ by a constant."""
    low, high = _difference(b.min, a.min).range()
    first = smaller(low, 0)
    extent = larger(a.extent, high + b.extent) - first
    return Region(a.min.add(Linear({}, first)), extent)


def _difference(a: Linear, b: Linear) -> Linear:
    return a.add(b.scale(-1))


def clip(region: Region, size: int) -> Region:
    """The whole dimension `0 .. size-1` where the region surely covers it, else the region."""
    low, high = region.min.range()
    covers = both(high <= 0, low + region.extent >= size)
    return chosen(covers, Region(ZERO, size), region)


def chosen(cond: Any, a: Region, b: Region) -> Region:
    """`a` where `cond`, else `b`, whose terms stay with the coefficient 0: for one program as for many."""
    low = a.min.scale(where(cond, 1, 0)).add(b.min.scale(where(cond, 0, 1)))
    return Region(low, where(cond, a.extent, b.extent))


def _itself(x: Any) -> Any:
    return x


def start_span(start: Linear, moves: Callable[[LoopAtom], Any], number: Callable[[Any], Any] = _itself) -> Any:
    """How far the start of a region goes when each loop goes `moves` of it (the int 0: it is invariant).

    `number` reads coefficients and divisors.
    """
    total: Any = 0
    for atom, c in start.terms.items():
        steps = moves(atom) if isinstance(atom, LoopAtom) else start_span(atom.base, moves, number)
        if isinstance(steps, int) and steps == 0:
            continue
        if not isinstance(atom, LoopAtom):
            divisor = number(atom.divisor)
            steps = smaller(steps, divisor - 1) if atom.mod else ceildiv(steps, divisor)
        total = total + abs(number(c)) * steps
    return total


def start_step(start: Linear, loop: tuple[int, int]) -> Any:
    """How far the start of a region goes when a loop goes from 0 to 1: back if negative; quotients are rounded up."""
    total: Any = 0
    for atom, c in start.terms.items():
        if isinstance(atom, LoopAtom):
            total = total + c if (atom.stage, atom.uid) == loop else total
            continue
        step = start_step(atom.base, loop)
        if isinstance(step, int) and step == 0:
            continue
        far = smaller(abs(step), atom.divisor - 1) if atom.mod else ceildiv(abs(step), atom.divisor)
        total = total + c * np.sign(step) * far
    return total
