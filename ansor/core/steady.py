"""How far apart figures of one program may be that were measured on one quiet machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_FACTOR = 2.0
"""Times of one program that are further apart were not measured on one quiet machine."""


def far_apart(factor: float) -> bool:
    """Whether times of one program, of which one is so many times the other, are not to be compared."""
    return max(factor, 1 / factor) > MOST_FACTOR


def greatest_factor(figures: Iterable[Sequence[float]]) -> float:
    """How many times the least figure of a program its greatest is, for the worst of several programs; 1 for none."""
    return max([max(one) / min(one) for one in figures if len(one)], default=1.0)
