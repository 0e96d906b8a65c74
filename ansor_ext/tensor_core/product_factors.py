"""Factors of products on tensor cores: tiles in shared memory, which all threads of a block fetch, and fragments."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from te_lite.bounds.loop_scope import LANES
from te_lite.computation.tensor import Tensor
from te_lite.schedule.loop_steps import FollowFusedSplit, Split
from te_lite.schedule.schedule import Loop, Schedule, StageHandle
from te_lite.schedule.step import Length

from ..analysis.product_roles import Factor
from .mma import ROW_BYTES, Mma
from .swizzle import can_be_swizzled

WORDS, PAD_WORDS = 32, 8
CHUNK_WORDS = 4
"""Of the vectors that tiles are fetched in, at which rows must begin."""


@dataclass(frozen=True)
class Warps:
    """The warps of a block: as many as there are, or as the splits at the positions `splits` decide."""

    splits: tuple[int, int] = (0, 0)
    count: int = 0


def split_loop(s: Schedule, stage: StageHandle, axis: Loop, lengths: tuple[Length, ...]) -> list[Loop]:
    """Split a loop, the rest outermost; None is an undecided length."""
    position, extent = stage.position(axis), stage.stage.vars[axis.uid].extent
    s.apply(Split(stage.id, position, extent if isinstance(extent, int) else 0, lengths))
    return list(stage.leaf_iter_vars[position : position + len(lengths) + 1])


def shared_copy(s: Schedule, factor: Factor, source: Tensor, sums: Tensor) -> Tensor:
    """A copy of a factor of `sums` in shared memory, with the axes of its read where they are needed."""
    copy: Tensor = s.reindex(source, "shared", sums) if factor.reindexed else s.cache_read(source, "shared", [sums])
    return copy


def fetched(tile: StageHandle, factor: Factor, op: Mma, warps: Warps, row: int = 0) -> None:
    """All threads of a block fetch a tile of a factor, in vectors that its rows are multiples of.

    Rows that `ldmatrix` reads are swizzled; those of `row` bytes, if given, begin apart where they cannot be.
    """
    nbytes, s, matrices = op.element.nbytes, tile.schedule, by_matrices(factor, op)
    apart = row > 0 and not can_be_swizzled(row)
    if not matrices:
        rows = factor.side if factor.last == factor.terms else factor.terms
        tile.storage_align(tile.leaf_iter_vars[rows], WORDS * 4 // nbytes, pad_words(op) * 4 // nbytes)
    elif apart:
        tile.storage_align(tile.leaf_iter_vars[-2], 2 * ROW_BYTES // nbytes, ROW_BYTES // nbytes)
    loop = tile.fuse(*tile.leaf_iter_vars)
    loop, vector = tile.split(loop, gcd(ROW_BYTES // nbytes, tile.op.shape[-1]))
    loop, lane = tile.split(loop, LANES)
    position = tile.position(loop)
    if warps.count:
        tile.split(loop, warps.count)
    else:
        s.apply(FollowFusedSplit(tile.id, position, warps.splits, 0, True))
    tile.bind(tile.leaf_iter_vars[position + 1], "threadIdx.y")
    tile.bind(lane, "threadIdx.x")
    tile.vectorize(vector)
    if matrices and not apart:
        tile.swizzle()


def pad_words(op: Mma) -> int:
    """By what rows, one for each term, begin further than at a multiple of `WORDS`: the terms that the lanes of a warp
    read at a time are then `PAD_WORDS` banks apart."""
    return max(PAD_WORDS // op.b.lane[0].row, CHUNK_WORDS)


def by_matrices(factor: Factor, op: Mma) -> bool:
    """Whether `ldmatrix` can load a factor: neighbours in memory are terms, or have two bytes and are transposed.

    Terms in an order of their own are no neighbours.
    """
    if op.chained:
        return False
    return factor.last == factor.terms or (factor.last == factor.side and op.element.nbytes == 2)


def loaded(part: StageHandle, factor: Factor, op: Mma, operand: str, tiles: int = 2) -> None:
    """Fragments of a factor, by `ldmatrix` (so many tiles of B at a time) or each lane its values."""
    fragment = op.fragment(operand)
    rows, columns = sides(part, factor, operand)
    if not by_matrices(factor, op):
        part.split_fragment(rows, columns, f"{op.name}.{operand}")
        return
    outer = [loop for loop in part.leaf_iter_vars if loop not in (rows, columns)]
    tile_i, i = part.split(rows, fragment.rows)
    tile_j, j = part.split(columns, fragment.columns * (tiles if operand == "b" else 1))
    part.reorder(*outer, tile_i, tile_j, i, j)
    part.tensorize(i)


def sides(part: StageHandle, factor: Factor, operand: str) -> tuple[Loop, Loop]:
    """The loops over rows and columns of the fragments of a factor, which become the last ones of its storage."""
    loops = list(part.leaf_iter_vars)
    rows, columns = (factor.side, factor.terms) if operand == "a" else (factor.terms, factor.side)
    if (rows, columns) != (len(loops) - 2, len(loops) - 1):
        part.storage_order(*[d for d in range(len(loops)) if d not in (rows, columns)], rows, columns)
    return loops[rows], loops[columns]
