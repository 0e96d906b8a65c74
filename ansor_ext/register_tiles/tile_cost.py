"""What a product costs in given tiles on a GPU, estimated from their numbers alone: which tiles are worth a sketch.

    iteration  = max(issue, shared, memory) + a quarter of the others + what nobody hides
    issue     multiply-adds, reads of operands and copies of the fullest of the four schedulers; more for few warps
    shared    wavefronts of shared memory: operands that are read, elements that are stored turned
    memory    tiles that are fetched
    product = rounds of blocks x iterations, sums of slices, and a kernel for parts over blocks

The constants are fitted to 340 programs measured on an H200 before tiles were turned in squares (linear layers of 128
and 197 tokens, products of 512 to 2,048 rows, batches; root mean square error 20 %).  They order tiles rather than time
them: for each of those products the best six by this estimate held one within 2 % of the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

from ..analysis.nominal import NOMINAL_SMS, SCHEDULERS

PIECE = 4
"""Rows and columns of a thread lie in pieces of so many, whose neighbours are those of neighbouring threads."""
WARP, MOST_THREADS, SM_THREADS = 32, 1024, 2048
REGISTERS, OTHER_REGISTERS, MOST_REGISTERS = 65536, 60, 255
"""Of a multiprocessor; of a thread beside its sums; of a thread at most."""
SM_SHARED = 227 * 1024
WORD, PAD = 4, 4
MOST_SUMS = 64
"""Of a thread that turns squares: with 128 sums, products of 2,048 and 4,096 rows took 3 to 4 % longer so."""

PER_ITERATION, PER_BLOCK, PER_KERNEL, PER_PARTS = 100, 2500, 3000, 3000
"""Cycles: of the barrier of an iteration, of the ends of a block, of a launch, of a second kernel that adds up parts.
"""
BYTES_PER_CYCLE = 24
"""That a multiprocessor gets of memory."""
WARPS = 8
"""So many keep the multiply-adders of a multiprocessor busy."""


@dataclass(frozen=True)
class Product:
    """`count` products of `rows` x `columns` outputs, each a sum of `terms`.

    For A and B: whether tiles are `turned` on their way to shared memory (they lie along the terms, and are read along
    rows or columns), and how many elements are fetched at once (`lanes`).
    """

    count: int
    rows: int
    columns: int
    terms: int
    turned: tuple[bool, bool] = (True, False)
    lanes: tuple[int, int] = (4, 4)


@dataclass(frozen=True)
class BlockTile:
    """A block of `rows` x `columns` outputs, `sums` of them (rows, columns) for each thread.

    `slices` groups of threads sum up `steps` terms each in an iteration, and their sums are added up in shared memory;
    `parts` blocks sum up a part of all terms each, and a second kernel adds these up.
    """

    rows: int
    columns: int
    sums: tuple[int, int]
    steps: int
    slices: int = 1
    parts: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.rows * self.columns // (self.sums[0] * self.sums[1]) * self.slices

    @property
    def terms(self) -> int:
        """Of an iteration."""
        return self.steps * self.slices


def shared_words(tile: BlockTile, product: Product) -> int:
    """Words of shared memory: two tiles of each operand, those that are turned padded, and the sums of slices."""
    sides = zip((tile.rows, tile.columns), product.turned, strict=True)
    row = sum([side + (PAD - side) % WARP if turned else side for side, turned in sides])
    return 2 * tile.terms * row + (tile.slices * tile.rows * tile.columns if tile.slices > 1 else 0)


def resident(tile: BlockTile, product: Product) -> int:
    """Blocks that a multiprocessor has room for; 0 for none."""
    threads = ceil(tile.threads / WARP) * WARP
    registers = min(tile.sums[0] * tile.sums[1] + OTHER_REGISTERS, MOST_REGISTERS)
    found = REGISTERS // (threads * registers), SM_THREADS // threads, SM_SHARED // (WORD * shared_words(tile, product))
    return min(found)


def cycles(tile: BlockTile, product: Product) -> float:
    """The estimate for all of `product`; infinite for a tile that no multiprocessor has room for."""
    room = resident(tile, product)
    if room == 0 or tile.threads > MOST_THREADS:
        return float("inf")
    of_rows, of_columns = ceil(product.rows / tile.rows), ceil(product.columns / tile.columns)
    here = ceil(product.count * of_rows * of_columns * tile.parts / NOMINAL_SMS)
    together = min(here, room)
    iterations = ceil(product.terms / tile.parts / tile.terms)
    block = iterations * _iteration(tile, product, together) + _sums_of_slices(tile) * together + PER_BLOCK
    parts = PER_PARTS + (tile.parts + 1) * product.rows * product.columns * WORD / (NOMINAL_SMS * BYTES_PER_CYCLE)
    return ceil(here / room) * block + PER_KERNEL + (parts if tile.parts > 1 else 0)


def _iteration(tile: BlockTile, product: Product, together: int) -> float:
    """Cycles of an iteration of the blocks that are `together` on a multiprocessor."""
    warps = ceil(tile.threads / WARP) * together
    operands = tile.steps * sum(tile.sums) / PIECE
    issue = 1.04 * tile.steps * tile.sums[0] * tile.sums[1] + operands + 1.5 * (_copies(tile, product) + 14)
    sides = zip((tile.rows, tile.columns), product.turned, strict=True)
    stored = sum([side * tile.terms / WARP * (2 if turned else 0.25) for side, turned in sides])
    shared = 4 * operands * warps + together * stored / 2
    memory = together * (tile.rows + tile.columns) * tile.terms * WORD / BYTES_PER_CYCLE
    waiting: float = max(1.0, WARPS / warps) ** 0.3
    found = issue * ceil(warps / SCHEDULERS) * waiting, shared, memory
    return max(found) + (sum(found) - max(found)) / 4 + PER_ITERATION / sqrt(together)


def _copies(tile: BlockTile, product: Product) -> float:
    """Instructions of a thread that fetch and store the tiles of an iteration."""
    found = zip((tile.rows, tile.columns), product.turned, product.lanes, strict=True)
    return sum(
        [
            side * tile.terms / tile.threads * (1 / lanes + turned * (0.5 if in_squares(tile, lanes) else 1))
            for side, turned, lanes in found
        ]
    )


def in_squares(tile: BlockTile, lanes: int) -> bool:
    """Whether tiles are turned in squares of 4 x 4 in registers: not where there is no room beside the sums."""
    return lanes == PIECE and tile.sums[0] * tile.sums[1] <= MOST_SUMS


def _sums_of_slices(tile: BlockTile) -> float:
    """Cycles to store and read the sums of all slices."""
    return 4 * tile.slices * tile.rows * tile.columns / WARP if tile.slices > 1 else 0
