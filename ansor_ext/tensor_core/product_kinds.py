"""What sketches of products on tensor cores do beside others, and the roles that axes have in each kind of them.

The rows of a product are one axis of the computation, such as the columns of an image, of which there may be few: 14 of
them are one tile, whose block would read all filters for 14 points.  So there are sketches whose warps compute several
such lines, a number of the sketch: of rows of an image, or, where these fill their tiles better, of images of a batch.
And there are sketches in which the pixels of all images are one axis of the product (`te_lite` joins axes), so that
every tile is full: a pixel is fetched at quotients and remainders of its number, which do not change from iteration to
iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ansor.core.target.target import Target
from te_lite.expr.dtype import BYTES
from te_lite.expr.lanes import ceildiv
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheWrite
from te_lite.schedule.state import State

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import elementwise_reader, extents_of, has_rfactor, sums_over_several
from ..analysis.product_roles import Factor, joinable
from ..axes.steps import JoinAxes
from ..split_reductions.split_reduction import is_part_of_split
from .copied_factors import is_copied
from .float_parts import by_parts
from .product_roles import MOST, Roles, are_windows, roles_of, terms_of_groups, turns_of
from .warp_tiles import RING_TILES

LINES, SHORT = (2, 4, 8), 64
"""Lines of a warp, where they are no longer than `SHORT`."""
TILES, GROUP_TILES, PART_TILES = (2, 3, 4), (3, 4, 5), (2, 3, 4)
"""Tiles in the pipeline, of which one is in use and the others are on their way; of groups of warps, whose products
wait for a tile that is the next one, and go on over iterations with four and more."""


@dataclass(frozen=True)
class Kind:
    """What a sketch does beside others: multiply in `groups` of warps, in a `ring` of tiles, compute several `lines` a
    warp, take the pixels of all images as one axis (`joined`), share tiles in a `cluster` of blocks, add up parts of
    sums in one (`split`), or take what are columns in memory for rows (`turned`)."""

    groups: bool = False
    lines: int = 1
    joined: bool = False
    ring: bool = False
    cluster: tuple[int, int] = (1, 1)
    split: bool = False
    turned: bool = False

    @property
    def better(self) -> Kind:
        """What stands in for it where it can, as it was faster: a ring, and one of all pixels."""
        return replace(self, ring=True, joined=self.joined or self.ring)


KINDS = (Kind(), Kind(True), Kind(joined=True), Kind(True, joined=True))
CLUSTERS, SECTOR_BYTES = ((1, 1), (2, 1), (1, 2)), 32
"""Blocks of a cluster, rows and columns of them, which share the tiles of a ring that are the same for them: a launch
of clusters takes longer, but rows that begin within a sector of L2 cost twice what others do."""
SPLIT_TURNS = 4
"""Iterations of a part that blocks of a cluster add up, at least: its sums are put where its ring was."""
FEW_BLOCKS = 4 * NOMINAL_SMS
"""Of 128 x 128, of which other rows and columns may fill a machine better, if these can change places."""
RINGS = tuple([Kind(True, joined=joined, ring=True, cluster=n) for n in CLUSTERS for joined in (False, True)])
RINGS = (*RINGS, *[Kind(True, ring=True, cluster=n, turned=True) for n in CLUSTERS])
"""Those of one line a warp; with a ring."""
SPLITS = tuple([replace(kind, split=True) for kind in RINGS if kind.cluster == (1, 1)])
"""Those with a ring whose sums are added up by the blocks of a cluster."""


def tile_counts(state: State, kind: Kind) -> tuple[int, ...]:
    """How many tiles the pipelines of a kind have: a number for each sketch."""
    parts = kind.ring and any(by_parts(state, k) for k in range(len(state.stages)))
    return PART_TILES if parts else RING_TILES if kind.ring else GROUP_TILES if kind.groups else TILES


def line_counts(target: Target, state: State) -> tuple[int, ...]:
    """How many lines at a time are worth trying for the products of a state: none where none has short ones."""
    whole, kind = products_in(target, state, Kind()), Kind(lines=2)
    longest = max([_beside(roles_in(target, state, k, kind), state, k) for k in whole], default=0)
    return tuple([n for n in LINES if n < 2 * longest])


def _beside(roles: Roles | None, state: State, k: int) -> int:
    """The lines of a product that lie beside each other, if they are short; 0 where there are none."""
    extents = extents_of(state.stages[k].op)
    if roles is None or roles.beside is None or extents[roles.line] > SHORT:
        return 0
    return extents[roles.beside]


def products_in(target: Target, state: State, kind: Kind) -> list[int]:
    """The stages that tensor cores can compute in sketches of a kind."""
    return [k for k in range(len(state.stages)) if roles_in(target, state, k, kind) is not None]


@lru_cache(maxsize=512)
def roles_in(target: Target, state: State, k: int, kind: Kind, tiles: int = 0) -> Roles | None:
    """The roles in sketches of a kind, with so many tiles in the pipeline or the fewest; None where there are none.

    Of several lines at a time each fills its tiles.  The iterations of groups of warps are of one length: parts of
    split sums must be whole iterations.  A ring must go around twice where it fetches windows of several axes.
    """
    run = joinable(state, k, kind.ring) if kind.joined else None
    if kind.split and not has_rfactor(state, k):
        return None
    if kind.joined and run is None:
        return None
    whole = state
    if run is not None:
        state = state if elementwise_reader(state, k) is not None else apply(state, CacheWrite(k, "local"))
        state = apply(state, JoinAxes(k, *run))
    roles = roles_of(target, state, k, kind.groups, kind.lines > 1, kind.ring)
    if roles is not None and kind.turned:
        roles = _turned(state, k, roles)
    if roles is not None and kind.ring:
        tiles = tiles or min(tile_counts(whole, kind))
        alone = max(kind.cluster) == 1 or (run is None and _are_shared(state, k, roles, kind))
        if not alone or not _are_fetched(whole, state, k, roles, run, tiles):
            return None
    if roles is not None and kind.split and turns_of(state, k, roles) < SPLIT_TURNS:
        return None
    if roles is None or not kind.groups or not is_part_of_split(state, k):
        return roles
    extent = [it.extent for it in state.stages[k].iters][roles.k]
    return roles if isinstance(extent, int) and extent % terms_of_groups(roles.op) == 0 else None


def _turned(state: State, k: int, roles: Roles) -> Roles | None:
    """The roles with rows for columns, where B lies across its terms and A does not, and few blocks have work: they may
    then have any multiple of 8 columns."""
    across, extents = roles.b.last == roles.b.side and roles.a.last == roles.a.terms, extents_of(state.stages[k].op)
    if not across or ceildiv(extents[roles.m], MOST[0]) * ceildiv(extents[roles.n], MOST[0]) > FEW_BLOCKS:
        return None
    return replace(roles, m=roles.n, n=roles.m, a=roles.b, b=roles.a, beside=None)


def _are_fetched(whole: State, state: State, k: int, roles: Roles, run: tuple[int, int] | None, tiles: int) -> bool:
    """Whether the copy engine fetches the factors of stage `k` to a ring of so many tiles, of which the axes of a `run`
    of the `whole` state are one: as rows in memory, or as windows, and twice around where these have several axes."""
    if sums_over_several(state.stages[k].op) and turns_of(state, k, roles) < 2 * tiles:
        return False
    if (run is None and not roles.a.reindexed and not roles.b.reindexed) or _are_rows(state, k, roles):
        return True
    return run is not None and not roles.b.reindexed and are_windows(whole, k, roles.a.stage, run)


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


def kind_of(target: Target, state: State, k: int, wanted: Kind) -> Kind | None:
    """The wanted kind if stage `k` has roles in it, else another one; None where tensor cores cannot compute it."""
    alone = replace(wanted, cluster=(1, 1), split=False, turned=False)
    kinds = (wanted, alone, replace(alone, ring=False), Kind(), Kind(joined=True), *RINGS)
    return next((kind for kind in kinds if roles_in(target, state, k, kind) is not None), None)
