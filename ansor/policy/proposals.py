"""What to measure next: populations sampled from the sketches of a task, and evolved under a score.

The programs of a round are made and scored as rows of decision matrices; only those that are picked become states.
Programs that were proposed or measured before, in this run or in a log, are never proposed again.

Nor are programs that the analytical model expects to take long and to be far from the best.  Where a large tensor
becomes one number, half of the programs are a few threads that walk through all of it: seconds each, and a program that
runs cannot be stopped but with the process that has the data.  The estimate need not be good to tell those apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from te_lite.errors import require
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..core.errors import TaskError
from ..core.tasks.task import SearchTask
from ..core.values.options import SketchOptions
from ..cost_model.prior import AnalyticalModel
from ..evolve.evolution import EvolveOptions, Score, evolve
from ..evolve.mutation import Mutation, usual_mutations
from ..evolve.selection import Row, spread
from ..space.duplicates import Seen, canonical, program_text
from ..space.limits import rows_fit
from ..space.sample import drawn_again, sample_rows
from ..space.spaces import Group, Population, Variant, mutate_place, random_space, random_variant
from ..space.states import parse, written
from .scoring import Scorer, Scores, scores_of

LONG = 0.02
"""Seconds: what takes no longer is measured as soon as it is doubted."""
TIMES = 10.0
"""The best that is expected of a population, so many times, is hopeless; estimates are seldom off by so much."""
LARGE = 1 << 28
"""Operations of a task from which on some program takes `LONG`."""


class SlowPrograms:
    """Says which programs of a task are slow beside the best of `sample`, a population, and of those it was asked for.

    On CPUs, and of small tasks, none is.
    """

    def __init__(self, task: SearchTask, sample: Callable[[], Population]) -> None:
        self._applies = task.target.is_gpu and task.compute_dag.flop_ct >= LARGE
        self._score = Scorer(task, AnalyticalModel())
        self._sample = sample
        self._best = -np.inf

    def holds(self, row: Row) -> bool:
        """Whether a program is one of them."""
        if not self._applies:
            return False
        if self._best == -np.inf:
            self._best = max([self._score(group).max(initial=-np.inf) for group in self._sample()], default=-np.inf)
        score = float(scores_of(self._score, [row])[0])
        self._best = max(self._best, score)
        return bool(np.exp(-score) > max(LONG, TIMES * np.exp(-self._best)))


CPU_VARIANTS, GPU_VARIANTS = 8, 4
MOST_BARREN = 200
"""Draws without a new program until all are known."""
MOST_OF_A_BUCKET = 0.125
ROWS_AT_ONCE = 2
LOOKED_AT = 1 / 16
"""Of a population: programs of a sketch among which its first one is chosen."""

COMPARED = 128
"""Programs among which the best says which others are slow."""
FEW_SKETCHES, WORTH = 8, 2.0
"""Sketches that are all tried, as those of CPUs are; how many times as long as the best one the programs of others may
be expected to take."""

Picked = tuple[State, Row]


@dataclass(frozen=True)
class Measured:
    """A program that ran, and its seconds; `row` is where it lies in the space, if it does."""

    cost: float
    steps: tuple[Step, ...]
    row: Row | None


class Proposals:
    """The programs of a task that were not proposed yet.

    `evolution` says how populations are bred; its number of variants is replaced by what suits the target.
    `mutations` replaces those of the target.  Raises TaskError when there is no sketch.
    """

    def __init__(
        self, task: SearchTask, sketches: Sequence[State], options: SketchOptions, rng: np.random.Generator,
        evolution: EvolveOptions, mutations: Sequence[Mutation] | None = None,
    ) -> None:  # fmt: skip
        law = "the sketch rules made no sketch, so there is nothing to search"
        require(sketches, TaskError, f"task {task.name}", law)
        self.task = task
        self.sketches = tuple(sketches)
        self.options = options
        self.rng = rng
        self.hardware = task.hardware_params.completed(task.target)
        self.mutations = usual_mutations(task.target) if mutations is None else tuple(mutations)
        self.most_variants = GPU_VARIANTS if task.target.is_gpu else CPU_VARIANTS
        self.evolution = replace(evolution, max_variants=self.most_variants)
        self.seen = Seen()
        self._texts: set[str] = set()
        self._tried: set[int] = set()
        self._slow = SlowPrograms(task, self._to_compare)

    @cached_property
    def worth(self) -> list[int]:
        """The sketches to draw from: of many, those whose best programs are expected to be near the best of all."""
        every, other = range(len(self.sketches)), copy(self)
        other.rng, score = np.random.default_rng(0), Scorer(self.task, AnalyticalModel())
        many = self.task.target.is_gpu and len(every) > FEW_SKETCHES
        best = {k: row[0] for k in (every if many else ()) for row in other._first(k, score)}
        return [k for k in best if best[k] >= max(best.values()) - np.log(WORTH)] or list(every)

    def _to_compare(self) -> Population:
        """Programs that tell how fast one may be; drawn without moving on the draws of the search."""
        other = self.to_look_at()
        other.rng = np.random.default_rng(0)
        return other.population(COMPARED)

    def to_look_at(self) -> Proposals:
        """The same programs once more: what the copy proposes is still new to the original."""
        other = copy(self)
        other.seen, other._texts, other._tried = self.seen.copy(), set(self._texts), set(self._tried)
        other._slow = copy(self._slow)
        return other

    def remember(self, state: State) -> Row | None:
        """Take a program of the task as proposed; where it lies in the space, or None when it lies in none."""
        text = program_text(state)
        if text is not None:
            self._texts.add(text)
        row = parse(self.sketches, state.steps, self.task.target, self.hardware, self.options)
        if row is not None:
            self._mark(row)
        return row

    def _mark(self, row: Row) -> None:
        self.seen.add(Group(row[0], row[1][None, :]))

    def population(self, size: int, elites: Sequence[Row] = ()) -> Population:
        """About `size` random programs and the `elites`, of few variants: every variant costs time of its own.

        Half of the variants are those of the best elites, the others are drawn anew each time.
        """
        by_variant: dict[Variant, list[np.ndarray]] = {}
        for variant, row in elites:
            if variant in by_variant or len(by_variant) < self.most_variants // 2:
                by_variant.setdefault(variant, []).append(row)
        found = [Group(v, np.stack(rows)) for v, rows in by_variant.items()]
        variants = self._variants(list(by_variant))
        for variant in variants:
            rows = self._sample(variant, -(-size // len(variants)))
            if len(rows):
                found.append(rows)
        return tuple(found)

    def _variants(self, known: Sequence[Variant]) -> list[Variant]:
        """Variants that are known, then one of every sketch as long as there is room, then others at random."""
        out = dict.fromkeys(known)
        order = self.rng.permutation(len(self.worth))
        for k in [*order, *self.rng.integers(len(self.worth), size=2 * self.most_variants)]:
            if len(out) < self.most_variants:
                out.setdefault(self._variant(self.worth[k]))
        return list(out)

    def _variant(self, k: int) -> Variant:
        """A variant of sketch `k`."""
        space = random_space(self.sketches[k], self.rng, self.task.target, self.hardware, self.options)
        return random_variant(space, self.rng)

    def _sample(self, variant: Variant, n: int) -> Group:
        rows = sample_rows(variant, n, self.rng, self.task.target, self.hardware, self.options)
        return Group(variant, self._canonical(Group(variant, rows)))

    def _canonical(self, group: Group) -> np.ndarray:
        """The rows, repetitions of a program as the same row; on GPUs no number is without effect."""
        if self.task.target.is_gpu:
            return group.rows
        return canonical(group.variant, group.rows, self.task.target, self.hardware)

    def _again(self, group: Group, rng: np.random.Generator) -> np.ndarray:
        return drawn_again(group.variant, group.rows, rng, self.task.target, self.hardware, self.options)

    def random(self, n: int, sketches: Sequence[int] = ()) -> list[Picked]:
        """Up to `n` new programs: a sketch at random, of all or of some, then everything else at random."""
        chosen = sketches or range(len(self.sketches))
        out: list[Picked] = []
        barren = 0
        while len(out) < n and barren < MOST_BARREN:
            group = self._sample(self._variant(chosen[int(self.rng.integers(len(chosen)))]), ROWS_AT_ONCE)
            new = self.take([(group.variant, row) for row in group.rows], n - len(out))
            barren = 0 if new else barren + 1
            out += new
        return out

    def firsts(self, n: int, score: Callable[[Group], Scores]) -> list[Picked]:
        """Up to `n` new programs, the best first: of each sketch that gave none here so far, the one `score` prefers.

        So every sketch that is `worth` it is judged by a good program of its own, whatever a population has room for.
        """
        best = [row for k in self.worth if n > 0 and k not in self._tried for row in self._first(k, score)]
        out: list[Picked] = []
        for _, k, row in sorted(best, key=lambda found: -found[0]):
            if len(out) < n:
                self._tried.add(k)
                out += self.take([row], 1)
        return out

    def _first(self, k: int, score: Callable[[Group], Scores]) -> list[tuple[float, int, Row]]:
        """The score of the best of some programs of sketch `k`, and the program; nothing where none fits."""
        group = self._sample(self._variant(k), max(1, int(self.evolution.size * LOOKED_AT)))
        scores = score(group) if len(group) else np.empty(0)
        fits = np.flatnonzero(scores > -np.inf)
        best = fits[np.argmax(scores[fits])] if len(fits) else None
        return [] if best is None else [(float(scores[best]), k, (group.variant, group.rows[best]))]

    def evolved(self, n: int, score: Score, elites: Sequence[Row]) -> list[Picked]:
        """`n` new programs that `score` likes, of many kinds; `elites` take part as parents."""
        found = evolve(
            self.population(self.evolution.size - len(elites), elites), score, self.rng, self.mutations,
            self.evolution, seen=self.seen, move=mutate_place,
            allowed=lambda group: rows_fit(group.variant.space, group.rows, self.hardware),
            again=None if self.task.target.is_gpu else self._again,
            canonical=self._canonical,
        )  # fmt: skip
        return self.take(spread([(c.variant, c.row) for c in found], max(1, int(n * MOST_OF_A_BUCKET))), n)

    def take(self, rows: Iterable[Row], n: int) -> list[Picked]:
        """The first `n` of `rows` that were not proposed yet and are not slow, as states; taken as proposed now."""
        out: list[Picked] = []
        for variant, row in rows:
            if len(out) == n:
                break
            if self.seen.holds(Group(variant, row[None, :]))[0]:
                continue
            self._mark((variant, row))
            if self._slow.holds((variant, row)):
                continue
            state, bounds = written(variant, row, self.task.target, self.hardware)
            text = program_text(state, bounds)
            if text is None or text in self._texts:
                continue
            self._texts.add(text)
            out.append((state, (variant, row)))
        return out
