"""Programs of a task carried over to a similar one: the same structure, and for each number the nearest legal one.

Two tasks that are alike up to extents have sketches that differ in lengths only (those of two that are akin in stages
that are inlined, too, see `epilogues.py`), so the steps of a program of one say which sketch, places and numbers it
would have in the other.  Lengths of a tile that do not suit its extents become
those of the row of its table that is nearest by proportion, the outermost loop, which is no column, counting less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.values.options import SketchOptions
from ansor.space.decisions.decision import Choice, Grid, Tile
from ansor.space.decisions.draw import Matrix
from ansor.space.decisions.factor_tables import tile_table
from ansor.space.limits import rows_fit
from ansor.space.programs import Structure, structure
from ansor.space.spaces import Space, Variant, space_of, tables_of_factors
from ansor.space.states import begins, shape_of, variant_of
from te_lite.errors import ScheduleError
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from .epilogues import with_other_epilogue

OUTERMOST = 0.25
"""The weight of the outermost loop of a tile beside a length: a machine has as many threads and registers as before."""
WAYS = 1024
"""Combinations of lengths of tiles among which the nearest is taken that a block has threads for."""

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def carried(
    sketches: Sequence[State],
    steps: Sequence[Step],
    target: Target,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
    epilogues: tuple[Collection[int], Collection[int]] = ((), ()),
) -> tuple[Variant, np.ndarray] | None:
    """The variant and row (int64 [width]) of a task with these sketches that is nearest to the program of another one.

    Of several sketches that begin as the steps do the longest one made them.  `epilogues` are the stages that only the
    other task has, and only this one (`epilogues.py`).  None when there is no such sketch, or the row would not fit the
    machine.
    """
    hardware = hardware.completed(target)
    for sketch in sorted(sketches, key=lambda sketch: -len(sketch.steps)):
        mine = with_other_epilogue(steps, epilogues[0], sketch.steps, epilogues[1])
        if mine is not None and begins(sketch.steps, mine):
            factors = tuple([(p, _nearest(table, mine[p])) for p, table in tables_of_factors(sketch, options).items()])
            space = space_of(sketch, target, hardware, options, factors)
            found = _carried(space, mine, hardware)
            if found is not None:
                return found
    return None


def _nearest(table: Sequence[int], step: Step) -> int:
    """The factor of a table that is nearest to that of a split."""
    assert isinstance(step, Split) and isinstance(step.lengths[0], int)
    return _nearest_value(table, step.lengths[0])


def _nearest_value(values: Sequence[int], number: int) -> int:
    return int(values[int(np.argmin(np.abs(_logs(values) - _logs([number]))))])


def _logs(numbers: Sequence[int] | Matrix) -> Numbers:
    out: Numbers = np.log2(np.asarray(numbers, np.float64) + 1e-3)
    return out


def _carried(space: Space, steps: Sequence[Step], hardware: HardwareParams) -> tuple[Variant, np.ndarray] | None:
    variant, shape = variant_of(space, steps), shape_of(space, steps)
    if variant is None:
        return None
    try:
        found = structure(variant, hardware, shape)
    except ScheduleError:
        return None
    row = _read(space, found, steps)
    given = {name: dict(numbers) for name, numbers in shape}
    for part in space.parts:
        match part:
            case Grid(table=table):
                away = np.abs(_logs(table.points) - _logs(row[part.columns])).sum(axis=1)
                row[part.columns] = table.points[int(np.argmin(away))]
            case Choice(kind=kind, stage=stage, column=column, values=values):
                number = given[kind].get(stage, 0) if kind in given else int(row[column])
                row[column] = _nearest_value(values, number)
    rows = _with_lengths(space, row, steps)
    fits = np.flatnonzero(rows_fit(space, rows, hardware))
    return (variant, rows[fits[0]]) if len(fits) else None


def _read(space: Space, found: Structure, steps: Sequence[Step]) -> Matrix:
    """The numbers of the steps, int64 [width]; 0 where they have none.

    Behind the sketch a step is known by its kind and stage: there may be more or fewer of them, as where vectors fit.
    """
    row: Matrix = np.zeros(space.width, np.int64)
    behind = list(steps[len(space.sketch.steps) :])
    for position, (decision, columns) in sorted(found.holes.items()):
        pattern, step = found.state.steps[position], steps[position] if position < len(steps) else None
        if position >= len(space.sketch.steps):
            alike = [s for s in behind if type(s) is type(pattern) and s.stages == pattern.stages and decision.read(s)]
            step = alike[0] if alike else None
            behind = [s for s in behind if s is not step]
        numbers = [x for x in (decision.read(step) if step is not None else None) or () if isinstance(x, int)]
        if len(numbers) == len(columns):
            row[list(columns)] = numbers
    return row


def _with_lengths(space: Space, row: Matrix, steps: Sequence[Step]) -> Matrix:
    """The row with legal lengths of its tiles, in many ways, the nearest first: int64 [n, width]."""
    rows, away = row[None], np.zeros(1)
    most = int(WAYS ** (1 / max(len(space.tiles), 1)))
    for tile in space.tiles:
        table, distances = _lengths(tile, row[tile.columns], steps[tile.step])
        near = np.argsort(distances, kind="stable")[:most]
        rows, away = np.repeat(rows, len(near), axis=0), np.add.outer(away, distances[near]).reshape(-1)
        rows[:, tile.columns] = np.tile(table[near], (len(rows) // len(near), 1))
    found: Matrix = rows[np.argsort(away, kind="stable")]
    return found


def _lengths(tile: Tile, lengths: Matrix, step: Step) -> tuple[Matrix, Numbers]:
    """The legal lengths of a tile, and how far in proportion each is from those of a split of another loop."""
    table = tile_table(tile.extents, tile.parts, tile.max_innermost)
    away: Numbers = np.square(_logs(table) - _logs(lengths)).sum(axis=1)
    if isinstance(step, Split) and step.extent > 0:
        outer = np.log2(step.extent / max(lengths.prod(), 1))
        away = away + OUTERMOST * np.square(np.log2(tile.extents[0] / table.prod(axis=1)) - outer)
    return table, away
