"""Large products on a GPU for which tiles are known to be good: which these are, and how long a tile takes for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeVar

from ansor.analytical.machine import GPU, machine_of
from ansor.core.tasks.task import SearchTask
from ansor.cost_model.prior import least_seconds
from te_lite.bounds.reads import reads_by
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.lanes import ceildiv

from .own_stages import axes_of, extents_of
from .product_roles import sides_of
from .read_again import reads_again

LARGE = 1e-4
"""Seconds that a product takes at best from which it gets a known tile."""
LEAST_TERMS, LEAST_TERMS_TURNED = 256, 64
"""A product of fewer is mostly the writing of its result; where both factors are turned, as queries and keys are, the
reading of drawn programs is worse: scores of 512 x 512 x 96 took 1.07 times as long as in the narrowest tile."""
LEAST_USE = 0.75
"""Of what the multiprocessors could compute while blocks run: below it, programs are drawn."""
VECTOR = 4
"""Elements of 16 bytes."""


class KnownTile(Protocol):
    """A tile that is known to be good."""

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of a block."""

    def speed(self, turned: int, vectors: bool) -> float:
        """How fast it is: with so many factors turned, where rows begin at multiples of 16 bytes (`vectors`) or not."""


AnyTile = TypeVar("AnyTile", bound=KnownTile)


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

    @property
    def is_long(self) -> bool:
        """Whether it has so many terms that the writing of its result hardly counts."""
        return self.terms >= LEAST_TERMS

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


def is_large(task: SearchTask) -> bool:
    """Whether a task takes so long, and reads its elements so often, that drawing programs for it is worse."""
    return reads_again(task) and least_seconds(task) >= LARGE


def best_tiles(
    task: SearchTask, precision: str, tiles_of: Callable[[Product], Sequence[AnyTile]]
) -> tuple[Product, list[AnyTile]] | None:
    """The product of float32 that a task is, and the tiles for it, best first.

    None where the task is something else, of another precision, or fills a machine badly in the best tile.
    """
    machine = machine_of(task.target, task.hardware_params.completed(task.target))
    if not isinstance(machine, GPU) or task.target.precision != precision:
        return None
    product, count = product_of(task), machine.multiprocessors
    if product is None:
        return None
    tiles = sorted(tiles_of(product), key=lambda tile: product.seconds(tile, count))
    return (product, tiles) if tiles and product.use(tiles[0], count) >= LEAST_USE else None


def product_of(task: SearchTask) -> Product | None:
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
