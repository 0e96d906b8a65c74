"""Sliced tiles: products of a few hundred rows on a GPU, whose terms are shared out among the threads of a block.

    block: M x N outputs                       few blocks, one a multiprocessor
      slice, thread: rows x columns sums       groups of threads that compute the same outputs
        for iteration                          of the sum, fetched an iteration ahead
          A.shared, B.shared                   `slices` x `steps` terms
          for step                             each slice its own steps
      R[slice, M, N] in shared memory          what each slice has summed up
      thread: C                                sums over the slices, and what follows element by element

Tiles of 8 x 8 sums need few operands for each multiply-add; but a product of 197 x 3072 outputs has too few of them to
give every multiprocessor the eight warps that keep it busy.  Slices do: 40 x 128 outputs in four slices are ten warps.
The tiles also fit extents that no power of two fits, and parts of the terms may go to different blocks as well
(`split_reduction.py`).  All numbers are those of the sketch, the best by an estimate (`tile_cost.py`): few, as each
sketch takes its share of what is drawn at random.

A tile that is turned is read 64 bytes of a row at a time.  A thread takes squares of 4 x 4, where it has the registers:
four vectors read along the terms, four stored along the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product as combinations
from math import gcd, prod
from operator import itemgetter

from ansor.sketch.predicates import consumers
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import Read, reads_by
from te_lite.computation.tensor import Tensor
from te_lite.expr.expr import Load, Reduce
from te_lite.schedule.schedule import Loop, Schedule, StageHandle
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import INLINED, Stage, State

from ..analysis.own_stages import axes_read, derive, elementwise_reader, extents_of, is_untouched
from ..analysis.product_roles import Factor, factor_of, on_tensor_cores, sides_of
from ..shared_tiles.padded_shared import BANK_BYTES, PAD_BYTES
from ..split_reductions.parts_over_blocks import PartsOverBlocks, rules_around
from ..split_reductions.split_reduction import is_part_of_split
from .tile_cost import MOST_THREADS, PIECE, WORD, BlockTile, Product, cycles, in_squares, shared_words

SHORTEST = 32
"""Rows, columns and terms of products for this rule; fewer are for `skinny`."""
SUMS = ((8, 8), (8, 16), (8, 4))
STEPS = ((16, 1), (32, 1), (8, 2), (16, 2), (32, 2), (8, 4), (16, 4), (8, 8))
"""Steps and slices of an iteration."""
MOST_POINTS = 1024
"""Multiply-adds of an iteration of one slice: twice as many took a fifth longer wherever they were measured."""
PART_FACTORS, SHORTEST_PART = (2, 4, 8), 64
LEAST_SIDE, MOST_SIDE = 32, 256
"""Rows and columns of a block."""
WHOLE_STEPS, MOST_TERMS = 16, 64
"""Terms of an iteration: those of STEPS where there are multiples of 16 terms in all."""
LEAST_THREADS = 64
SKETCHES, VARIANTS = 12, 2
FETCHED_ALONG = 16
"""Neighbours of a row that a tile which is turned fetches together."""


@dataclass(frozen=True)
class ProductAxes:
    """A stage that is a product: its axes of rows, columns and terms, the numbers of all its axes, and its factors."""

    rows: int
    columns: int
    terms: int
    factors: tuple[Factor, Factor]
    product: Product


# --------------------------------------------------------------------------------------------- which stages


def shape_of(ctx: SketchContext, state: State, k: int) -> ProductAxes | None:
    """How stage `k` is a product for this rule; None where it is none, or tensor cores may compute it.

    It sums up along one axis what it makes of two tensors of 4-byte elements, in whose last dimensions the terms, or
    the rows or columns, lie side by side; these are the last axes that only one of the two has.
    """
    stage = state.stages[k]
    if stage.is_placeholder or not is_untouched(stage) or stage.op.num_outputs != 1 or len(stage.op.reduce_axis) != 1:
        return None
    reads = reads_by(k, state.ops)
    words = {element_bytes(state.stages[p].op.dtype) for p in (k, *[p for p, _ in reads])} == {WORD}
    if len({p for p, _ in reads}) != 2 or len(reads) != 2 or not words or not _sums(stage.compute.body[0]):
        return None
    if on_tensor_cores(ctx.target, state, k):
        return None
    extents, space = extents_of(stage.op), len(stage.op.axis)
    last = max([d for d in range(space) if extents[d] > 1], default=-1)
    return _shape(state, sorted(reads, key=lambda pair: last in axes_read(pair[1], extents)), extents, space)


def _sums(body: object) -> bool:
    return isinstance(body, Reduce) and body.combiner.name == "sum" and len(body.sources) == 1 and not body.init


def _shape(state: State, reads: Sequence[tuple[int, Read]], extents: Sequence[int], space: int) -> ProductAxes | None:
    (a, of_a), (b, of_b) = reads
    sides = sides_of(of_a, of_b, extents, space)
    if sides is None or len(sides.terms) != 1:
        return None
    axes = sides.rows[-1], sides.columns[-1], sides.terms[0]
    rows, columns, terms = [extents[axis] for axis in axes]
    left, right = factor_of(a, of_a, axes[0], axes[2], extents), factor_of(b, of_b, axes[1], axes[2], extents)
    if left is None or right is None or min(rows, columns, terms) < SHORTEST:
        return None
    shapes = [state.stages[p].op.shape for p in (a, b)]
    turned = [f.terms == len(shape) - 1 for f, shape in zip((left, right), shapes, strict=True)]
    if any(f.side != len(x) - 1 and not t for f, x, t in zip((left, right), shapes, turned, strict=True)):
        return None
    count = prod([extents[d] for d in range(space) if d not in axes])
    lanes = [gcd(PIECE, shape[-1]) for shape in shapes]
    numbers = Product(count, rows, columns, terms, (turned[0], turned[1]), (lanes[0], lanes[1]))
    return ProductAxes(*axes, (left, right), numbers)


def _is_mine(ctx: SketchContext, state: State, k: int) -> bool:
    """Whether stage `k` is such a product, or a factor of one that only moves elements: the tile is read through it."""
    if shape_of(ctx, state, k) is not None:
        return True
    readers = consumers(state, k) if _moves(state.stages[k]) else []
    return len(readers) == 1 and shape_of(ctx, state, readers[0]) is not None


def _moves(stage: Stage) -> bool:
    return not stage.is_placeholder and is_untouched(stage) and all(isinstance(e, Load) for e in stage.compute.body)


# --------------------------------------------------------------------------------------------- which tiles


@lru_cache(maxsize=64)
def best_tiles(product: Product, shared: int, most: int = SKETCHES) -> tuple[BlockTile, ...]:
    """Up to `most` tiles for a product, in so many bytes of shared memory, the best first; of those with as many blocks
    along rows, columns and terms and the same sums the best VARIANTS."""
    found: dict[tuple[int, ...], dict[tuple[int, int], tuple[float, BlockTile]]] = {}
    for tile in _tiles(product):
        fits = LEAST_THREADS <= tile.threads <= MOST_THREADS and shared_words(tile, product) * WORD <= shared
        cost = cycles(tile, product) if fits else float("inf")
        if cost < float("inf"):
            blocks = -(-product.rows // tile.rows), -(-product.columns // tile.columns), tile.parts
            variants, work = found.setdefault((*blocks, *tile.sums), {}), (tile.steps, tile.slices)
            variants[work] = min(variants.get(work, (cost, tile)), (cost, tile), key=itemgetter(0))
    kept = [pair for of in found.values() for pair in sorted(of.values(), key=itemgetter(0))[:VARIANTS]]
    return tuple([tile for _, tile in sorted(kept, key=itemgetter(0))[:most]])


def _tiles(product: Product) -> Iterator[BlockTile]:
    parts = [f for f in PART_FACTORS if product.terms % (f * PIECE) == 0 and product.terms // f >= SHORTEST_PART]
    blocks = combinations(_sides(product.rows), _sides(product.columns), SUMS, _steps(product.terms), (1, *parts))
    for rows, columns, sums, (steps, slices), of_terms in blocks:
        tile = BlockTile(rows, columns, sums, steps, slices, of_terms)
        whole = rows % sums[0] == 0 and columns % sums[1] == 0 and tile.threads % (columns // PIECE) == 0
        short = slices > 1 or steps * prod(sums) <= MOST_POINTS
        if whole and short and tile.terms * of_terms <= product.terms:
            yield tile


def _sides(extent: int) -> list[int]:
    """Lengths of which some cover the extent with little waste, each the least for its number of blocks."""
    counts = range(-(-extent // MOST_SIDE), max(2, extent // LEAST_SIDE + 1))
    lengths = {-(-extent // (count * grain)) * grain for count in counts for grain in (4, 8, 16)}
    return sorted([n for n in lengths if LEAST_SIDE <= n <= MOST_SIDE])


def _steps(terms: int) -> list[tuple[int, int]]:
    """Steps and slices of iterations; where no power of two divides the terms, of those that do as well."""
    if terms % WHOLE_STEPS == 0:
        return list(STEPS)
    whole = [n for n in range(WHOLE_STEPS, MOST_TERMS + 1, PIECE) if terms % n == 0]
    slices = sorted({count for _, count in STEPS})
    return [*STEPS, *[(n // count, count) for n in whole for count in slices if n % count == 0 and n // count >= 8]]


# -------------------------------------------------------------------------------------------------- sketches


def sliced_sketches(ctx: SketchContext, most: int = SKETCHES) -> list[State]:
    """The sketches of programs with one such product, in its best tiles."""
    found = _products(ctx, ctx.dag.init_state) if ctx.target.is_gpu else []
    if len(found) != 1:
        return []
    ((_, shape),) = found
    tiles = best_tiles(shape.product, ctx.hardware.max_shared_memory_per_block, most)
    around = {parts: _around(ctx, parts) for parts in {tile.parts for tile in tiles}}
    return [_scheduled(*made, tile) for tile in tiles for made in around[tile.parts]]


def _products(ctx: SketchContext, state: State) -> list[tuple[int, ProductAxes]]:
    return [(k, shape) for k in range(len(state.stages)) if (shape := shape_of(ctx, state, k)) is not None]


def _around(ctx: SketchContext, parts: int) -> list[tuple[State, int, ProductAxes]]:
    """The states in which all is decided but one product, whose terms are in so many parts."""
    more = (PartsOverBlocks(parts, _in_parts),) if parts > 1 else ()
    rules, out = rules_around(ctx, _is_mine), list[tuple[State, int, ProductAxes]]()
    for state in derive(ctx, (*more, *rules), ctx.dag.init_state, len(ctx.dag.ops) - 1):
        mine, split = _products(ctx, state), any(isinstance(step, RFactor) for step in state.steps)
        if split == (parts > 1) and len(mine) == 1 and _stored(state, mine[0][1]):
            out.append((state, *mine[0]))
    return out


def _in_parts(ctx: SketchContext, state: State, k: int) -> tuple[int, ...]:
    return PART_FACTORS if not is_part_of_split(state, k) and shape_of(ctx, state, k) is not None else ()


def _stored(state: State, shape: ProductAxes) -> bool:
    """Both factors are in memory."""
    return all(state.stages[f.stage].where != INLINED for f in shape.factors)


# ----------------------------------------------------------------------------------------------------- loops


@dataclass(frozen=True)
class Made:
    """The stages of a product: `root` stores what `total` adds up of `parts` of all slices (None: of one), which are
    summed up in `sums` from the tiles `shared`."""

    root: Tensor
    total: Tensor | None
    parts: Tensor | None
    sums: Tensor
    shared: tuple[Tensor, Tensor]


def _scheduled(state: State, k: int, shape: ProductAxes, tile: BlockTile) -> State:
    s = Schedule(state)
    made = _staged(s, k, shape, tile)
    block, rows, columns = _blocks(s[made.root], shape, tile)
    holder, outer, slices, inner = s[made.root], [block], None, (rows, columns)
    if made.total is not None and made.parts is not None:
        _added_up(s[made.root], s[made.total], rows, columns, tile)
        holder = s[made.parts]
        holder.compute_at(s[made.root], block)
        slices, *axes = holder.leaf_iter_vars
        inner = axes[shape.rows], axes[shape.columns]
        outer = [axis for axis in axes if axis not in inner]
    thread = _bound(holder, outer, slices, inner, tile)
    s[made.sums].compute_at(holder, thread)
    iteration = _summed(s[made.sums], shape, tile)
    for tensor, factor, turned in zip(made.shared, shape.factors, shape.product.turned, strict=True):
        s[tensor].compute_at(s[made.sums], iteration)
        _fetched(s[tensor], factor, turned, tile)
    return s.state


def _staged(s: Schedule, k: int, shape: ProductAxes, tile: BlockTile) -> Made:
    """Stage `k` with its slices, sums and shared tiles as stages of their own."""
    reader, result = elementwise_reader(s.state, k), s.state.stages[k].op.output()
    root = result if reader is None else s.state.stages[reader].op.output()
    sources = [s.state.stages[f.stage].op.output() for f in shape.factors]
    total = parts = None
    if tile.slices > 1:
        steps, _ = s[result].split(s[result].op.reduce_axis[shape.terms - len(root.op.axis)], factor=tile.steps)
        _, slices = s[result].split(steps, factor=tile.slices)
        parts = s.rfactor(result, slices, 0)
        total = _in_registers(s, result, reader is None)
        sums = s.cache_write(parts, "local")
        s[parts].set_scope("shared")
    else:
        sums = _in_registers(s, result, reader is None)
    a, b = [s.cache_read(x, "shared", [sums]) for x in sources]
    for x in sources:
        if _moves(s[x].stage):
            s[x].compute_inline()
    return Made(root, total, parts, sums, (a, b))


def _in_registers(s: Schedule, tensor: Tensor, is_root: bool) -> Tensor:
    """What computes a tensor in registers: a stage of its own, where nothing else stores it."""
    if is_root:
        cached: Tensor = s.cache_write(tensor, "local")
        return cached
    s[tensor].set_scope("local")
    return tensor


def _blocks(root: StageHandle, shape: ProductAxes, tile: BlockTile) -> tuple[Loop, Loop, Loop]:
    """The result in blocks: the loop over these, and those over rows and columns of one."""
    loops = list(root.leaf_iter_vars)
    of_rows, rows = root.split(loops[shape.rows], factor=tile.rows)
    of_columns, columns = root.split(loops[shape.columns], factor=tile.columns)
    outer = [loop for axis, loop in enumerate(loops) if axis not in (shape.rows, shape.columns)]
    root.reorder(*outer, of_rows, of_columns, rows, columns)
    block = root.fuse(*outer, of_rows, of_columns)
    root.bind(block, "blockIdx.x")
    return block, rows, columns


def _added_up(root: StageHandle, total: StageHandle, rows: Loop, columns: Loop, tile: BlockTile) -> None:
    """All threads of the block add up the sums of the slices, in vectors along the columns."""
    along, vector = root.split(columns, factor=PIECE)
    iteration, across = root.split(rows, factor=tile.threads // (tile.columns // PIECE))
    root.reorder(iteration, across, along, vector)
    thread = root.fuse(across, along)
    root.bind(thread, "threadIdx.x")
    root.vectorize(vector)
    total.compute_at(root, thread)
    slices = total.leaf_iter_vars[-1]
    total.reorder(slices, *total.leaf_iter_vars[:-1])
    total.unroll(slices)
    total.vectorize(total.leaf_iter_vars[-1])


def _bound(
    holder: StageHandle, outer: Sequence[Loop], slices: Loop | None, inner: tuple[Loop, Loop], tile: BlockTile
) -> Loop:
    """Pieces, slices and threads of a block of sums; the loop over threads."""
    cut = []
    for axis, side, sums in zip(inner, (tile.rows, tile.columns), tile.sums, strict=True):
        piece, rest = holder.split(axis, nparts=sums // PIECE)
        thread, own = holder.split(rest, nparts=side // sums)
        cut.append((piece, thread, own))
    pieces, threads, own_loops = [list(level) for level in zip(*cut, strict=True)]
    threads = threads if slices is None else [slices, *threads]
    holder.reorder(*outer, *pieces, *threads, *own_loops)
    holder.bind(holder.fuse(*pieces), "vthread")
    thread = holder.fuse(*threads)
    holder.bind(thread, "threadIdx.x")
    if slices is not None:
        holder.vectorize(own_loops[-1])
    return thread


def _summed(sums: StageHandle, shape: ProductAxes, tile: BlockTile) -> Loop:
    """The loops of the sums of a thread; the one at which tiles are fetched."""
    space = len(sums.op.axis)
    loops = list(sums.leaf_iter_vars)
    if tile.slices > 1:
        iteration, step = loops[space:]
    else:
        iteration, step = sums.split(loops[space:][shape.terms - space], factor=tile.steps)
    sums.reorder(iteration, step, *loops[:space])
    return iteration


def _fetched(copy: StageHandle, factor: Factor, turned: bool, tile: BlockTile) -> None:
    """All threads of a block fetch a tile an iteration ahead, in vectors where rows of the factor are multiples of
    them.
    """
    lanes = gcd(PIECE, copy.op.shape[-1])
    axes = list(copy.leaf_iter_vars)
    copy.double_buffer()
    if not turned:
        _spread(copy, axes, lanes, tile)
        return
    side, terms = factor.side, factor.terms
    others = [d for d in range(len(axes)) if d not in (side, terms)]
    copy.storage_order(*others, terms, side)
    copy.storage_align(axes[terms], BANK_BYTES // WORD, PAD_BYTES // WORD)
    outer, near = [axes[d] for d in others], axes[terms]
    if tile.terms > FETCHED_ALONG:
        far, near = copy.split(near, factor=gcd(tile.terms, FETCHED_ALONG))
        outer.append(far)
    if in_squares(tile, lanes):
        square, row = copy.split(axes[side], factor=PIECE)
        vector, lane = copy.split(near, factor=PIECE)
        copy.reorder(*outer, square, vector, row, lane)
        copy.vectorize(lane)
        _in_threads(copy, copy.fuse(*outer, square, vector), tile)
    else:
        copy.reorder(*outer, axes[side], near)
        _spread(copy, [*outer, axes[side], near], lanes, tile)


def _spread(copy: StageHandle, axes: Sequence[Loop], lanes: int, tile: BlockTile) -> None:
    """Neighbours in vectors of `lanes`, and these over the threads."""
    element, lane = copy.split(copy.fuse(*axes), factor=lanes)
    _in_threads(copy, element, tile)
    copy.vectorize(lane)


def _in_threads(copy: StageHandle, loop: Loop, tile: BlockTile) -> None:
    _, thread = copy.split(loop, factor=tile.threads)
    copy.bind(thread, "threadIdx.x")
