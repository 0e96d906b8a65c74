"""Evolutionary search over decision matrices (section 5.1 of the Ansor paper).

Every generation is scored once.  Parents are drawn from the best programs of all generations so far, by score, with
a reserved share for every variant, so that the population neither loses its best nor collapses to one structure.
Children are programs that were not scored before: nothing is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError
from ..space.decisions.draw import Mask, Matrix, Scores, roulette
from ..space.duplicates import Seen, first_of_each, row_keys
from ..space.spaces import Group, Population, Space, Variant
from .crossover import crossover
from .mutation import Mutation, mutate
from .selection import Pool, Scored, best_of, fitness, joined

REFILLS = 4
MOVES = 4


class StageScores(NamedTuple):
    """Scores of programs (float64 [n]) and of their stages (float64 [n, stages of the sketch])."""

    programs: Scores
    stages: Scores


Score = Callable[[Group], Scores | StageScores]
"""Higher is better; -inf (or NaN) for what must not be proposed."""

Move = Callable[[Variant, np.random.Generator], Variant | None]
"""Another variant of the same space, or None."""


Again = Callable[[Group, np.random.Generator], Matrix]
"""Rows with what rests on the extents of loops drawn anew."""

Canonical = Callable[[Group], Matrix]
"""Rows that make the same programs, all those of a program alike."""


class Candidate(NamedTuple):
    """A row of a variant, with its score."""

    variant: Variant
    row: np.ndarray
    score: float


@dataclass(frozen=True)
class EvolveOptions:
    """size: programs per generation; iterations: generations after the first; out: the most candidates to give.

    The best `parents` programs so far have children.  A child has one parent or, with `crossover_prob`, two; it is
    mutated with `mutation_prob`, and always when it has one parent.  At most `max_variants` variants stay; half of
    the parents and half of the children are shared out among them evenly.
    With an eighth of the population as parents, five generations come about as near to the optimum of a synthetic
    score as twenty smaller ones of the same cost do when everything scored may be a parent.
    Raises TaskError for a size or count below 1 and for a probability outside 0 .. 1.
    """

    size: int = 2048
    iterations: int = 4
    out: int = 128
    parents: int = 256
    mutation_prob: float = 0.85
    crossover_prob: float = 0.3
    max_variants: int = 8

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("iterations", 0), ("out", 0), ("parents", 1), ("max_variants", 1)):
            value = getattr(self, name)
            require(value >= least, TaskError, f"evolution {name}", f"at least {least} is needed", got=value)
        for name in ("mutation_prob", "crossover_prob"):
            value = getattr(self, name)
            require(0 <= value <= 1, TaskError, f"evolution {name}", "a probability is needed", got=value)


def evolve(
    start: Population,
    score: Score,
    rng: np.random.Generator,
    mutations: Sequence[Mutation],
    options: EvolveOptions | None = None,
    *,
    seen: Seen | None = None,
    move: Move | None = None,
    allowed: Callable[[Group], Mask] | None = None,
    again: Again | None = None,
    canonical: Canonical | None = None,
) -> list[Candidate]:
    """The best `options.out` distinct programs found that are not in `seen`, best first.

    `score` is asked `iterations + 1` times for about `size` programs, group by group; programs of `start` that are in
    `seen` take part as parents.  `allowed` masks children before they are scored, cheaply; `move` brings variants
    that `start` lacks.  `again` decides anew, for children whose lengths changed, what rests on them: a number of
    vector or parallel loops that suited the parent is no good draw for the child.  `canonical` makes children that are
    the same program the same row, as those of `start` are.  Fewer candidates come out when the space is used up or most
    scores are -inf.
    """
    options = options or EvolveOptions()
    seen = seen or Seen()
    known = Seen()
    pool: Pool = {}
    fresh: list[Scored] = []
    children = [known.take_new(group) for group in start]
    for generation in range(options.iterations + 1):
        scored = [_scored(group, score) for group in children if len(group)]
        fresh += [s.take(~seen.holds(s.group) & (s.scores > -np.inf)) for s in scored]
        pool = best_of(pool, scored, options.parents, options.max_variants)
        if not pool or generation == options.iterations:
            break
        breeder = _Breeder(pool, rng, mutations, options, allowed, again, canonical)
        children = _next_generation(breeder, known, seen, move)
    return _best(fresh, options.out)


def _scored(group: Group, score: Score) -> Scored:
    found = score(group)
    programs, stages = found if isinstance(found, StageScores) else (found, None)
    scores = np.asarray(programs, np.float64)
    law = "one score per program is needed"
    require(scores.shape == (len(group),), TaskError, "evolution", law, shape=scores.shape, programs=len(group))
    return Scored(group, np.where(np.isnan(scores), -np.inf, scores), stages)


def _best(fresh: Sequence[Scored], n: int) -> list[Candidate]:
    if not fresh:
        return []
    scores = np.concatenate([s.scores for s in fresh])
    part = np.repeat(np.arange(len(fresh)), [len(s.scores) for s in fresh])
    first = np.cumsum([0, *[len(s.scores) for s in fresh]])
    out = []
    for i in np.argsort(-scores, kind="stable")[:n].tolist():
        group = fresh[part[i]].group
        out.append(Candidate(group.variant, group.rows[i - first[part[i]]], float(scores[i])))
    return out


def _next_generation(breeder: _Breeder, known: Seen, seen: Seen, move: Move | None) -> list[Group]:
    """`size` programs in neither set, group by group; fewer when the space has not so many near the pool."""
    found: dict[Variant, list[Matrix]] = {}
    missing = breeder.options.size
    target = breeder.new_variant(move)
    for _ in range(REFILLS):
        for group in breeder.children(missing, target):
            new = known.take_new(Group(group.variant, group.rows[~seen.holds(group)]))
            missing -= len(new)
            found.setdefault(group.variant, []).append(new.rows)
        if missing <= breeder.options.size // 16:
            break
    return [Group(variant, np.concatenate(parts)) for variant, parts in found.items()]


class _Breeder:
    """Makes children of the programs of one pool."""

    def __init__(
        self, pool: Pool, rng: np.random.Generator, mutations: Sequence[Mutation], options: EvolveOptions,
        allowed: Callable[[Group], Mask] | None, again: Again | None, canonical: Canonical | None,
    ) -> None:  # fmt: skip
        self.rng, self.mutations, self.options, self.allowed = rng, mutations, options, allowed
        self.again, self.canonical = again, canonical
        self.pool = pool
        self.spaces: dict[Space, Scored] = {}
        for space in dict.fromkeys(v.space for v in pool):
            self.spaces[space] = joined([s for v, s in pool.items() if v.space == space])
        weights = fitness(np.concatenate([s.scores for s in pool.values()]))
        ends = np.cumsum([len(s.scores) for s in pool.values()])[:-1]
        self.weights = dict(zip(pool, np.split(weights, ends), strict=True))
        self.partners = {
            space: np.concatenate([w for v, w in self.weights.items() if v.space == space]) for space in self.spaces
        }

    def new_variant(self, move: Move | None) -> Variant | None:
        """A variant that the pool lacks, next to one of its own."""
        variants = list(self.pool)
        for _ in range(0 if move is None else MOVES):
            target = move(variants[int(self.rng.integers(len(variants)))], self.rng)  # type: ignore[misc]
            if target is not None and target not in self.pool:
                require(target.space in self.spaces, TaskError, "evolution", "a move must stay in its space")
                return target
        return None

    def children(self, n: int, target: Variant | None) -> list[Group]:
        """About `n` children: a reserved share for each variant and for `target`, the rest by score."""
        share = max(n // (2 * self.options.max_variants), 1)
        out = [] if target is None else [self._moved(target, share)]
        chance = np.array([w.sum() for w in self.weights.values()])
        rest = max(n - share * (len(self.pool) + len(out)), 0)
        counts = share + self.rng.multinomial(rest, chance / chance.sum())
        for variant, count in zip(self.pool, counts.tolist(), strict=True):
            out.append(Group(variant, self._offspring(variant, count)))
        if self.canonical is None:
            return out
        return [Group(group.variant, self.canonical(group)) if len(group) else group for group in out]

    def _moved(self, target: Variant, n: int) -> Group:
        """Programs of other variants of the space, put in the places of `target`; repetitions are mutated."""
        rows = self.spaces[target.space].group.rows[roulette(self.partners[target.space], n, self.rng)]
        again = ~first_of_each(row_keys(rows))
        rows[again] = self._mutated(rows[again], target)[0]
        rows = rows if self.again is None or not len(rows) else self.again(Group(target, rows), self.rng)
        return Group(target, rows[self._permitted(rows, target)])

    def _offspring(self, variant: Variant, n: int) -> Matrix:
        """The children of `n` parents that are allowed, int64 [at most n, width]."""
        family = self.pool[variant].take(roulette(self.weights[variant], n, self.rng))
        rows: Matrix = family.group.rows.copy()
        crossed = self.rng.random(n) < self.options.crossover_prob
        rows[crossed] = self._crossed(family.take(crossed))
        mutated = ~crossed | (self.rng.random(n) < self.options.mutation_prob)
        good = np.zeros(n, np.bool_)
        rows[mutated], good[mutated] = self._mutated(rows[mutated], variant)
        good[~mutated] = self._permitted(rows[~mutated], variant)
        return self._decided_again(rows[good], family.group.rows[good], variant)

    def _decided_again(self, rows: Matrix, parents: Matrix, variant: Variant) -> Matrix:
        """`rows`, those with other lengths than their parents decided anew where lengths matter."""
        lengths = [c for tile in variant.space.tiles for c in range(tile.columns.start, tile.columns.stop)]
        changed = (rows[:, lengths] != parents[:, lengths]).any(axis=1)
        if self.again is not None and changed.any():
            rows[changed] = self.again(Group(variant, rows[changed]), self.rng)
        return rows

    def _permitted(self, rows: Matrix, variant: Variant) -> Mask:
        everything = self.allowed is None or not len(rows)
        return np.ones(len(rows), np.bool_) if everything else self.allowed(Group(variant, rows))  # type: ignore[misc]

    def _crossed(self, first: Scored) -> Matrix:
        space = first.group.variant.space
        second = self.spaces[space].take(roulette(self.partners[space], len(first.scores), self.rng))
        both = None if first.stages is None or second.stages is None else (first.stages, second.stages)
        return crossover(first.group.rows, second.group.rows, space, self.rng, both)

    def _mutated(self, rows: Matrix, variant: Variant) -> tuple[Matrix, Mask]:
        check = partial(self._permitted, variant=variant)
        return mutate(rows, variant.space, self.mutations, self.rng, None if self.allowed is None else check)
