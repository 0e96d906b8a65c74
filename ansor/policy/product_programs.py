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

from te_lite.bounds.reads import reads_by
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.lanes import ceildiv
from te_lite.schedule.state import State
from te_lite.schedule.step import DoubleBuffer, RFactor, Step, StorageOrder

from ..analytical.machine import GPU, machine_of
from ..core.target.target import FP32X3, STRICT
from ..core.tasks.task import SearchTask
from ..sketch.extra.product_roles import sides_of
from ..sketch.extra.read_axes import axes_of, extents_of
from ..space.choices import Space
from ..space.spaces import space_of
from ..space.states import concrete
from ..space.variants import home
from .group_programs import WARP_TILES, WarpTile

Lengths = tuple[int, int, int, int]
"""Virtual threads, threads, and elements of a thread (two levels) along an axis."""
ONE: Lengths = (1, 1, 1, 1)
TERMS = (16, 1)
"""Terms that a block has in shared memory."""
LEAST_TERMS, LEAST_TERMS_TURNED = 256, 64
"""A product of fewer is mostly the writing of its result; where both factors are turned, as queries and keys are, the
reading of drawn programs is worse: scores of 512 x 512 x 96 took 1.07 times as long as in the narrowest tile."""
LEAST_USE = 0.75
"""Of what the multiprocessors could compute while blocks run: below it, programs are drawn."""
VECTOR = 4


@dataclass(frozen=True)
class Tile:
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
    Tile((2, 16, 4, 1), (4, 16, 4, 1), (1.005, 1.03, 0.957)),
    Tile((4, 16, 4, 1), (2, 16, 4, 1), (1.036, 0.94, 0.953)),
    Tile((2, 16, 4, 1), (2, 16, 4, 1), (1.01, 1.015, 0.943), vectors=False),
    Tile((2, 16, 4, 1), (2, 8, 4, 1), (1.0, 0.99, 0.91), vectors=False),
)


KnownTile = Tile | WarpTile
KNOWN: dict[str, tuple[KnownTile, ...]] = {STRICT: TILES, FP32X3: WARP_TILES}
"""Tiles by the precision of products."""


@dataclass(frozen=True)
class Product:
    """The axes of rows and columns among the spatial ones of these `extents`, and how many factors are turned.

    `vectors`: rows of both factors begin at multiples of 16 bytes.
    """

    rows: int
    columns: int
    extents: tuple[int, ...]
    terms: int
    turned: int
    vectors: bool

    def tiles(self, precision: str) -> tuple[KnownTile, ...]:
        """Those for its terms: of few, the tile with the fewest sums, whose blocks start and end soonest."""
        if self.terms >= LEAST_TERMS:
            return KNOWN[precision]
        return TILES[-1:] if precision == STRICT else ()

    def rounds(self, tile: KnownTile, multiprocessors: int) -> int:
        """How many blocks of a tile a multiprocessor runs, one after the other."""
        sizes = {self.rows: tile.sides[0], self.columns: tile.sides[1]}
        blocks = prod([ceildiv(n, sizes.get(axis, 1)) for axis, n in enumerate(self.extents)])
        return int(ceildiv(blocks, multiprocessors))

    def seconds(self, tile: KnownTile, multiprocessors: int) -> float:
        """What blocks of a tile take, in sums of one multiprocessor as fast as cuBLAS."""
        speed = tile.speed(self.turned, self.vectors)
        return float(self.rounds(tile, multiprocessors) * prod(tile.sides) / speed)

    def use(self, tile: KnownTile, multiprocessors: int) -> float:
        """The part that the product is of the sums that multiprocessors could compute meanwhile."""
        return prod(self.extents) / (self.rounds(tile, multiprocessors) * multiprocessors * prod(tile.sides))


def product_states(task: SearchTask, sketches: Callable[[], Sequence[State]]) -> Iterator[State]:
    """The programs of a large product of float32, best first; none where a task is something else.

    `sketches` makes those of the task, and is asked for a product alone.  A backend may refuse the first one.
    """
    hardware = task.hardware_params.completed(task.target)
    machine = machine_of(task.target, hardware)
    if not isinstance(machine, GPU) or task.target.precision not in KNOWN:
        return
    product, count = _product(task), machine.multiprocessors
    if product is None:
        return
    tiles = sorted(product.tiles(task.target.precision), key=lambda tile: product.seconds(tile, count))
    if not tiles or product.use(tiles[0], count) < LEAST_USE:
        return
    yield from _states(task, product, tiles, sketches())


