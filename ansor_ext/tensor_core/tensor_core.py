"""Products on tensor cores: blocks, warps, and tiles of an instruction (`mma.py`), in a pipeline of tiles.

    for block                              blockIdx.x
      for warp                             threadIdx.y
        for iteration                      of the sum, and all its other axes
          A.shared, B.shared               fetched ahead, 16 bytes a thread where rows begin at multiples of them
          for step                         of the instruction
            a, b                           fragments, by ldmatrix or value by value
            for i, j                       instructions of a warp
              sums[i, j] += a[i] * b[j]    mma.sync
        C                                  of the sums, and what follows element by element

Rows, columns and terms are cut into tiles whatever their extents: what is fetched from beyond the edge is zero.  How
many warps, instructions of a warp and terms of an iteration there are is one decision
(`warp_tiles.py`); the number of tiles in the pipeline makes sketches of their own.  Shared tiles are
swizzled where `ldmatrix` reads them; others, of words whose terms are not neighbours, have rows that begin 8 banks
further each, so that the four terms and eight columns which a warp reads at a time are in 32 banks.

Where groups of warps multiply (`wgmma`), there are sketches in which fragments of B name the tile that they read
(`warpgroup.py`); where only copies of factors suit rings, there are sketches with those (`copied_factors.py`).

Where few blocks have work, there are also sketches whose sums are in parts that another kernel adds up
(`split_reduction.py`), or, of rings, the blocks of a cluster (`split_ring.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ansor.sketch.rule import SketchContext, SketchRule
from te_lite.computation.tensor import Tensor
from te_lite.expr.lanes import ceildiv
from te_lite.schedule.schedule import Loop, Schedule, StageHandle
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import derive, elementwise_reader, extents_of
from ..analysis.product_roles import Factor, joinable
from ..pipeline.steps import COPY_ENGINE
from ..split_reductions.parts_over_blocks import PartsInCluster, PartsOverBlocks, rules_around
from ..split_reductions.split_reduction import is_part_of_split
from .copied_factors import is_copied, with_copies
from .float_parts import by_parts
from .product_factors import Warps, fetched, loaded, shared_copy, split_loop
from .product_kinds import KINDS, RINGS, SPLITS, Kind, kind_of, line_counts, products_in, roles_in, tile_counts
from .product_roles import Roles, roles_of, terms_of_groups
from .warp_tiles import without_points

RING_BLOCKS = 132
"""Of a kernel whose blocks compute one part of the result after the other: the multiprocessors of an H100 and H200."""
BLOCKS_BESIDE, LEFT_EMPTY = (16, 8, 4, 2, 1), 0.07
"""Blocks of rows that run at the same time, whose columns of the other factor are then in L2 once; how many more of
them there may be than blocks with work."""

BLOCK, RING_BLOCK = 64, 128
"""Rows and columns of a block that is worth having, of which split sums make more; of one with a ring."""
PART_FACTORS, CLUSTER_FACTORS, SHORTEST_PART, MOST_BLOCKS = (2, 4, 8), (2, 3, 4, 6, 8), 128, 4 * NOMINAL_SMS


@dataclass(frozen=True)
class Parts:
    """The stages of a product: `root` stores what `sums` adds up of `parts`, which come from the tiles `shared`.

    `joined` are the loops of `root`, first and count, that are one axis of `sums`; a ring brings the tiles, or not, as
    `kind` says.  Where `sums` are parts, in a first axis of theirs, `total` adds them up.
    """

    roles: Roles
    root: Tensor
    sums: Tensor
    shared: tuple[Tensor, Tensor]
    parts: tuple[Tensor, Tensor]
    joined: tuple[int, int] | None
    kind: Kind
    total: Tensor | None

    @property
    def factors(self) -> tuple[Factor, Factor]:
        return self.roles.a, self.roles.b


def part_factors(
    ctx: SketchContext, state: State, k: int, block: int = BLOCK, cluster: bool = False
) -> tuple[int, ...]:
    """The numbers of parts worth trying for stage `k`: of whole instructions, or, in a `cluster`, turns of a ring,
    `SHORTEST_PART` terms or more each; where a block has so many rows and columns.  Clusters add up floats, that are no
    products of parts."""
    floats = by_parts(state, k)
    ring = cluster or floats
    roles = None if is_part_of_split(state, k) else roles_of(ctx.target, state, k, ring, ring=ring)
    if roles is None:
        return ()
    op, extents = roles.op, [it.extent for it in state.stages[k].iters if isinstance(it.extent, int)]
    space, summed = extents[: len(state.stages[k].op.axis)], extents[len(state.stages[k].op.axis) + floats :]
    blocks = prod([-(-e // block) if axis in (roles.m, roles.n) else e for axis, e in enumerate(space)])
    terms = extents[roles.k]
    if blocks >= NOMINAL_SMS or terms < max(summed):
        return ()
    long, few = prod(summed) // SHORTEST_PART, MOST_BLOCKS // blocks
    turn, factors = (terms_of_groups(op), CLUSTER_FACTORS) if cluster else (op.k, PART_FACTORS)
    if cluster and (floats or op.sum.dtype != "float32"):
        return ()
    return tuple([f for f in factors if terms % (f * turn) == 0 and f <= min(long, few)])


def tensor_core_sketches(ctx: SketchContext) -> list[State]:
    """The sketches with all products that tensor cores can compute on them, whole and split; none without one."""
    start = ctx.dag.init_state
    if not ctx.target.is_gpu or not any(_is_product(ctx, start, k) for k in range(len(start.stages))):
        return []
    copies = with_copies(ctx.target, start)
    with_rings = [x for x in (start, copies) if x is not None and _has_ring(ctx, x)]
    rules = rules_around(ctx, _is_mine)
    out = _derived(ctx, start, rules, KINDS + RINGS)
    out += [s for state in with_rings if state is not start for s in _derived(ctx, state, rules, RINGS)]
    split = [s for state in with_rings for s in _of_parts(ctx, state, PartsInCluster, SPLITS)]
    rest = [] if split else with_rings
    split += [s for state in rest for s in _of_parts(ctx, state, PartsOverBlocks, RINGS)]
    return [*out, *_of_parts(ctx, start, PartsOverBlocks, KINDS), *split]


def _has_ring(ctx: SketchContext, state: State) -> bool:
    return any(products_in(ctx.target, state, kind) for kind in RINGS)


def _of_parts(ctx: SketchContext, state: State, by: type[PartsOverBlocks], kinds: Sequence[Kind]) -> list[State]:
    """Those whose sums are split into parts, which another kernel adds up, or the blocks of a cluster."""
    wanted = partial(part_factors, block=BLOCK if kinds == KINDS else RING_BLOCK, cluster=kinds == SPLITS)
    rules = rules_around(ctx, _is_mine_or_part if kinds == SPLITS else _is_mine)
    factors = sorted({f for k in range(len(state.stages)) for f in wanted(ctx, state, k)})
    found = [s for f in factors for s in _derived(ctx, state, (by(f, wanted), *rules), kinds)]
    return [s for s in found if any(isinstance(step, RFactor) for step in s.steps)]


def _is_product(ctx: SketchContext, state: State, k: int) -> bool:
    return kind_of(ctx.target, state, k, Kind()) is not None


def _is_mine(ctx: SketchContext, state: State, k: int) -> bool:
    """Whether stage `k` has all its loops from this file: a product, or a copy of a factor and its tile."""
    return is_copied(state, k) or _is_product(ctx, state, k)


def _is_mine_or_part(ctx: SketchContext, state: State, k: int) -> bool:
    return _is_mine(ctx, state, k) or is_part_of_split(state, k)


def _derived(ctx: SketchContext, start: State, rules: tuple[SketchRule, ...], kinds: Sequence[Kind]) -> list[State]:
    found = derive(ctx, rules, start, len(start.stages) - 1)
    able = [
        (state, kind) for kind in (*KINDS, *RINGS, *SPLITS) for state in found if products_in(ctx.target, state, kind)
    ]
    best = [x for x in able if x[1] in kinds and (x[1].better == x[1] or (x[0], x[1].better) not in able)]
    short = [
        (state, Kind(lines=lines))
        for state in found
        for lines in (line_counts(ctx.target, state) if Kind() in kinds else ())
    ]
    return [sketch for state, kind in best + short for sketch in _on_tensor_cores(ctx, state, kind)]


def _on_tensor_cores(ctx: SketchContext, state: State, kind: Kind) -> list[State]:
    """All products of a state on tensor cores, a sketch for each number of tiles that some of its lengths have: first
    all stages, then their loops, which name stages by number, and last the pipelines."""
    s = Schedule(state)
    keys = [stage.op.key for k, stage in enumerate(state.stages) if _is_product(ctx, state, k)]
    made = [_staged(s, ctx, next(k for k, x in enumerate(s.state.stages) if x.op.key == key), kind) for key in keys]
    for product in made:
        warp, sources = _stored(s, product, kind.lines)
        iteration, step = _multiplied(s, product)
        s[product.sums].compute_at(s[product.root], warp)
        for k, tile in enumerate(product.shared):
            s[tile].compute_at(s[product.sums], iteration)
            if not product.kind.ring:
                fetched(s[tile], product.factors[k], product.roles.op, Warps(sources))
        for k, part in enumerate(product.parts):
            s[part].compute_at(s[product.sums], step)
            loaded(s[part], product.factors[k], product.roles.op, "ab"[k], 1 if product.kind.ring else 2)
    rings = products_in(ctx.target, state, kind)
    counts = [
        n for n in tile_counts(state, kind) if all(roles_in(ctx.target, state, k, kind, n) is not None for k in rings)
    ]
    found = [_pipelined(s.state, made, n) for n in counts]
    return [sketch for sketch in found if not without_points(sketch, ctx.hardware)]


def _pipelined(state: State, made: Sequence[Parts], tiles: int) -> State:
    """The schedule of products with so many tiles in each of their pipelines."""
    s = Schedule(state)
    for product in made:
        for tile in product.shared:
            s[tile].pipeline(tiles, COPY_ENGINE if product.kind.ring else "")
    return s.state


# -------------------------------------------------------------------------------------------------------- stages


def _staged(s: Schedule, ctx: SketchContext, k: int, wanted: Kind) -> Parts:
    """Stage `k` with its sums, fragments and shared tiles as stages of their own, as in sketches of the wanted kind."""
    kind, reader = kind_of(ctx.target, s.state, k, wanted), elementwise_reader(s.state, k)
    assert kind is not None
    roles, joined = roles_in(ctx.target, s.state, k, kind), joinable(s.state, k, kind.ring) if kind.joined else None
    assert roles is not None
    result = s.state.stages[k].op.output()
    sources = [s.state.stages[f.stage].op.output() for f in (roles.a, roles.b)]
    scope = f"fragment.{roles.op.name}."
    total: Tensor | None = None
    if kind.split:
        s[result].set_scope(f"{scope}d")
        adds, reader = s.state.stages[k + 1].op.output(), elementwise_reader(s.state, k + 1)
        root, total, sums = adds, adds, result
        if reader is None:
            total = s.cache_write(adds, "local")
        else:
            root = s.state.stages[reader].op.output()
            s[adds].set_scope("local")
    elif reader is None:
        root, sums = result, s.cache_write(result, f"{scope}d")
    else:
        root, sums = s.state.stages[reader].op.output(), result
        s[sums].set_scope(f"{scope}d")
    if joined is not None:
        sums = s.join_axes(sums, *joined)
    a, b = [shared_copy(s, factor, x, sums) for factor, x in zip((roles.a, roles.b), sources, strict=True)]
    parts = [s.cache_read(x, f"{scope}{name}", [sums]) for x, name in ((a, "a"), (b, "b"))]
    return Parts(roles, root, sums, (a, b), (parts[0], parts[1]), joined, kind, total)


# --------------------------------------------------------------------------------------------------------- loops


def _stored(s: Schedule, made: Parts, lines: int) -> tuple[Loop, tuple[int, int]]:
    """Blocks, warps and lanes of the result; gives the loop over warps and the positions of the splits into them."""
    root, roles, over = s[made.root], made.roles, int(made.kind.split)
    loops = list(root.leaf_iter_vars)
    loops = [*loops[:over], *loops]  # those of `root` have the numbers of axes of `sums`, the first of which is no loop
    if made.joined is not None:
        first, count = made.joined
        loops[first : first + count] = [root.fuse(*loops[first : first + count])]
    (rows, i), (columns, j) = (
        split_loop(s, root, loops[axis], (length,)) for axis, length in ((roles.m, roles.op.m), (roles.n, roles.op.n))
    )
    beside: list[Loop] = []
    if lines > 1 and roles.beside is not None:
        loops[roles.beside], *beside = root.split(loops[roles.beside], lines)
    outer = [loop for axis, loop in enumerate(loops) if axis >= over and axis not in (roles.m, roles.n)]
    ones = [loop for loop in outer if made.kind.ring and root.stage.vars[loop.uid].extent == 1]
    sources, parts = [], []
    for loop in (rows, columns):
        parts.append(split_loop(s, root, loop, (None, None)))
        sources.append(len(s.state.steps) - 1)
    (block_i, warp_i, tile_i), (block_j, warp_j, tile_j) = parts
    blocks, cluster, (over_rows, over_columns) = [block_i, block_j], list[Loop](), made.kind.cluster
    if over_rows > 1:
        block_i, *cluster = root.split(block_i, over_rows)
    if over_columns > 1:
        block_j, *cluster = root.split(block_j, over_columns)
    if made.kind.ring:
        blocks = _blocks_in_turn(s, root, block_i, block_j, ceildiv(extents_of(s[made.sums].op)[roles.m], over_rows))
    outer = [loop for loop in outer if loop not in ones]  # whose quotients hide that those of blocks end with an array
    root.reorder(*ones, *outer, *blocks, *cluster, warp_i, warp_j, *beside, tile_i, tile_j, i, j)
    block = root.fuse(*outer, *blocks)
    if made.kind.ring and made.total is None:
        _, block = split_loop(s, root, block, (RING_BLOCKS // max(over_rows, over_columns),))
    for loop in cluster:
        root.bind(loop, "blockIdx.y")
    root.bind(block, "blockIdx.x")
    warp = root.fuse(warp_i, warp_j)
    root.bind(warp, "threadIdx.y")
    *_, values = root.split_fragment(i, j, f"{roles.op.name}.d")
    if roles.n == len(loops) - 1:
        root.vectorize(values[-1])
    if made.total is not None:
        s[made.total].compute_at(root, values[-2])
    return warp, (sources[0], sources[1])


def _blocks_in_turn(s: Schedule, root: StageHandle, rows: Loop, columns: Loop, extent: int) -> list[Loop]:
    """The order of blocks: some rows of them at the same time, so many that few blocks are without work."""
    count = ceildiv(extent, RING_BLOCK)
    if count <= max(BLOCKS_BESIDE):
        return [columns, rows]
    fits = [n for n in BLOCKS_BESIDE if ceildiv(count, n) * n <= (1 + LEFT_EMPTY) * count]
    rows, beside = split_loop(s, root, rows, (fits[0],))
    return [rows, columns, beside]


def _multiplied(s: Schedule, made: Parts) -> tuple[Loop, Loop]:
    """The loops of the sums; gives those at which tiles and fragments are fetched."""
    sums, roles, op, split = s[made.sums], made.roles, made.roles.op, made.kind.split
    loops, space = list(sums.leaf_iter_vars), len(sums.op.axis)
    outer = [loop for axis, loop in enumerate(loops) if axis not in (roles.m, roles.n, roles.k)]
    sides = (roles.m, op.m), (roles.n, op.n), (roles.k, op.k)
    (tile_i, i), (tile_j, j), (steps, k) = (split_loop(s, sums, loops[axis], (length,)) for axis, length in sides)
    iteration, step = split_loop(s, sums, steps, (None,))
    kept, summed = [x for x in outer if x in loops[:space]], [x for x in outer if x in loops[space:]]
    parts = [summed.pop(0)] if op.element.apart else []
    sums.reorder(*kept[:split], *summed, iteration, *parts, step, *kept[split:], tile_i, tile_j, i, j, k)
    sums.tensorize(i)
    if (roles.m, roles.n) != (space - 2, space - 1):
        sums.storage_order(*[d for d in range(space) if d not in (roles.m, roles.n)], roles.m, roles.n)
    return iteration, step
