"""Figures of programs on a machine that may be busy: who is faster, and how far apart those of one program may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

MOST_FACTOR = 2.0
"""Times of one program that are further apart were not measured on one quiet machine."""
MANY = 10


def by_turns(figures: Sequence[float]) -> tuple[int, float]:
    """The order of programs that were timed in turns, the fastest first.

    Those with fewer figures left while others were still there, as the slower ones; medians of figures that were taken
    at other times are not compared.
    """
    return -len(figures), median(figures)


def most_figures(figures: Iterable[Sequence[float]]) -> int:
    """How many figures those programs have that were timed in turns to the end."""
    return max(map(len, figures), default=0)


def far_apart(factor: float) -> bool:
    """Whether times of one program, of which one is so many times the other, are not to be compared."""
    return max(factor, 1 / factor) > MOST_FACTOR


def greatest_factor(figures: Sequence[Sequence[float]]) -> float:
    """How many times the least figure of a program its greatest is, for the worst of those that stayed; 1 for none.

    Of `MANY` figures or more the tenth at either end does not count: of many, one has met what is rare.
    """
    most = most_figures(figures)
    return max([_factor(one) for one in figures if len(one) == most > 0], default=1.0)


def _factor(figures: Sequence[float]) -> float:
    ordered = sorted(figures)
    out = len(ordered) // MANY
    return ordered[-1 - out] / ordered[out]
