"""Tiles of large products in `fp32x3` on tensor cores that are known to be good.

Rings multiply where rows begin at multiples of 16 bytes; elsewhere groups of warps do where the terms of a factor are
neighbours in memory, or else single warps.  A block has few columns: sums, and those of an iteration that are added to
them, share the registers of a thread.  Where words are fetched one by one, more columns share what is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import FP32X3, Target
from ansor.core.tasks.task import SearchTask
from ansor.space.decisions.decision import Choice, Grid
from ansor.space.spaces import Space, home, space_of
from ansor.space.states import concrete
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State

from ..analysis.known_tiles import Product, best_tiles, is_large
from .warp_tiles import products

ROWS, COLUMNS = 16, 8
"""Of an instruction, in the lengths of a tile (`warp_tiles.py`)."""


@dataclass(frozen=True)
class WarpTile:
    """Warps of rows and instructions of each, the same of columns, and instructions of an iteration; `warps` that
    multiply together, `tiles` in the pipeline, or in a `ring`.

    `speeds`, by cuBLAS's in float32 on an H200, where vectors are fetched (4096^3) and where words are (8205 x 5921 x
    2949).
    """

    point: tuple[int, int, int, int, int]
    warps: int
    tiles: int
    speeds: tuple[float, float]
    ring: bool = False

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return ROWS * self.point[0] * self.point[1], COLUMNS * self.point[2] * self.point[3]

    def speed(self, turned: int, vectors: bool) -> float:
        """How fast it is, whichever factors are turned."""
        return self.speeds[not vectors]

    def row(
        self, sketches: Sequence[State], target: Target, hardware: HardwareParams
    ) -> tuple[Space, np.ndarray] | None:
        """The tile in the space of the first sketch that has it, whatever room a block has; None where none has."""
        for sketch in sketches:
            found = [] if any(isinstance(step, RFactor) for step in sketch.steps) else products(sketch)
            how = [(p.op.warps, p.shared[0].tiles, p.shared[0].in_boxes) for p in found]
            if how == [(self.warps, self.tiles, self.ring)]:
                space = space_of(sketch, target, hardware)
                return space, self._row(space)
        return None

    def _row(self, space: Space) -> np.ndarray:
        row = np.zeros(space.width, np.int64)
        for part in space.parts:
            match part:
                case Grid():
                    row[part.columns] = self.point
                case Choice(values=values):
                    row[part.columns] = min(values)
        return row


WARP_TILES = (
    WarpTile((8, 1, 1, 16, 4), 4, 4, (2.46, 0.0), ring=True),
    WarpTile((8, 1, 1, 8, 4), 4, 4, (2.08, 1.2)),
    WarpTile((8, 1, 1, 16, 4), 4, 3, (1.72, 1.45)),
    WarpTile((2, 4, 2, 8, 4), 1, 2, (1.28, 1.18)),
)


def _tiles_of(product: Product) -> Sequence[WarpTile]:
    """Those of a long product: with a ring where vectors are fetched, and a block has all its rows and columns."""
    sides = product.extents[product.rows], product.extents[product.columns]
    rings = product.vectors and all(n <= extent for n, extent in zip(WARP_TILES[0].sides, sides, strict=True))
    return [tile for tile in WARP_TILES if product.is_long and (rings or not tile.ring)]


def large_product_states(task: SearchTask, sketches: Callable[[], Sequence[State]]) -> Iterator[State]:
    """The programs of `product_states` for a product that takes long."""
    if is_large(task):
        yield from product_states(task, sketches)


def product_states(task: SearchTask, sketches: Callable[[], Sequence[State]]) -> Iterator[State]:
    """The programs of a product of float32 in `fp32x3`, best first; none where a task is something else.

    `sketches` makes those of the task, and is asked for a product alone.  A backend may refuse the first one.
    """
    found = best_tiles(task, FP32X3, _tiles_of)
    if found is None:
        return
    made, hardware = sketches(), task.hardware_params.completed(task.target)
    for tile in found[1]:
        row = tile.row(made, task.target, hardware)
        if row is not None:
            yield concrete(home(row[0]), row[1], task.target, hardware)
