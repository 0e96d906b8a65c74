"""How many elements, and lines of a cache, reads touch: what neighbours read in common counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from te_lite.bounds.reads import Affine, Form, Quotient, Read, Scaled, Sum, Unknown

from ..analysis.own_stages import axes_of

LINE_BYTES = 64
MOST_POINTS = 1 << 16
"""Of axes that several indices have in common; of more, each index is counted by itself."""


@lru_cache(maxsize=4096)
def elements(read: Read, extents: tuple[int, ...]) -> int:
    """How many elements a stage reads while its axes, spatial first, run through `extents`.

    Where an index is unknown, every iteration is taken to read another one.
    """
    if any(isinstance(form, Unknown) for form in read.forms):
        return prod(extents)
    return prod([_values(forms, extents) for forms in _apart(read.forms, extents)])


@lru_cache(maxsize=4096)
def lines(read: Read, shape: tuple[int, ...], extents: tuple[int, ...], size: int) -> int:
    """How many lines hold these elements, of `size` bytes each, of an array of such a shape; rows begin with a line."""
    if not read.forms or any(isinstance(form, Unknown) for form in read.forms):
        return elements(read, extents)
    *before, last = read.forms
    behind, in_line = shape[-1], max(1, LINE_BYTES // size)
    while before and behind < in_line:
        last = Sum((Scaled(before.pop(), behind), last))
        behind *= shape[len(before)]
    return elements(Read(read.reader, (*before, Quotient(last, in_line, mod=False)), read.backward), extents)


def _apart(forms: Sequence[Form], extents: Sequence[int]) -> list[tuple[Form, ...]]:
    """`forms` in groups that have no axis in common."""
    groups: list[tuple[frozenset[int], tuple[Form, ...]]] = []
    for form in forms:
        axes = axes_of(form, extents)
        together: tuple[Form, ...] = (form,)
        for group in [group for group in groups if group[0] & axes]:
            groups.remove(group)
            axes, together = axes | group[0], (*group[1], *together)
        groups.append((axes, together))
    return [together for _, together in groups]


def _values(forms: tuple[Form, ...], extents: tuple[int, ...]) -> int:
    """How many values these indices have together."""
    if len(forms) == 1 and _is_separable(forms[0], extents):
        return len(_reached(forms[0], extents))
    axes = sorted(frozenset().union(*[axes_of(form, extents) for form in forms]))
    points = prod([extents[axis] for axis in axes])
    if points > MOST_POINTS:
        return min(points, prod([_values((form,), extents) for form in forms])) if len(forms) > 1 else points
    grid = dict(zip(axes, np.meshgrid(*[np.arange(extents[axis]) for axis in axes]), strict=True))
    at = np.stack([np.broadcast_to(_at(form, grid), grid[axes[0]].shape).ravel() for form in forms])
    return int(np.unique(at, axis=1).shape[1])


def _is_separable(form: Form, extents: Sequence[int]) -> bool:
    """No two parts of a sum have an axis in common."""
    match form:
        case Sum(parts=parts):
            axes = [axis for part in parts for axis in axes_of(part, extents)]
            return len(axes) == len({*axes}) and all(_is_separable(part, extents) for part in parts)
        case Scaled(part=part) | Quotient(part=part):
            return _is_separable(part, extents)
        case _:
            return True


def _reached(form: Form, extents: Sequence[int]) -> NDArray[np.int64]:
    """The values of a separable index."""
    found = np.zeros(1, np.int64)
    match form:
        case Affine(terms=terms, const=const):
            for axis, c in terms:
                found = np.unique(np.add.outer(found, c * np.arange(extents[axis], dtype=np.int64)))
            return found + const
        case Sum(parts=parts, const=const):
            for part in parts:
                found = np.unique(np.add.outer(found, _reached(part, extents)))
            return found + const
        case Scaled(part=part, factor=factor):
            return np.unique(_reached(part, extents) * factor)
        case Quotient(part=part, divisor=divisor, mod=mod):
            reached = _reached(part, extents)
            return np.unique(reached % divisor if mod else reached // divisor)
        case Unknown():
            raise ValueError("an unknown index has no values")


def _at(form: Form, point: Mapping[int, Any]) -> Any:
    """An index, or one for each point; axes that `point` does not name are 0."""
    match form:
        case Affine(terms=terms, const=const):
            return const + sum([c * point[axis] for axis, c in terms if axis in point])
        case Sum(parts=parts, const=const):
            return const + sum([_at(part, point) for part in parts])
        case Scaled(part=part, factor=factor):
            return factor * _at(part, point)
        case Quotient(part=part, divisor=divisor, mod=mod):
            return _at(part, point) % divisor if mod else _at(part, point) // divisor
        case Unknown():
            raise ValueError("an unknown index has no value")
