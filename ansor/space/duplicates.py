"""Which programs are new: rows that make the same programs are one row, known by a 64-bit key.

What has no effect in a program is no reason to measure it again.  A loop of extent 1 may run in parallel, be a lane or
neither; a number of parallel loops may reach beyond those there are.  Where a sketch gives the lengths of all tiles,
most of its rows are such repetitions.

Two different rows of a variant share a key with a chance of 2^-64; then one program is taken for known, and that is
all that happens.  Two rows that differ are taken for two programs; `program_text` tells whether they are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.errors import LowerError
from te_lite.schedule.state import FuseRel, SplitRel, Stage, State

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from .decisions.draw import Mask, Matrix
from .programs import Programs, programs
from .spaces import Group, Variant
from .trace import Replayer

# ------------------------------------------------------------------------------------------------------- canonical rows


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


Keys = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _scatter(x: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), element by element."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    x = x ^ (x >> np.uint64(31))
    return x


def row_keys(rows: Matrix) -> Keys:
    """One key per row, the same on every machine: uint64 [n]."""
    salts = _scatter(np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * _GOLDEN)
    return _scatter(_scatter(rows.astype(np.uint64) + salts).sum(axis=1, dtype=np.uint64))


def first_of_each(keys: Keys) -> Mask:
    """Which elements did not occur before: bool [n]."""
    out = np.zeros(len(keys), np.bool_)
    out[np.unique(keys, return_index=True)[1]] = True
    return out


class Seen:
    """A growing set of programs."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._keys: dict[Variant, Keys] = {}
        for group in groups:
            self.add(group)

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._keys.values())

    def copy(self) -> Seen:
        """A set of the same programs that grows on its own."""
        other = Seen()
        other._keys = dict(self._keys)
        return other

    def add(self, group: Group) -> None:
        known = self._keys.get(group.variant, np.empty(0, np.uint64))
        self._keys[group.variant] = np.union1d(known, row_keys(group.rows))

    def holds(self, group: Group) -> Mask:
        """Which rows of the group are in the set: bool [n]."""
        known = self._keys.get(group.variant)
        if known is None or not len(known):
            return np.zeros(len(group), np.bool_)
        keys = row_keys(group.rows)
        held: Mask = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
        return held

    def take_new(self, group: Group) -> Group:
        """The rows that are not in the set, each once, in their order; they are in the set afterwards."""
        rows = group.rows[~self.holds(group)]
        new = Group(group.variant, rows[first_of_each(row_keys(rows))])
        self.add(new)
        return new


def program_text(state: State, bounds: Bounds | None = None) -> str | None:
    """The printed form with all extents, and what fused loops count: equal for programs that differ by loops of extent
    1 only.

    None for a state that has no bounds; `bounds` are those that are known already.
    """
    try:
        found = (bounds or infer_bounds(state)).state
    except LowerError:
        return None
    return "\n".join([str(found), *[line for stage in found.stages for line in _fused_loops(stage)]])


def _fused_loops(stage: Stage) -> Iterator[str]:
    """What each fused loop counts, the slowest first: `2 // 8 % 4` are 4 values of loop 2, in steps of 8.

    Loops that count on where the last one ends are one; those of extent 1 count nothing.
    """
    for rel in stage.relations:
        if isinstance(rel, FuseRel):
            found: list[tuple[int, int, int]] = []
            for uid in rel.parts:
                extent = _extent(stage, uid)
                loop, step = _counted(stage, uid)
                if found and found[-1][:2] == (loop, step * extent):
                    extent *= found.pop()[2]
                if extent > 1:
                    found.append((loop, step, extent))
            if found:
                yield f"{stage.op.name} {rel.fused}: " + ", ".join(f"{x} // {step} % {n}" for x, step, n in found)


def _counted(stage: Stage, uid: int) -> tuple[int, int]:
    """The axis or fused loop that a loop is a part of, and in which steps it counts it."""
    step = 1
    splits = [r for r in stage.relations if isinstance(r, SplitRel)]
    while rel := next((r for r in splits if uid in r.children), None):
        step *= prod([_extent(stage, x) for x in rel.children[rel.children.index(uid) + 1 :]])
        uid = rel.parent
    return uid, step


def _extent(stage: Stage, uid: int) -> int:
    extent = stage.vars[uid].extent
    assert isinstance(extent, int)
    return extent
