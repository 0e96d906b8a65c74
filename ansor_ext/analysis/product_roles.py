"""Sums of products of two reads, and what their axes are in the product.

    sum over ..., k of  a[..., m + ..., ..., k] * b[..., k, ..., n]

    rows, columns   the axes that only the first, or only the second, factor has
    terms           those that are summed over; the others are loops around the product

Along a row or column, and along the terms, a factor that is multiplied in tiles is read in steps of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from te_lite.bounds.reads import Affine, Read, reads_by
from te_lite.extensions import installed_part
from te_lite.schedule.state import State

from .own_stages import axes_read, extents_of, runs_of

FILLED = 64
"""Rows of a group of warps."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Stage `stage` is read as a factor, its dimension `side` along the rows or columns, `terms` along the sum.

    With `reindexed` they are dimensions of a copy that has the axes of the read (`ansor_ext/axes/steps.py`).
    `last` is the dimension whose elements are neighbours in memory.
    """

    stage: int
    side: int
    terms: int
    last: int
    reindexed: bool = False


def factors_read(state: State, k: int) -> list[tuple[int, Read]] | None:
    """The two stages that stage `k` reads, each in one way, and how; None where it reads otherwise."""
    reads = reads_by(k, state.ops)
    return reads if len(reads) == 2 and len({p for p, _ in reads}) == 2 else None


def joinable(state: State, k: int, always: bool = False) -> tuple[int, int] | None:
    """The neighbouring axes, first and count, of one factor of stage `k` alone that are rows or columns as one axis.

    They are those of most points; None where there are none, or the last of them fills tiles of `FILLED` already, if
    not `always`.
    """
    reads, op = factors_read(state, k), state.stages[k].op
    extents, space = extents_of(op), len(op.axis)
    sides = None if reads is None else sides_of(reads[0][1], reads[1][1], extents, space)
    if sides is None:
        return None
    runs = [run for own in (sides.rows, sides.columns) for run in runs_of(own)]
    runs = [run for run in runs if (len(run) > 1 if always else extents[run[-1]] % FILLED)]
    longest = max(runs, key=lambda run: prod([extents[axis] for axis in run]), default=[])
    return (longest[0], len(longest)) if len(longest) > 1 else None


def on_tensor_cores(target: Any, state: State, k: int) -> bool:
    """Whether stage `k` is a product for tensor cores of the target, and what multiplies on these is installed."""
    roles_of = installed_part("on_tensor_cores")
    return roles_of is not None and roles_of(target, state, k) is not None


@dataclass(frozen=True, slots=True)
class Sides:
    """The axes of a product, ascending: those of the first factor alone, of the second alone, and of the sum."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    terms: tuple[int, ...]


def sides_of(a: Read, b: Read, extents: Sequence[int], space: int) -> Sides | None:
    """The axes of a sum of products of two reads, of a stage whose first `space` axes are spatial.

    None when one side has none, or an axis of the sum is not in both factors.
    """
    of_a, of_b = axes_read(a, extents), axes_read(b, extents)
    rows, columns = [tuple(sorted([d for d in own if d < space])) for own in (of_a - of_b, of_b - of_a)]
    terms = tuple(sorted([d for d in of_a & of_b if d >= space]))
    summed = tuple([d for d in range(space, len(extents)) if extents[d] > 1])
    return Sides(rows, columns, terms) if rows and columns and terms and terms == summed else None


def factor_of(stage: int, read: Read, side: int, terms: int, extents: Sequence[int]) -> Factor | None:
    """The dimensions of a factor along two of the axes, each in steps of 1 in a dimension of its own."""
    found: dict[int, int] = {}
    for d, form in enumerate(read.forms):
        if not isinstance(form, Affine) or any(c < 0 for _, c in form.terms):
            return None
        for axis, step in form.terms:
            if axis in (side, terms):
                if axis in found or step != 1:
                    return None
                found[axis] = d
    apart = len(set(found.values())) == 2
    return Factor(stage, found[side], found[terms], len(read.forms) - 1) if apart else None
