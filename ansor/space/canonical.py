"""Rows that make the same programs, as one row: what has no effect in a program is no reason to measure it again.

A loop of extent 1 may run in parallel, be a lane or neither; a number of parallel loops may reach beyond those there
are.  Where a sketch gives the lengths of all tiles, most of its rows are such repetitions.
"""

from __future__ import annotations

from typing import Any

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from .choices import Variant
from .decisions.draw import Matrix
from .programs import Programs, programs
from .replayed import Replayer

Place = tuple[str, int]
"""A kind of decision and a stage."""


def canonical(variant: Variant, rows: Matrix, target: Target, hardware: HardwareParams) -> Matrix:
    """`rows` (int64 [n, width]) with the least numbers of the same programs, up to loops of extent 1."""
    made = programs(variant, rows, target, hardware)
    replayed = _NUMBERS.replayed(made, hardware)
    if replayed is None:
        lanes, (places, always) = _simplest(made, hardware)
    else:
        lanes, (places, always) = replayed.lanes(slice(0, len(rows))), replayed.meaning
    found = {**always, **dict(zip(places, lanes, strict=True))}
    out: Matrix = rows.copy()
    for c in variant.space.choices:
        out[:, c.column] = found.get((c.kind, c.stage), c.values[0])
    return out


Meaning = tuple[list[Place], dict[Place, int]]


def _simplest(programs: Programs, hardware: HardwareParams) -> tuple[list[Any], Meaning]:
    """The least numbers as lanes, of which kinds and stages they are, and the numbers that all programs have."""
    found = {
        (kind.name, k): number
        for kind in programs.decisions
        for k, number in kind.simplest(programs.of(kind.name), programs.bounds).items()
    }
    always = {place: number for place, number in found.items() if isinstance(number, int)}
    lanes = {place: number for place, number in found.items() if place not in always}
    return [*lanes.values()], ([*lanes], always)


_NUMBERS: Replayer[Meaning] = Replayer(_simplest)
