"""Who becomes a parent: scores made fit for a roulette, and the pool of the best programs of every kind.

The pool is kept variant by variant, and within a variant by buckets.  Two programs share a bucket when, stage by stage,
the products of their lengths at every level agree up to a factor of 2: the number of threads, the size of the tile of a
thread, the length of the inner reduction, and so on (the hierarchical sampling of Anderson et al., OOPSLA 2021, section
3.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..space.decisions.draw import Index, Mask, Matrix, Scores
from ..space.spaces import Group, Space, Variant

# --------------------------------------------------------------------------------------------------- structural buckets


Row = tuple[Variant, np.ndarray]


@lru_cache(maxsize=256)
def _levels(space: Space) -> tuple[tuple[int, ...], ...]:
    """The columns that are multiplied: for each stage and kind of loop, those of one level."""
    found: dict[tuple[int, bool, int], list[int]] = {}
    for tile in space.tiles:
        for level in range(tile.parts):
            found.setdefault((tile.stage, tile.reduce, level), []).append(tile.first + level)
    of_grids = [(column,) for grid in space.grids for column in range(grid.first, grid.first + grid.width)]
    return (*[tuple(columns) for columns in found.values()], *of_grids)


def bucket(space: Space, rows: Matrix) -> Matrix:
    """The bucket of each row: int64 [n, levels], floor(log2) of the products."""
    levels = [np.log2(rows[:, columns].prod(axis=1)) for columns in map(list, _levels(space))]
    return np.stack(levels, axis=1).astype(np.int64) if levels else np.zeros((len(rows), 0), np.int64)


def spread(rows: Sequence[Row], most: int) -> Iterator[Row]:
    """The rows in their order, those first that are among the `most` first ones of their bucket."""
    taken: Counter[tuple[Variant, bytes]] = Counter()
    late = []
    for variant, row in rows:
        key = (variant, bucket(variant.space, row[None, :]).tobytes())
        taken[key] += 1
        if taken[key] <= most:
            yield variant, row
        else:
            late.append((variant, row))
    yield from late


BASE = 0.05
"""The weight of the worst finite score in the roulette, where the best one has 1 + BASE."""


@dataclass(frozen=True)
class Scored:
    """A group with a score per row (float64 [n], NaN never) and, if the model tells, per row and stage."""

    group: Group
    scores: Scores
    stages: Scores | None = None

    def take(self, which: Mask | Index) -> Scored:
        stages = None if self.stages is None else self.stages[which]
        return Scored(Group(self.group.variant, self.group.rows[which]), self.scores[which], stages)


def joined(parts: Sequence[Scored]) -> Scored:
    """All rows as one group of the variant of the first part; the parts share a space."""
    stages = [p.stages for p in parts if p.stages is not None]
    return Scored(
        Group(parts[0].group.variant, np.concatenate([p.group.rows for p in parts])),
        np.concatenate([p.scores for p in parts]),
        np.concatenate(stages) if len(stages) == len(parts) else None,
    )


def fitness(scores: Scores) -> Scores:
    """Roulette weights of any scores: not negative, their sum positive; float64 [n] of the same order as `scores`.

    Finite scores are stretched to BASE .. 1 + BASE, so that only their differences count; +inf counts as the largest
    of them, -inf and NaN as no chance.  Where nothing has a chance all have the same one.
    """
    finite = np.isfinite(scores)
    out = np.zeros(len(scores))
    if finite.any():
        largest = np.abs(scores[finite]).max()
        scaled = scores[finite] / (largest if largest > 0 else 1.0)
        spread = scaled.max() - scaled.min()
        out[finite] = BASE + ((scaled - scaled.min()) / spread if spread > 0 else 1.0)
    out[scores == np.inf] = 1 + BASE
    return out if out.any() else np.ones(len(scores))


Pool = dict[Variant, Scored]
"""The best programs of each variant, best first."""


def best_of(pool: Pool, new: Sequence[Scored], size: int, most_variants: int) -> Pool:
    """The pool after `new` programs came: at most `size` programs of at most `most_variants` variants.

    Each variant keeps its best `size // (2 * most_variants)`; the rest are the best of all, whatever their variant.
    Variants leave by their best score, those of a space with several first.
    """
    by_variant: dict[Variant, list[Scored]] = {v: [s] for v, s in pool.items()}
    for s in new:
        if len(s.scores):
            by_variant.setdefault(s.group.variant, []).append(s)
    whole = {v: joined(parts) for v, parts in by_variant.items()}
    merged = {v: s.take(np.argsort(-s.scores, kind="stable")) for v, s in whole.items()}
    if not merged:
        return {}
    kept = _best_variants(merged, most_variants)
    scores = np.concatenate([merged[v].scores for v in kept])
    place = np.concatenate([np.arange(len(merged[v].scores)) for v in kept])
    reserved = place < max(size // (2 * most_variants), 1)
    chosen = np.zeros(len(scores), np.bool_)
    chosen[np.lexsort((-scores, ~reserved))[:size]] = True
    ends = np.cumsum([len(merged[v].scores) for v in kept])[:-1]
    masks = dict(zip(kept, np.split(chosen, ends), strict=True))
    return {v: merged[v].take(mask) for v, mask in masks.items() if mask.any()}


def _best_variants(merged: Pool, most: int) -> list[Variant]:
    """The variants to keep, in their order: the best of each space come before all others."""
    by_score = sorted(merged, key=lambda v: -merged[v].scores[0])
    spaces: set[Space] = set()
    leaders = []
    for v in by_score:
        if v.space not in spaces:
            spaces.add(v.space)
            leaders.append(v)
    ranked = leaders + [v for v in by_score if v not in leaders]
    kept = set(ranked[:most])
    return [v for v in merged if v in kept]
