"""Small changes of many programs at once: every mutation is a few array operations on a decision matrix.

A mutation takes rows of one space and gives changed copies, with a mask of the rows it did change.  `mutate` deals
rows out to mutations by their weights and deals again what was not changed or is not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..core.target.target import Target
from ..space.decisions.decision import Decision
from ..space.decisions.draw import Mask, Matrix, roulette
from ..space.decisions.factor_tables import draw_tiles
from ..space.decisions.table import DECISIONS, Decisions, decisions_of
from ..space.spaces import Space

ATTEMPTS = 4


@runtime_checkable
class Mutation(Protocol):
    """One way to change programs; a mutation of one's own needs nothing but these three."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float:
        """How often it is chosen, relative to the others."""

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Changed copies of `rows` (int64 [n, width]), valid in `space`, and which of them differ (bool [n])."""


def mutate(
    rows: Matrix,
    space: Space,
    mutations: Sequence[Mutation],
    rng: np.random.Generator,
    allowed: Callable[[Matrix], Mask] | None = None,
) -> tuple[Matrix, Mask]:
    """Every row changed by one mutation, drawn by weight: int64 [n, width], and which rows were changed: bool [n].

    A row that its mutation leaves as it is, or turns into one that is not `allowed`, is dealt again, `ATTEMPTS`
    times; a mutation that changes none of its rows is not asked again.
    """
    out = rows.copy()
    waiting = np.arange(len(rows))
    weights = np.array([m.weight for m in mutations], np.float64)
    for _ in range(ATTEMPTS):
        if not len(waiting) or not weights.any():
            break
        chosen = roulette(weights, len(waiting), rng)
        changed, done = rows[waiting], np.zeros(len(waiting), np.bool_)
        for m, mutation in enumerate(mutations):
            mine = np.flatnonzero(chosen == m)
            if len(mine):
                changed[mine], done[mine] = mutation.apply(rows[waiting[mine]], space, rng)
                weights[m] *= done[mine].any()
        if allowed is not None and done.any():
            done[done] = allowed(changed[done])
        out[waiting[done]] = changed[done]
        waiting = waiting[~done]
    was_changed = np.ones(len(rows), np.bool_)
    was_changed[waiting] = False
    return out, was_changed


@dataclass(frozen=True)
class Change:
    """Changes one kind of decision in the way it says itself."""

    decision: Decision[Any]
    weight: float

    @property
    def name(self) -> str:
        return self.decision.name

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        return self.decision.mutate(space.of(self.decision.name), rows, rng)


@dataclass(frozen=True)
class Redraw:
    """Draws all lengths of one tile anew, as sampling does.

    Moved factors alone lead away from what is sampled: a tile with many ways to move a factor is reached from many,
    so that after a dozen moves half of the programs of a product are 1.1 to 1.5 times slower than before, by estimate.
    """

    weight: float
    name: str = "whole tiles"

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Changed copies of `rows`; a tile that is drawn as it was is no change."""
        out = rows.copy()
        chosen = rng.integers(max(len(space.tiles), 1), size=len(rows))
        for k, tile in enumerate(space.tiles):
            mine = np.flatnonzero(chosen == k)
            out[mine, tile.columns] = draw_tiles(tile.extents, tile.parts, tile.max_innermost, len(mine), rng)
        return out, (out != rows).any(axis=1)


def mutations_of(target: Target | str, decisions: Decisions = DECISIONS) -> tuple[Mutation, ...]:
    """The changes of all kinds of decisions that a target has, by their weights."""
    weights = [(decision, decision.weight(Target.of(target))) for decision in decisions]
    return tuple([Change(decision, weight) for decision, weight in weights if weight is not None])


CPU_MUTATIONS: tuple[Mutation, ...] = (*mutations_of("c"), Redraw(0.9))
"""TVM's weights, and as many tiles drawn anew as factors moved; its weight 0.05 for compute locations is a move to
another variant here."""

GPU_MUTATIONS: tuple[Mutation, ...] = mutations_of("cuda")
"""TVM's weights for tile sizes and unrolling; it has no mutation of fetch widths and threads."""


def usual_mutations(target: Target) -> tuple[Mutation, ...]:
    """The mutations of a target."""
    match target.family:
        case "c":
            return CPU_MUTATIONS
        case "cuda":
            return GPU_MUTATIONS
        case _:
            return mutations_of(target, decisions_of(target))
