"""Random indices: affine in the axes, with negative coefficients, quotients, remainders, and ranges that are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .description import Axes, Expr


def const(value: int) -> Expr:
    return ("const", value, "int32")


@dataclass(frozen=True)
class Index:
    """An integer expression with the range of its values, both ends included."""

    expr: Expr
    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    def plus(self, c: int) -> Index:
        if c == 0:
            return self
        expr = ("+", self.expr, const(c)) if c > 0 else ("-", self.expr, const(-c))
        return Index(expr, self.low + c, self.high + c)

    def times(self, c: int) -> Index:
        ends = sorted((self.low * c, self.high * c))
        return self if c == 1 else Index(("*", self.expr, const(c)), ends[0], ends[1])

    def plus_index(self, other: Index) -> Index:
        return Index(("+", self.expr, other.expr), self.low + other.low, self.high + other.high)

    def from_constant(self, c: int) -> Index:
        """`c` minus this: a backward read."""
        return Index(("-", const(c), self.expr), c - self.high, c - self.low)

    def quotient(self, d: int) -> Index:
        return Index(("//", self.expr, const(d)), self.low // d, self.high // d)

    def remainder(self, d: int) -> Index:
        inside = self.low // d == self.high // d
        low, high = (self.low % d, self.high % d) if inside else (0, d - 1)
        return Index(("%", self.expr, const(d)), low, high)


class Indices:
    """Draws indices over some axes."""

    def __init__(self, rng: np.random.Generator, axes: Axes) -> None:
        self.rng, self.axes = rng, axes

    def axis(self, k: int | None = None) -> Index:
        """One axis, or a constant where there is none."""
        if not self.axes:
            return Index(const(0), 0, 0)
        name, extent = self.axes[int(self.rng.integers(len(self.axes))) if k is None else k]
        return Index(("axis", name), 0, extent - 1)

    def any(self) -> Index:
        """An axis, an affine form of one or two, or a quotient or remainder of one, or a sum of such."""
        out = self._term()
        if self.rng.random() < 0.3:
            out = out.plus_index(self._term())
        if self.rng.random() < 0.3:
            out = out.from_constant(int(self.rng.integers(-2, 12)))
        elif self.rng.random() < 0.2:
            out = out.plus(int(self.rng.integers(-5, 6)))
        if self.rng.random() < 0.15:
            d = int(self.rng.choice([2, 3, 5]))
            out = out.quotient(d) if self.rng.random() < 0.5 else out.remainder(d)
        return out

    def _term(self) -> Index:
        out = self.axis()
        if self.rng.random() < 0.2:
            d = int(self.rng.choice([2, 3, 4, 7]))
            out = out.quotient(d) if self.rng.random() < 0.5 else out.remainder(d)
        if self.rng.random() < 0.35:
            out = out.times(int(self.rng.choice([2, 3, -1, -1, -2])))
        return out

    def within(self, n: int) -> Expr:
        """A random index in `range(n)`."""
        fitting = [k for k, (_, extent) in enumerate(self.axes) if extent == n]
        if fitting and self.rng.random() < 0.4:
            x = self.axis(int(self.rng.choice(fitting)))
            return (x if self.rng.random() < 0.7 else x.from_constant(n - 1)).expr
        return self.fitted(self.any(), n).expr

    def fitted(self, x: Index, n: int) -> Index:
        """`x` moved, divided, wrapped or clamped into `range(n)`."""
        if x.width <= n:
            return x.plus(int(self.rng.integers(0, n - x.width + 1)) - x.low)
        match int(self.rng.integers(4)):
            case 0:
                return x.plus(-x.low).quotient(-(-x.width // n))
            case 1:
                return x.remainder(n)
            case 2:
                return Index(("max", ("min", x.expr, const(n - 1)), const(0)), 0, n - 1)
            case _:
                y = x.plus(-x.low).quotient(-(-x.width // n))
                return y.from_constant(y.high)