def _states(
    task: SearchTask, product: Product, tiles: Sequence[KnownTile], sketches: Sequence[State]
) -> Iterator[State]:
    """The programs of tiles, of those that the sketches have."""
    hardware = task.hardware_params.completed(task.target)
    space = _space(task, sketches) if any(isinstance(tile, Tile) for tile in tiles) else None
    for tile in tiles:
        match tile:
            case WarpTile():
                found = tile.row(sketches, task.target, hardware)
            case Tile():
                found = None if space is None else (space, _row(space, product, tile))
        if found is not None:
            yield concrete(home(found[0]), found[1], task.target, hardware)


def _product(task: SearchTask) -> Product | None:
    """The product that is the only sum of a task."""
    state = task.compute_dag.init_state
    sums = [k for k, s in enumerate(state.stages) if isinstance(s.op, ComputeOp) and s.op.reduce_axis]
    if len(sums) != 1:
        return None
    op, reads = state.stages[sums[0]].op, reads_by(sums[0], state.ops)
    extents, space = extents_of(op), len(op.axis)
    if len(reads) != 2 or len({p for p, _ in reads}) != 2 or len(op.reduce_axis) != 1:
        return None
    if {state.stages[k].op.dtype for k in (sums[0], *[p for p, _ in reads])} != {"float32"}:
        return None
    sides = sides_of(reads[0][1], reads[1][1], extents, space)
    if sides is None:
        return None
    rows, columns = sorted([_wide(own, extents) for own in (sides.rows, sides.columns)])
    turned = sum(space in axes_of(read.forms[-1], extents) for _, read in reads)
    if extents[-1] < (LEAST_TERMS_TURNED if turned == len(reads) else LEAST_TERMS):
        return None
    vectors = all(state.ops[p].output(0).shape[-1] % VECTOR == 0 for p, _ in reads)
    return Product(rows, columns, tuple(extents[:space]), extents[-1], turned, vectors)


def _wide(axes: Sequence[int], extents: Sequence[int]) -> int:
    return max(axes, key=lambda axis: (extents[axis], axis))


def _space(task: SearchTask, sketches: Sequence[State]) -> Space | None:
    """That of the sketch that fetches tiles of both factors ahead, turned where their terms are neighbours."""
    hardware = task.hardware_params.completed(task.target)
    ahead = [s for s in sketches if _count(s, DoubleBuffer) == 2 and not _count(s, RFactor)]
    for sketch in sorted(ahead, key=lambda s: (-_count(s, StorageOrder), len(s.steps))):
        space = space_of(sketch, task.target, hardware)
        if [t.parts for t in space.tiles if t.reduce] == [len(TERMS)] and _has_levels(space):
            return space
    return None


def _has_levels(space: Space) -> bool:
    kinds = sorted([c.kind for c in space.choices])
    return kinds == ["fetch", "fetch", "unroll"] and all(t.reduce or t.parts == len(ONE) for t in space.tiles)


def _count(sketch: State, kind: type[Step]) -> int:
    return sum(isinstance(step, kind) for step in sketch.steps)


def _row(space: Space, product: Product, tile: Tile) -> np.ndarray:
    """The tile as a row of the space, nothing of it in a loop that is not written out."""
    row, turned = np.zeros(space.width, np.int64), {s.stage for s in space.sketch.steps if isinstance(s, StorageOrder)}
    lengths = {product.rows: tile.rows, product.columns: tile.columns}
    for axis, own in enumerate(space.tiles):
        row[own.columns] = TERMS if own.reduce else lengths.get(axis, ONE)
    elements = turned if product.turned == len(turned) == 2 and not tile.vectors else set()
    for choice in space.choices:
        single = choice.kind == "unroll" or choice.stage in elements
        row[choice.columns] = min(choice.values) if single else VECTOR
    return row
