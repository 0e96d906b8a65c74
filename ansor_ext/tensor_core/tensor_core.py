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

Where few blocks have work, there are also sketches whose sums are in parts that are added later (`split_reduction.py`).

The rows of a product are one axis of the computation, such as the columns of an image, of which there may be few: 14 of
them are one tile, whose block would read all filters for 14 points.  So there are sketches whose warps compute several
such lines, a number of the sketch: of rows of an image, or, where these fill their tiles better, of images of a batch.
And there are sketches in which the pixels of all images are one axis of the product (`te_lite` joins axes), so that
every tile is full: a pixel is fetched at quotients and remainders of its number, which do not change from iteration to
iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod

from ansor.core.target.target import Target
from ansor.sketch.rule import SketchContext, SketchRule
from te_lite.computation.tensor import Tensor
from te_lite.expr.dtype import BYTES
from te_lite.expr.lanes import ceildiv
from te_lite.schedule.replay import apply
from te_lite.schedule.schedule import Loop, Schedule, StageHandle
from te_lite.schedule.stage_steps import CacheWrite, RFactor
from te_lite.schedule.state import State

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import derive, elementwise_reader, extents_of
from ..analysis.product_roles import Factor, joinable
from ..axes.steps import JoinAxes
from ..pipeline.steps import COPY_ENGINE
from ..split_reductions.parts_over_blocks import PartsOverBlocks, rules_around
from ..split_reductions.split_reduction import is_part_of_split
from .copied_factors import is_copied, with_copies
from .float_parts import by_parts
from .product_factors import Warps, fetched, loaded, shared_copy, split_loop
from .product_roles import Roles, are_windows, roles_of, terms_of_groups, turns_of
from .warp_tiles import RING_TILES, without_points

LINES, SHORT = (2, 4, 8), 64
"""Lines of a warp, where they are no longer than `SHORT`."""
TILES, GROUP_TILES, PART_TILES = (2, 3, 4), (3, 4, 5), (2, 3, 4)
"""Tiles in the pipeline, of which one is in use and the others are on their way; of groups of warps, whose products
wait for a tile that is the next one, and go on over iterations with four and more."""
RING_BLOCKS = 132
"""Of a kernel whose blocks compute one part of the result after the other: the multiprocessors of an H100 and H200."""
BLOCKS_BESIDE, LEFT_EMPTY = (16, 8, 4, 2, 1), 0.07
"""Blocks of rows that run at the same time, whose columns of the other factor are then in L2 once; how many more of
them there may be than blocks with work."""

BLOCK, RING_BLOCK = 64, 128
"""Rows and columns of a block that is worth having, of which split sums make more; of one with a ring."""
PART_FACTORS, SHORTEST_PART, MOST_BLOCKS = (2, 4, 8), 128, 4 * NOMINAL_SMS


@dataclass(frozen=True)
class Kind:
    """What a sketch does beside others: multiply in `groups` of warps, in a `ring` of tiles, compute several `lines` a
    warp, or take the pixels of all images as one axis (`joined`)."""

    groups: bool = False
    lines: int = 1
    joined: bool = False
    ring: bool = False
    cluster: tuple[int, int] = (1, 1)

    @property
    def better(self) -> Kind:
        """What stands in for it where it can, as it was faster: a ring, and one of all pixels."""
        return replace(self, ring=True, joined=self.joined or self.ring)


KINDS = (Kind(), Kind(True), Kind(joined=True), Kind(True, joined=True))
CLUSTERS, SECTOR_BYTES = ((1, 1), (2, 1), (1, 2)), 32
"""Blocks of a cluster, rows and columns of them, which share the tiles of a ring that are the same for them: a launch
of clusters takes longer, but rows that begin within a sector of L2 cost twice what others do."""
MOST = (128, 256)
"""Rows and columns of the largest block."""
RINGS = tuple([Kind(True, joined=joined, ring=True, cluster=n) for n in CLUSTERS for joined in (False, True)])
"""Those of one line a warp; with a ring."""


@dataclass(frozen=True)
class Parts:
    """The stages of a product: `root` stores what `sums` adds up of `parts`, which come from the tiles `shared`.

    `joined` are the loops of `root`, first and count, that are one axis of `sums`; a ring brings the tiles, or not, as
    `kind` says.
    """

    roles: Roles
    root: Tensor
    sums: Tensor
    shared: tuple[Tensor, Tensor]
    parts: tuple[Tensor, Tensor]
    joined: tuple[int, int] | None
    kind: Kind

    @property
    def factors(self) -> tuple[Factor, Factor]:
        return self.roles.a, self.roles.b


def part_factors(ctx: SketchContext, state: State, k: int, block: int = BLOCK) -> tuple[int, ...]:
    """The numbers of parts worth trying for stage `k`: of whole instructions, `SHORTEST_PART` terms or more each; where
    a block has so many rows and columns."""
    ring = by_parts(state, k)
    roles = None if is_part_of_split(state, k) else roles_of(ctx.target, state, k, ring, ring=ring)
    if roles is None:
        return ()
    op, extents = roles.op, [it.extent for it in state.stages[k].iters if isinstance(it.extent, int)]
    space, summed = extents[: len(state.stages[k].op.axis)], extents[len(state.stages[k].op.axis) + ring :]
    blocks = prod([-(-e // block) if axis in (roles.m, roles.n) else e for axis, e in enumerate(space)])
    terms = extents[roles.k]
    if blocks >= NOMINAL_SMS or terms < max(summed):
        return ()
    long, few = prod(summed) // SHORTEST_PART, MOST_BLOCKS // blocks
    return tuple([f for f in PART_FACTORS if terms % (f * op.k) == 0 and f <= min(long, few)])


def tensor_core_sketches(ctx: SketchContext) -> list[State]:
    """The sketches with all products that tensor cores can compute on them, whole and split; none without one."""
    start = ctx.dag.init_state
    if not ctx.target.is_gpu or not any(_is_product(ctx, start, k) for k in range(len(start.stages))):
        return []
    copies = with_copies(ctx.target, start)
    with_rings = [x for x in (start, copies) if x is not None and any(_products(ctx, x, kind) for kind in RINGS)]
    rules = rules_around(ctx, _is_mine)
    out = _derived(ctx, start, rules, KINDS + RINGS)
    out += [s for state in with_rings if state is not start for s in _derived(ctx, state, rules, RINGS)]
    for state, kinds, block in [(start, KINDS, BLOCK), *[(state, RINGS, RING_BLOCK) for state in with_rings]]:
        wanted = partial(part_factors, block=block)
        for factor in sorted({f for k in range(len(state.stages)) for f in wanted(ctx, state, k)}):
            out += [s for s in _derived(ctx, state, (PartsOverBlocks(factor, wanted), *rules), kinds) if _is_split(s)]
    return out


def _is_split(sketch: State) -> bool:
    return any(isinstance(step, RFactor) for step in sketch.steps)


def _is_product(ctx: SketchContext, state: State, k: int) -> bool:
    return _kind_of(ctx, state, k, Kind()) is not None


def _is_mine(ctx: SketchContext, state: State, k: int) -> bool:
    """Whether stage `k` has all its loops from this file: a product, or a copy of a factor and its tile."""
    return is_copied(state, k) or _is_product(ctx, state, k)


def _derived(ctx: SketchContext, start: State, rules: tuple[SketchRule, ...], kinds: Sequence[Kind]) -> list[State]:
    found = derive(ctx, rules, start, len(start.stages) - 1)
    able = [(state, kind) for kind in KINDS + RINGS for state in found if _products(ctx, state, kind)]
    best = [x for x in able if x[1] in kinds and (x[1].better == x[1] or (x[0], x[1].better) not in able)]
    short = [(state, Kind(lines=lines)) for state in found for lines in (_lines(ctx, state) if kinds != RINGS else ())]
    return [sketch for state, kind in best + short for sketch in _on_tensor_cores(ctx, state, kind)]


def _tiles(state: State, kind: Kind) -> tuple[int, ...]:
    """How many tiles the pipelines of a kind have: a number for each sketch."""
    parts = kind.ring and any(by_parts(state, k) for k in range(len(state.stages)))
    return PART_TILES if parts else RING_TILES if kind.ring else GROUP_TILES if kind.groups else TILES


def _lines(ctx: SketchContext, state: State) -> tuple[int, ...]:
    """How many lines at a time are worth trying for the products of a state: none where none has short ones."""
    whole, kind = _products(ctx, state, Kind()), Kind(lines=2)
    longest = max([_beside(_roles(ctx.target, state, k, kind), state, k) for k in whole], default=0)
    return tuple([n for n in LINES if n < 2 * longest])


def _beside(roles: Roles | None, state: State, k: int) -> int:
    """The lines of a product that lie beside each other, if they are short; 0 where there are none."""
    extents = extents_of(state.stages[k].op)
    if roles is None or roles.beside is None or extents[roles.line] > SHORT:
        return 0
    return extents[roles.beside]


def _products(ctx: SketchContext, state: State, kind: Kind) -> list[int]:
    """The stages that tensor cores can compute in sketches of a kind."""
    return [k for k in range(len(state.stages)) if _roles(ctx.target, state, k, kind) is not None]


@lru_cache(maxsize=512)
def _roles(target: Target, state: State, k: int, kind: Kind, tiles: int = 0) -> Roles | None:
    """The roles in sketches of a kind, with so many tiles in the pipeline or the fewest; None where there are none.

    Of several lines at a time each fills its tiles.  The iterations of groups of warps are of one length: parts of
    split sums must be whole iterations.  A ring must go around twice where it fetches windows of several axes.
    """
    run = joinable(state, k, kind.ring) if kind.joined else None
    if kind.joined and run is None:
        return None
    whole = state
    if run is not None:
        state = state if elementwise_reader(state, k) is not None else apply(state, CacheWrite(k, "local"))
        state = apply(state, JoinAxes(k, *run))
    roles = roles_of(target, state, k, kind.groups, kind.lines > 1, kind.ring)
    if roles is not None and kind.ring:
        tiles = tiles or min(_tiles(whole, kind))
        alone = max(kind.cluster) == 1 or (run is None and _are_shared(state, k, roles, kind))
        if not alone or not _are_fetched(whole, state, k, roles, run, tiles):
            return None
    if roles is None or not kind.groups or not is_part_of_split(state, k):
        return roles
    extent = [it.extent for it in state.stages[k].iters][roles.k]
    return roles if isinstance(extent, int) and extent % terms_of_groups(roles.op) == 0 else None


def _are_fetched(whole: State, state: State, k: int, roles: Roles, run: tuple[int, int] | None, tiles: int) -> bool:
    """Whether the copy engine fetches the factors of stage `k` to a ring of so many tiles, of which the axes of a `run`
    of the `whole` state are one: as rows in memory, or as windows, and twice around where these have several axes."""
    if (run is None and not roles.a.reindexed and not roles.b.reindexed) or _are_rows(state, k, roles):
        return True
    op = state.stages[k].op
    several = len([n for n in extents_of(op)[len(op.axis) :] if n > 1]) > 1
    early = several and turns_of(state, k, roles) < 2 * tiles
    return run is not None and not early and not roles.b.reindexed and are_windows(whole, k, roles.a.stage, run)


def _are_shared(state: State, k: int, roles: Roles, kind: Kind) -> bool:
    """Whether blocks of a cluster may win by sharing tiles: of matrices as they are given, some out of sectors, whose
    largest blocks are not the only ones."""
    given = [f for f in (roles.a, roles.b) if not f.reindexed and not is_copied(state, f.stage)]
    extents = extents_of(state.stages[k].op)
    sides = zip(kind.cluster, (roles.m, roles.n), MOST, strict=True)
    several = all(n == 1 or extents[axis] > most for n, axis, most in sides)
    return len(given) == 2 and several and not all(_in_sectors(state, f) for f in given)


def _in_sectors(state: State, factor: Factor) -> bool:
    """Whether rows of a factor in memory begin at multiples of what L2 gives at a time."""
    array = state.stages[factor.stage].op.output()
    return array.shape[-1] * BYTES[array.dtype] % SECTOR_BYTES == 0


def _are_rows(state: State, k: int, roles: Roles) -> bool:
    """Whether the joined axes of stage `k` are all rows of A in memory: the pixels of images under filters of 1 x 1."""
    extents, space = extents_of(state.stages[k].op), len(state.stages[k].op.axis)
    rows = prod(state.stages[roles.a.stage].op.output().shape[:-1])
    return rows == prod(extents[:space]) // extents[roles.n] and prod(extents[space:]) == extents[roles.k]


def _kind_of(ctx: SketchContext, state: State, k: int, wanted: Kind) -> Kind | None:
    """The wanted kind if stage `k` has roles in it, else another one; None where tensor cores cannot compute it."""
    alone = replace(wanted, cluster=(1, 1))
    kinds = (wanted, alone, replace(alone, ring=False), Kind(), Kind(joined=True), *RINGS)
    return next((kind for kind in kinds if _roles(ctx.target, state, k, kind) is not None), None)


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
    rings = _products(ctx, state, kind)
    counts = [n for n in _tiles(state, kind) if all(_roles(ctx.target, state, k, kind, n) is not None for k in rings)]
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
    kind, reader = _kind_of(ctx, s.state, k, wanted), elementwise_reader(s.state, k)
    assert kind is not None
    roles, joined = _roles(ctx.target, s.state, k, kind), joinable(s.state, k, kind.ring) if kind.joined else None
    assert roles is not None
    result = s.state.stages[k].op.output()
    sources = [s.state.stages[f.stage].op.output() for f in (roles.a, roles.b)]
    scope = f"fragment.{roles.op.name}."
    if reader is None:
        root, sums = result, s.cache_write(result, f"{scope}d")
    else:
        root, sums = s.state.stages[reader].op.output(), result
        s[sums].set_scope(f"{scope}d")
    if joined is not None:
        sums = s.join_axes(sums, *joined)
    a, b = [shared_copy(s, factor, x, sums) for factor, x in zip((roles.a, roles.b), sources, strict=True)]
    parts = [s.cache_read(x, f"{scope}{name}", [sums]) for x, name in ((a, "a"), (b, "b"))]
    return Parts(roles, root, sums, (a, b), (parts[0], parts[1]), joined, kind)


# --------------------------------------------------------------------------------------------------------- loops


def _stored(s: Schedule, made: Parts, lines: int) -> tuple[Loop, tuple[int, int]]:
    """Blocks, warps and lanes of the result; gives the loop over warps and the positions of the splits into them."""
    root, roles = s[made.root], made.roles
    loops = list(root.leaf_iter_vars)
    if made.joined is not None:
        first, count = made.joined
        loops[first : first + count] = [root.fuse(*loops[first : first + count])]
    (rows, i), (columns, j) = (
        split_loop(s, root, loops[axis], (length,)) for axis, length in ((roles.m, roles.op.m), (roles.n, roles.op.n))
    )
    beside: list[Loop] = []
    if lines > 1 and roles.beside is not None:
        loops[roles.beside], *beside = root.split(loops[roles.beside], lines)
    outer = [loop for axis, loop in enumerate(loops) if axis not in (roles.m, roles.n)]
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
    if made.kind.ring:
        _, block = split_loop(s, root, block, (RING_BLOCKS // max(over_rows, over_columns),))
    for loop in cluster:
        root.bind(loop, "blockIdx.y")
    root.bind(block, "blockIdx.x")
    warp = root.fuse(warp_i, warp_j)
    root.bind(warp, "threadIdx.y")
    *_, values = root.split_fragment(i, j, f"{roles.op.name}.d")
    if roles.n == len(loops) - 1:
        root.vectorize(values[-1])
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
    sums, roles, op = s[made.sums], made.roles, made.roles.op
    loops, space = list(sums.leaf_iter_vars), len(sums.op.axis)
    outer = [loop for axis, loop in enumerate(loops) if axis not in (roles.m, roles.n, roles.k)]
    sides = (roles.m, op.m), (roles.n, op.n), (roles.k, op.k)
    (tile_i, i), (tile_j, j), (steps, k) = (split_loop(s, sums, loops[axis], (length,)) for axis, length in sides)
    iteration, step = split_loop(s, sums, steps, (None,))
    kept, summed = [x for x in outer if x in loops[:space]], [x for x in outer if x in loops[space:]]
    parts = [summed.pop(0)] if op.element.apart else []
    sums.reorder(*summed, iteration, *parts, step, *kept, tile_i, tile_j, i, j, k)
    sums.tensorize(i)
    if (roles.m, roles.n) != (space - 2, space - 1):
        sums.storage_order(*[d for d in range(space) if d not in (roles.m, roles.n)], roles.m, roles.n)
    return iteration, step
