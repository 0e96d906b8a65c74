"""Register tiles: large products on a GPU in tiles that are decided already, those of kernels written by hand.

    block: M x N outputs                    shared tiles of 16 steps, the reduction outermost, an iteration ahead
      thread: rows x columns sums           in pieces of 4 x 4, whose neighbours are those of neighbouring threads
        for 16 steps: rows + columns operands in vectors, rows x columns multiply-adds

The search finds such tiles among millions of others, of which most of its measurements tell it little: a thread's tile
of 8 x 16 wants nine lengths at once.  Here they are numbers of the sketch (`FORMS`), those that were fastest of the
kernels in `benchmarks/product_ladder.py`; what remains is how far loops are unrolled and copies are vectors.  Tiles may
run over the edge of an extent, as others do, where they add at most an eighth to each.  Of the forms that fit, the best
by an estimate (`tile_cost.py`) become sketches: few, as each takes its share of what is drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from ansor.sketch.predicates import split_steps
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import reads_by
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import INLINED, State
from te_lite.schedule.step import Step

from ..analysis.changes import changed
from ..analysis.own_stages import axes_read, extents_of, ordinary_sketches
from ..analysis.product_roles import on_tensor_cores, sides_of
from ..pipeline.double_buffer import double_buffered
from ..shared_tiles.transposed_shared import transposed
from .tile_cost import PIECE, BlockTile, Product, cycles

STEPS = (16, 8)
MOST_WASTE = 1.125
TILES = 2
SKETCHES = 3

FORMS = (
    BlockTile(128, 256, (8, 16), 16), BlockTile(256, 128, (16, 8), 16), BlockTile(128, 128, (16, 8), 16),
    BlockTile(128, 128, (8, 16), 16), BlockTile(128, 128, (8, 8), 16), BlockTile(64, 128, (8, 8), 16),
    BlockTile(128, 64, (8, 8), 16), BlockTile(64, 64, (8, 8), 16),
)  # fmt: skip
"""Of products that fill the machine, down to those of a few hundred rows and columns."""


def register_tile_sketches(ctx: SketchContext) -> list[State]:
    """Ansor's sketches of products with tiles fetched ahead, transposed where they are read in strides, in the best
    forms that fit; none where tensor cores may compute it."""
    sketches = changed(ordinary_sketches(ctx), lambda s: transposed(s) or s, double_buffered)
    return register_tiled(ctx, sketches) if sketches else []


def register_tiled(ctx: SketchContext, sketches: Iterable[State]) -> list[State]:
    """The sketches whose lengths are all undecided, with those of their product decided in the best forms that fit.

    None where tensor cores may compute it.
    """
    first = ctx.dag.init_state
    if any(on_tensor_cores(ctx.target, first, k) for k in range(len(first.stages))):
        return []
    shared = ctx.hardware.max_shared_memory_per_block
    return [replay(ctx.dag, steps) for sketch in sketches for steps in _decided(sketch, shared)]


def _decided(sketch: State, shared: int) -> Iterator[tuple[Step, ...]]:
    products = {k: sides for k in range(len(sketch.stages)) if (sides := _sides(sketch, k)) is not None}
    if len(products) != 1:
        return
    ((k, (row, column)),) = products.items()
    op = sketch.stages[k].op
    *outputs, terms = extents = extents_of(op)
    rows, columns = extents[row], extents[column]
    for form in best_forms(Product(prod(outputs) // (rows * columns), rows, columns, terms)):
        lengths: list[tuple[int, ...]] = [(1, 1, 1, 1)] * len(op.axis)
        lengths.append((_steps(form, element_bytes(op.dtype), shared), 1))
        lengths[row], lengths[column] = _lengths(form.rows, form.sums[0]), _lengths(form.columns, form.sums[1])
        yield _with_lengths(sketch, k, lengths)


def _steps(form: BlockTile, element: int, shared: int) -> int:
    """The most steps of a tile for which `shared` bytes are enough, elements of both operands having `element`."""
    words = TILES * (form.rows + form.columns + 2 * PIECE) * element
    return next((n for n in STEPS if n * words <= shared), STEPS[-1])


def _lengths(block: int, sums: int) -> tuple[int, ...]:
    """Virtual threads, threads and elements along the rows or columns of a block."""
    return sums // PIECE, block // sums, 1, PIECE


def best_forms(product: Product) -> list[BlockTile]:
    """Up to SKETCHES forms for a product, the best first."""
    fits = [f for f in FORMS if max(_waste(product.rows, f.rows), _waste(product.columns, f.columns)) <= MOST_WASTE]
    return sorted(fits, key=lambda form: cycles(form, product))[:SKETCHES]


def _waste(extent: int, block: int) -> float:
    """The elements that blocks compute for each one that is needed."""
    return -(-extent // block) * block / extent


def _with_lengths(sketch: State, k: int, lengths: Sequence[tuple[int, ...]]) -> tuple[Step, ...]:
    steps = list(sketch.steps)
    for position, chosen in zip(sorted(split_steps(sketch, k)), lengths, strict=True):
        step = steps[position]
        assert isinstance(step, Split)
        steps[position] = replace(step, lengths=chosen)
    return tuple(steps)


def _sides(sketch: State, k: int) -> tuple[int, int] | None:
    """The axes of rows and of columns of stage k, a product of two reads in Ansor's tiles; None for other stages.

    Each is the only one longer than 1 that one operand has and the other one has not, and the product has one
    reduction axis of at least a tile, along which both operands are read.
    """
    op = sketch.stages[k].op
    splits = [sketch.steps[p] for p in sorted(split_steps(sketch, k))]
    undecided = [len(s.lengths) for s in splits if isinstance(s, Split) and None in s.lengths]
    extents, space = extents_of(op), len(op.axis)
    if undecided != [4] * space + [2] or extents[space] < max(STEPS):
        return None
    hidden = frozenset(n for n, s in enumerate(sketch.stages) if s.where == INLINED)
    reads = [read for _, read in reads_by(k, sketch.ops, hidden)]
    if len(reads) != 2:
        return None
    column = space - 1
    a, b = sorted(reads, key=lambda r: column in axes_read(r, extents))
    sides = sides_of(a, b, extents, space)
    single = sides is not None and len(sides.rows) == 1 and sides.columns == (column,)
    return (sides.rows[0], column) if sides is not None and single else None
