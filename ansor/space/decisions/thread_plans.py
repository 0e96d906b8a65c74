"""How the tiles that make the threads of a kernel are drawn (section 4.2 of the Ansor paper, on a GPU).

The lengths of one kernel are drawn together, among the assignments whose virtual threads and threads fit the machine,
by the product of their `tile_weights` (uniformly, where no tile may run over the edge): the tables of the axes are
grouped by (virtual threads, threads), the ways to complete a partial product are counted once, and the draw follows the
counts, so nothing is rejected and nothing that fits is excluded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from te_lite.expr.storage import storage_class
from te_lite.schedule.state import ATTACHED, State

from ...core.target.hardware import HardwareParams
from ...sketch.predicates import needs_tiling, spatial_split_steps
from .decision import Tile
from .factor_tables import tile_table, tile_weights

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ThreadLimits:
    """What the products over the spatial splits of one kernel must keep to."""

    max_vthread: int
    min_threads: int
    max_threads: int


@lru_cache(maxsize=256)
def thread_splits(sketch: State) -> dict[int, tuple[int, ...]]:
    """The spatial splits of every tiled stage that is computed inside another one, by stage number."""
    return {
        k: tuple(spatial_split_steps(sketch, k))
        for k, stage in enumerate(sketch.stages)
        if stage.where == ATTACHED and needs_tiling(sketch, k) and storage_class(stage.op.scope) != "fragment"
    }


def thread_limits(sketch: State, k: int, hardware: HardwareParams) -> ThreadLimits:
    """The limits of the kernel that tiled stage `k` is computed in; small outputs may use less than a warp."""
    attach = sketch.stages[k].attach
    assert attach is not None
    points = int(np.prod(sketch.stages[attach.stage].op.shape, dtype=object))
    warp = hardware.warp_size
    minimum = warp if points > 2 * warp else 1
    return ThreadLimits(hardware.max_vthread_extent, minimum, hardware.max_threads_per_block)


@dataclass(frozen=True)
class ThreadPlan:
    """Rows of each axis' table by (virtual threads, threads), their weights, and the number of ways to go on from each
    product, in which a row counts by its weight."""

    tables: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]
    groups: tuple[dict[Pair, np.ndarray], ...]
    ways: tuple[dict[Pair, float], ...]

    def draw(self, n: int, rng: np.random.Generator) -> list[np.ndarray]:
        """`n` assignments: for each axis an int64 array [n, parts]."""
        out = []
        state = np.zeros(n, np.int64)
        for table, level in zip(self.tables, self.levels, strict=True):
            entry = np.searchsorted(level.edges, state + rng.random(n), side="right")
            entry = np.clip(entry, level.begin[state], level.begin[state + 1] - 1)
            group = level.group[entry]
            chosen = np.searchsorted(level.row_edges, group + rng.random(n), side="right")
            out.append(table[level.rows[np.clip(chosen, level.first[group], level.first[group + 1] - 1)]])
            state = level.after[entry]
        return out

    @cached_property
    def levels(self) -> tuple[_Level, ...]:
        """The same counts as arrays, for draws of many rows."""
        index: dict[Pair, int] = {(1, 1): 0}
        out = []
        for groups, weights, after in zip(self.groups, self.weights, self.ways[1:], strict=True):
            following = {pair: n for n, pair in enumerate(after)}
            out.append(_level(index, groups, weights, following, after))
            index = following
        return tuple(out)


@dataclass(frozen=True)
class _Level:
    """How one axis is drawn: states are the products so far, entries are pairs that fit behind a state.

    Entries of state s are `begin[s] .. begin[s + 1] - 1` and share the interval [s, s + 1) of `edges` by weight; an
    entry is a group of rows of the table and leads to state `after`.  The rows `rows[first[g] : first[g + 1]]` of group
    g share the interval [g, g + 1) of `row_edges`.
    """

    edges: np.ndarray
    begin: np.ndarray
    group: np.ndarray
    after: np.ndarray
    rows: np.ndarray
    first: np.ndarray
    row_edges: np.ndarray


def _level(
    index: dict[Pair, int],
    groups: dict[Pair, np.ndarray],
    weights: np.ndarray,
    following: dict[Pair, int],
    after: dict[Pair, float],
) -> _Level:
    pairs = list(groups)
    sums = [np.cumsum(weights[groups[p]]) for p in pairs]
    edges, begin, entries, states = [], [0], [], []
    for done, s in index.items():
        fitting = [(g, _times(done, p)) for g, p in enumerate(pairs) if _times(done, p) in after]
        shares = np.cumsum([sums[g][-1] * after[t] for g, t in fitting])
        edges.append(s + shares / shares[-1])
        entries += [g for g, _ in fitting]
        states += [following[t] for _, t in fitting]
        begin.append(len(entries))
    return _Level(
        edges=np.concatenate(edges),
        begin=np.array(begin),
        group=np.array(entries),
        after=np.array(states),
        rows=np.concatenate([groups[p] for p in pairs]),
        first=np.cumsum([0, *[len(groups[p]) for p in pairs]]),
        row_edges=np.concatenate([g + of / of[-1] for g, of in enumerate(sums)]),
    )


def _times(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0], a[1] * b[1]


@lru_cache(maxsize=512)
def thread_plan(
    extents: tuple[tuple[int, ...], ...], parts: int, limits: ThreadLimits, max_innermost: int
) -> ThreadPlan:
    """How to draw the splits (`parts` lengths each) of axes with these extents (those of a `Tile` for each).

    When no assignment has `min_threads` threads, fewer are allowed.
    """
    tables = tuple([tile_table(e, parts, max_innermost) for e in extents])
    weights = tuple([tile_weights(e, parts, max_innermost) for e in extents])
    groups = tuple([_by_threads(t, limits) for t in tables])
    reached: list[set[Pair]] = [{(1, 1)}]
    for pairs in groups:
        products = {_times(a, b) for a in reached[-1] for b in pairs}
        reached.append({p for p in products if p[0] <= limits.max_vthread and p[1] <= limits.max_threads})
    ways: dict[Pair, float] = {p: 1.0 for p in reached[-1] if p[1] >= limits.min_threads}
    if not ways:
        return thread_plan(extents, parts, replace(limits, min_threads=1), max_innermost)
    counts = [ways]
    for pairs, of, before in zip(reversed(groups), reversed(weights), reversed(reached[:-1]), strict=True):
        counts.append(_ways_before({pair: float(of[rows].sum()) for pair, rows in pairs.items()}, before, counts[-1]))
    return ThreadPlan(tables, weights, groups, tuple(reversed(counts)))


def _by_threads(table: np.ndarray, limits: ThreadLimits) -> dict[Pair, np.ndarray]:
    ok = np.flatnonzero((table[:, 0] <= limits.max_vthread) & (table[:, 1] <= limits.max_threads))
    groups: dict[Pair, list[int]] = {}
    for row in ok.tolist():
        groups.setdefault((int(table[row, 0]), int(table[row, 1])), []).append(row)
    return {pair: np.array(rows) for pair, rows in groups.items()}


def _ways_before(pairs: dict[Pair, float], before: set[Pair], after: dict[Pair, float]) -> dict[Pair, float]:
    out = {}
    for done in before:
        total = sum(weight * after.get(_times(done, pair), 0.0) for pair, weight in pairs.items())
        if total:
            out[done] = total
    return out


@dataclass(frozen=True)
class Kernel:
    """The tiles that make the threads of a kernel, how they are drawn, and the limits that this keeps to."""

    tiles: tuple[Tile, ...]
    plan: ThreadPlan
    limits: ThreadLimits


@lru_cache(maxsize=256)
def kernels(sketch: State, tiles: tuple[Tile, ...], hardware: HardwareParams) -> tuple[Kernel, ...]:
    """The kernels of a sketch that have tiles; one whose outputs are few may use less than a warp."""
    by_step = {t.step: t for t in tiles}
    out = []
    for k, positions in thread_splits(sketch).items():
        mine = tuple([by_step[p] for p in positions if p in by_step])
        if mine:
            limits = thread_limits(sketch, k, hardware)
            plan = thread_plan(tuple([t.extents for t in mine]), mine[0].parts, limits, mine[0].max_innermost)
            reachable = min(threads for _, threads in plan.ways[-1])
            least = limits.min_threads if reachable >= limits.min_threads else 1
            out.append(Kernel(mine, plan, replace(limits, min_threads=least)))
    return tuple(out)
