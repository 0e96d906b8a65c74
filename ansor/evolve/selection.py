"""Who becomes a parent: scores made fit for a roulette, and the pool of the best programs, kept variant by variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..space.choices import Group, Space, Variant
from ..space.decisions.draw import Index, Mask, Scores

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
    merged = {v: _sorted(joined(parts)) for v, parts in by_variant.items()}
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


def _sorted(s: Scored) -> Scored:
    return s.take(np.argsort(-s.scores, kind="stable"))


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
