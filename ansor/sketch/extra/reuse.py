"""How many elements, and lines of a cache, reads touch: what neighbours read in common counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from te_lite.reads import Affine, Form, Quotient, Read, Scaled, Sum, Unknown

LINE_BYTES = 64


def elements(read: Read, extents: Sequence[int]) -> int:
    """How many elements a stage reads while its axes, spatial first, run through `extents`.

    Where an index is unknown, every turn is taken to read another one.
    """
    if any(isinstance(form, Unknown) for form in read.forms):
        return prod(extents)
    return prod([_values(forms, extents) for forms in _apart(read.forms, extents)])


def lines(read: Read, shape: Sequence[int], extents: Sequence[int], size: int) -> int:
    """How many lines hold these elements, of `size` bytes each, of an array of such a shape.

    What lies side by side is counted in lines that it begins.
    """
    count, run = elements(read, extents), 1
    for form, whole in zip(reversed(read.forms), reversed(shape), strict=True):
        found = elements(Read(read.reader, (form,), read.backward), extents)
        run *= found
        if found < whole:
            break
    return -(-count // run) * -(-min(run, count) * size // LINE_BYTES)


def _apart(forms: Sequence[Form], extents: Sequence[int]) -> list[list[Form]]:
    """`forms` in groups that have no axis in common."""
    groups: list[tuple[set[int], list[Form]]] = []
    for form in forms:
        axes, together = {axis for axis in _axes(form) if extents[axis] > 1}, [form]
        for group in [group for group in groups if group[0] & axes]:
            groups.remove(group)
            axes, together = axes | group[0], [*group[1], *together]
        groups.append((axes, together))
    return [together for _, together in groups]


def _values(forms: Sequence[Form], extents: Sequence[int]) -> int:
    """How many values these indices have together."""
    axes = sorted({axis for form in forms for axis in _axes(form) if extents[axis] > 1})
    if len(axes) < 2 and all(isinstance(form, Affine) for form in forms):
        return prod([extents[axis] for axis in axes])
    points = [dict(zip(axes, point, strict=True)) for point in product(*[range(extents[axis]) for axis in axes])]
    return len({tuple([_at(form, point) for form in forms]) for point in points})


def _axes(form: Form) -> set[int]:
    match form:
        case Affine(terms=terms):
            return {axis for axis, _ in terms}
        case Sum(parts=parts):
            return set().union(*map(_axes, parts))
        case Scaled(part=part) | Quotient(part=part):
            return _axes(part)
        case Unknown():
            return set()


def _at(form: Form, point: Mapping[int, int]) -> int:
    """An index where axes that `point` does not name are 0."""
    match form:
        case Affine(terms=terms, const=const):
            return const + sum([c * point.get(axis, 0) for axis, c in terms])
        case Sum(parts=parts, const=const):
            return const + sum([_at(part, point) for part in parts])
        case Scaled(part=part, factor=factor):
            return factor * _at(part, point)
        case Quotient(part=part, divisor=divisor, mod=mod):
            return _at(part, point) % divisor if mod else _at(part, point) // divisor
        case Unknown():
            raise ValueError("an unknown index has no value")
