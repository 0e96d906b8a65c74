"""Programs of large products on a GPU, in tiles that are known to be good: nothing is drawn for them.

A block of 256 threads has 128 x 256 sums, 8 x 16 a thread, in registers, and 16 terms of both factors in shared memory,
the next 16 under way: the tile of vendors' libraries.  All its steps are written out.  Smaller tiles are for what
leaves multiprocessors idle in the last round of blocks.  A factor whose terms are neighbours in memory is turned on its
way to shared memory, in vectors; where both are, and tiles are small, by the element: shared memory is busier there,
and what writes to it in bursts holds up what reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ansor.core.target.target import STRICT
from ansor.core.tasks.task import SearchTask
from ansor.space.spaces import Space, home, space_of
from ansor.space.states import concrete
from te_lite.schedule.state import State

from ..analysis.known_tiles import VECTOR, Product, best_tiles, is_large

Sketches = Callable[[], Sequence[State]]
Lengths = tuple[int, int, int, int]
"""Virtual threads, threads, and elements of a thread (two levels) along an axis."""
ONE: Lengths = (1, 1, 1, 1)
TERMS = (16, 1)
"""Terms that a block has in shared memory."""


@dataclass(frozen=True)
class TileSpeed:
    """Sums of a block, and how fast it is with no, one and two factors turned, by cuBLAS on an H200."""

    rows: Lengths
    columns: Lengths
    speeds: tuple[float, float, float]
    vectors: bool = True

    @property
    def sides(self) -> tuple[int, int]:
        return prod(self.rows), prod(self.columns)

    def speed(self, turned: int, vectors: bool) -> float:
        """How fast it is with so many factors turned, whether or not rows begin at multiples of 16 bytes."""
        return self.speeds[turned]


TILES = (
    TileSpeed((2, 16, 4, 1), (4, 16, 4, 1), (1.005, 1.03, 0.957)),
    TileSpeed((4, 16, 4, 1), (2, 16, 4, 1), (1.036, 0.94, 0.953)),
    TileSpeed((2, 16, 4, 1), (2, 16, 4, 1), (1.01, 1.015, 0.943), vectors=False),
    TileSpeed((2, 16, 4, 1), (2, 8, 4, 1), (1.0, 0.99, 0.91), vectors=False),
)


def large_product_states(task: SearchTask, sketches: Sketches) -> Iterator[State]:
    """The programs of `product_states` for a product that takes long."""
    if is_large(task):
        yield from product_states(task, sketches)


def product_states(task: SearchTask, sketches: Sketches) -> Iterator[State]:
    """The programs of a product of float32, best first; none where a task is something else.

    `sketches` makes those of the task, and is asked for a product alone.  A backend may refuse the first one.
    """
    found = best_tiles(task, STRICT, _tiles)
    space = None if found is None else _space(task, sketches())
    if found is None or space is None:
        return
    product, tiles = found
    for tile in tiles:
        hardware = task.hardware_params.completed(task.target)
        yield concrete(home(space), _row(space, product, tile), task.target, hardware)


def _tiles(product: Product) -> Sequence[TileSpeed]:
    """Those for its terms: of few, the tile with the fewest sums, whose blocks start and end soonest."""
    return TILES if product.is_long else TILES[-1:]


def _space(task: SearchTask, sketches: Sequence[State]) -> Space | None:
    """That of the sketch that fetches tiles of both factors ahead, turned where their terms are neighbours."""
    hardware = task.hardware_params.completed(task.target)
    ahead = [s for s in sketches if _count(s, "DBF") == 2 and not _count(s, "RF")]
    for sketch in sorted(ahead, key=lambda s: (-_count(s, "STO"), len(s.steps))):
        space = space_of(sketch, task.target, hardware)
        if [t.parts for t in space.tiles if t.reduce] == [len(TERMS)] and _has_levels(space):
            return space
    return None


def _has_levels(space: Space) -> bool:
    kinds = sorted([c.kind for c in space.choices])
    return kinds == ["fetch", "fetch", "unroll"] and all(t.reduce or t.parts == len(ONE) for t in space.tiles)


def _count(sketch: State, letters: str) -> int:
    return sum(step.tag == letters for step in sketch.steps)


def _row(space: Space, product: Product, tile: TileSpeed) -> np.ndarray:
    """The tile as a row of the space, nothing of it in a loop that is not written out."""
    row, turned = np.zeros(space.width, np.int64), {s.stage for s in space.sketch.steps if s.tag == "STO"}
    lengths = {product.rows: tile.rows, product.columns: tile.columns}
    for axis, own in enumerate(space.tiles):
        row[own.columns] = TERMS if own.reduce else lengths.get(axis, ONE)
    elements = turned if product.turned == len(turned) == 2 and not tile.vectors else set()
    for choice in space.choices:
        single = choice.kind == "unroll" or choice.stage in elements
        row[choice.columns] = min(choice.values) if single else VECTOR
    return row
