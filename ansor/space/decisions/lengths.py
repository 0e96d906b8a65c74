"""The lengths of the tiles of a sketch: its splits with undecided lengths.

Every tile is uniform over its table of factorisations, or where it may run over the edge, over its extents and then
over those of one; on a GPU those that make the threads of a kernel are drawn together by the counts of their
`ThreadPlan`, so that nothing is rejected and nothing that fits is excluded.  Those of a product on tensor cores are a
grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.storage import storage_class
from te_lite.extensions import part
from te_lite.later import when_called
from te_lite.schedule.state import REDUCE, SplitRel, State

from ...core.errors import TaskError
from ...core.target.hardware import HardwareParams
from .decision import Decision, Draft, Grid, Phase, Setting, Tile
from .draw import Mask, Matrix
from .factor_moves import move_factors
from .factor_tables import draw_tiles, padded_extents
from .loops import holes, split_positions

# What a GPU alone has.
thread_splits: Callable[[State], dict[int, tuple[int, ...]]] = when_called(
    "ansor.space.decisions.thread_plans", "thread_splits"
)
kernels: Callable[[State, tuple[Tile, ...], HardwareParams], tuple[Any, ...]] = when_called(
    "ansor.space.decisions.thread_plans", "kernels"
)


def grids_of(sketch: State, hardware: HardwareParams) -> list[Grid]:
    """Lengths of a sketch that are decided together: those of products in the fragments of tensor cores."""
    grids = part("grids") if any(storage_class(s.op.scope) == "fragment" for s in sketch.stages) else None
    return [] if grids is None else list(grids(sketch, hardware))


class Lengths(Decision[Tile | Grid]):
    """The lengths of each undecided split, one column each."""

    name = Tile.kind
    cpu_weight = 0.90
    gpu_weight = 0.90
    phase = Phase.LENGTHS

    def parts(self, sketch: State, setting: Setting) -> Sequence[Tile | Grid]:
        """Raises TaskError when a split without lengths has no known extent."""
        gpu, options = setting.target.is_gpu, setting.options
        threaded = {p for positions in thread_splits(sketch).values() for p in positions} if gpu else set()
        owner = {p: (k, n) for k in range(len(sketch.stages)) for n, p in enumerate(split_positions(sketch, k))}
        products = grids_of(sketch, setting.hardware) if gpu else []
        together = {position for grid in products for position in grid.splits}
        out: list[Tile | Grid] = []
        for position, step in holes(sketch).items():
            if position in together:
                continue
            require(step.extent > 0, TaskError, "space", "a split without lengths needs an extent", step=step)
            k, n = owner[position]
            relation = [rel for rel in sketch.stages[k].relations if isinstance(rel, SplitRel)][n]
            reduce = sketch.stages[k].vars[relation.parent].kind == REDUCE
            most = options.max_innermost_reduce_factor if reduce and not gpu else options.max_innermost_split_factor
            levels = _levels(len(step.lengths), position in threaded)
            padding = options.max_padding if gpu or not reduce else 0
            extents = padded_extents(step.extent, padding)
            out.append(Tile(position, k, extents, 0, len(step.lengths), most, reduce, levels))
        return [*out, *products]

    def draw(self, parts: Sequence[Tile | Grid], draft: Draft) -> None:
        rows, rng, setting = draft.rows, draft.rng, draft.setting
        threaded: set[int] = set()
        tiles = _tiles(parts)
        for grid in [p for p in parts if isinstance(p, Grid)]:
            rows[:, grid.columns] = grid.table.draw(len(rows), rng)
        for kernel in kernels(draft.sketch, tiles, setting.hardware) if setting.target.is_gpu else ():
            for tile, drawn in zip(kernel.tiles, kernel.plan.draw(len(rows), rng), strict=True):
                rows[:, tile.columns] = drawn
                threaded.add(tile.step)
        for tile in [] if draft.small else [t for t in tiles if t.step not in threaded]:
            rows[:, tile.columns] = draw_tiles(tile.extents, tile.parts, tile.max_innermost, len(rows), rng)

    def mutate(self, parts: tuple[Tile | Grid, ...], rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Moves a factor of a tile, or goes to a point of a grid that differs in one length."""
        tiles, grids = _tiles(parts), [p for p in parts if isinstance(p, Grid)]
        if not grids:
            return move_factors(tiles, rows, rng)
        chosen = rng.integers(len(tiles) + len(grids), size=len(rows))
        out, changed = rows.copy(), np.zeros(len(rows), np.bool_)
        mine = np.flatnonzero(chosen >= len(grids))
        out[mine], changed[mine] = move_factors(tiles, rows[mine], rng)
        for k, grid in enumerate(grids):
            mine = np.flatnonzero(chosen == k)
            out[mine, grid.columns], changed[mine] = grid.table.moved(rows[mine, grid.columns], rng)
        return out, changed

    def fits(self, parts: tuple[Tile | Grid, ...], rows: Matrix, sketch: State, hardware: HardwareParams) -> Mask:
        """A number of virtual threads and threads that can be drawn; all rows of a CPU fit."""
        out = np.ones(len(rows), np.bool_)
        if hardware.max_threads_per_block <= 0:
            return out
        for kernel in kernels(sketch, _tiles(parts), hardware):
            vthreads, threads = [_product(kernel.tiles, rows, level) for level in ("vthread", "thread")]
            limits = kernel.limits
            out &= (vthreads <= limits.max_vthread) & (threads <= limits.max_threads) & (threads >= limits.min_threads)
        return out


def _tiles(parts: Sequence[Tile | Grid]) -> tuple[Tile, ...]:
    return tuple([p for p in parts if isinstance(p, Tile)])


def _levels(parts: int, threaded: bool) -> tuple[str, ...]:
    return ("vthread", "thread", *["serial"] * (parts - 2)) if threaded else ("serial",) * parts


def _product(tiles: Sequence[Tile], rows: Matrix, level: str) -> Any:
    """The product of the columns of one level: int64 [n]."""
    columns = [t.first + i for t in tiles for i, name in enumerate(t.levels) if name == level]
    return rows[:, columns].prod(axis=1)
