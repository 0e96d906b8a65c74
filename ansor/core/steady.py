"""Figures of programs on a machine that may be busy: who is faster, and how far apart those of one program may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

MOST_FACTOR = 2.0
"""Times of one program that are further apart were not measured on one quiet machine."""


def by_turns(figures: Sequence[float]) -> tuple[int, float]:
    """The order of programs that were timed in turns, the fastest first.

    Those with fewer figures left while others were still there, as the slower ones; medians of figures that were taken
    at other times are not compared.
    """
    return -len(figures), median(figures)


def far_apart(factor: float) -> bool:
    """Whether times of one program, of which one is so many times the other, are not to be compared."""
    return max(factor, 1 / factor) > MOST_FACTOR


def greatest_factor(figures: Iterable[Sequence[float]]) -> float:
    """How many times the least figure of a program its greatest is, for the worst of several programs; 1 for none."""
    return max([max(one) / min(one) for one in figures if len(one)], default=1.0)
