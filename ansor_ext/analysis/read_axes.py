"""Which axes of a stage its reads move along, and how far these go."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite.bounds.reads import Affine, Form, Quotient, Read, Scaled, Sum
from te_lite.computation.tensor import Operation


def extents_of(op: Operation) -> list[int]:
    """The extents of the axes of a stage, spatial first; 2 stands for one that varies."""
    return [v.extent if isinstance(v.extent, int) else 2 for v in (*op.axis, *op.reduce_axis)]


def axes_of(form: Form, extents: Sequence[int]) -> frozenset[int]:
    """The numbers of the reader's axes (of these extents) that an index depends on; empty for an unknown index.

    An axis that is divided by its extent or more (`f // channels` with one group) does not count.
    """
    match form:
        case Affine(terms=terms):
            return frozenset([axis for axis, _ in terms if extents[axis] > 1])
        case Sum(parts=parts):
            return frozenset().union(*[axes_of(p, extents) for p in parts])
        case Quotient(part=Affine(terms=((axis, 1),), const=0), divisor=divisor, mod=False) if extents[axis] <= divisor:
            return frozenset()
        case Scaled(part=part) | Quotient(part=part):
            return axes_of(part, extents)
        case _:
            return frozenset()


def axes_read(read: Read, extents: Sequence[int]) -> frozenset[int]:
    """The axes, of these extents, that a read depends on."""
    return frozenset().union(*[axes_of(form, extents) for form in read.forms])


def runs_of(axes: Sequence[int]) -> list[list[int]]:
    """Ascending axes, cut where two do not follow each other."""
    runs: list[list[int]] = []
    for axis in axes:
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs
