"""The one decision of a sketch: all lengths that are open, together, as points of a table.

Lengths limit each other, by scratchpads, micro-ops and the shapes of copies, so whatever the machine can hold and do is
tabulated once for each sketch and nothing else is ever drawn.  Lengths are divisors of their axes, virtual threads
1, 2 or 4 in all; a part of a tile that is the whole tile is another sketch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product as cartesian
from typing import Any

import numpy as np

from ansor.space.decisions.decision import Decision, Draft, Grid, Phase, Setting, Tile
from ansor.space.decisions.draw import Mask, Matrix
from ansor.space.decisions.factor_tables import PointTable, divisors
from ansor.space.decisions.loops import fill, holes, split_positions
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.state import SplitRel, State

from ..core.config import Config
from ..core.kinds import Memory
from .lane_nest import lane_nest
from .limits import fits
from .machine import config_of

MOST_THREADS = 4
THREADS = (1, 2, 4)


class Tiles(Decision[Grid]):
    """The lengths of all undecided splits of a sketch: one grid."""

    name = Tile.kind
    cpu_weight = 1.0
    phase = Phase.LENGTHS

    def parts(self, sketch: State, setting: Setting) -> Sequence[Grid]:
        table = points(sketch, config_of(setting.target))
        steps = tuple([(position, len(step.lengths)) for position, step in holes(sketch).items()])
        return [Grid(len(sketch.stages) - 1, steps, table)] if table is not None and steps else []

    def draw(self, parts: Sequence[Grid], draft: Draft) -> None:
        for grid in parts:
            draft.rows[:, grid.columns] = grid.table.draw(len(draft.rows), draft.rng)

    def mutate(self, parts: tuple[Grid, ...], rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Goes to a point that differs in one length."""
        if not parts:
            return rows.copy(), np.zeros(len(rows), np.bool_)
        out = rows.copy()
        (grid,) = parts
        out[:, grid.columns], changed = grid.table.moved(rows[:, grid.columns], rng)
        return out, changed


@lru_cache(maxsize=256)
def points(sketch: State, config: Config) -> PointTable | None:
    """All lengths of a sketch that are programs of the machine, None where there is none.

    A column is an undecided length, in the order of the steps.
    """
    opened = holes(sketch)
    rows = _candidates(sketch, opened, config)
    if not len(rows):
        return None
    ends = np.cumsum([0, *[len(step.lengths) for step in opened.values()]])
    lanes = {p: list(rows.T[ends[k] : ends[k + 1]]) for k, p in enumerate(opened)}
    bounds = infer_bounds(fill(sketch, lanes))
    ok = np.broadcast_to(fits(lane_nest(bounds), config) & _parts_are_parts(bounds.state, opened), (len(rows),))
    return PointTable(rows[ok]) if ok.any() else None


def _candidates(sketch: State, opened: Mapping[int, Split], config: Config) -> Matrix:
    """Combinations of divisors whose threads and accumulators are not too many yet: int64 [n, lengths]."""
    rows: Matrix = np.ones((1, 0), np.int64)
    threads = np.ones(1, np.int64)
    sums = np.ones(1, np.int64)
    for position, step in opened.items():
        extent, output = _extent(sketch, position, step), step.stage == len(sketch.stages) - 1
        values = np.array(list(_lengths(extent, len(step.lengths))), np.int64)
        left, right = (x.reshape(-1) for x in np.meshgrid(np.arange(len(rows)), np.arange(len(values)), indexing="ij"))
        rows = np.concatenate([rows[left], values[right]], axis=1)
        threads = threads[left] * (values[right, 0] if values.shape[1] > 1 else 1)
        sums = sums[left] * (values[right, -1] if output else 1)
        # cut after each split: all combinations would be too many to lay out
        kept = (threads <= MOST_THREADS) & (threads * sums <= config.depth(Memory.ACC))
        rows, threads, sums = rows[kept], threads[kept], sums[kept]
    return rows


def _lengths(extent: int, count: int) -> list[tuple[int, ...]]:
    """(length) or (threads, length), all that divide an extent."""
    threads = THREADS if count > 1 else (1,)
    pairs = cartesian(threads, divisors(extent))
    return [(t, n)[2 - count :] for t, n in pairs if extent % (t * n) == 0]


def _extent(sketch: State, position: int, step: Split) -> int:
    """The axis that a split cuts, or a part of which it cuts."""
    stage = sketch.stages[step.stage]
    splits = [rel for rel in stage.relations if isinstance(rel, SplitRel)]
    parent = splits[split_positions(sketch, step.stage).index(position)].parent
    (root,) = root_axes(stage, parent)
    return int((*stage.op.axis, *stage.op.reduce_axis)[root].length)


def _parts_are_parts(bounded: State, opened: Mapping[int, Split]) -> Any:
    """Whether what is cut out of a tile is less than the tile."""
    ok: Any = np.bool_(True)
    for step in opened.values():
        stage = bounded.stages[step.stage]
        if step.extent == 0:
            for rel in stage.relations:
                if isinstance(rel, SplitRel) and stage.vars[rel.parent].kind != "reduce":
                    ok = ok & (np.asarray(stage.vars[rel.children[0]].extent) > 1)
    return ok
