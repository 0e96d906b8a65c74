"""Programs that are changed again and again, with nobody choosing among them, stay as good as sampled ones."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
from ansor.core.tasks.catalog import CATALOG
from ansor.cost_model.prior import AnalyticalModel
from ansor.evolve.checked import require_rows
from ansor.evolve.evolution import EvolveOptions, evolve
from ansor.evolve.mutation import CPU_MUTATIONS, Mutation, Redraw, mutate
from ansor.sketch import generate_sketches
from ansor.space.decisions.draw import Matrix
from ansor.space.programs import programs
from ansor.space.sample import drawn_again, sample_rows
from ansor.space.spaces import Group, Variant, random_space, random_variant

HARDWARE = ansor.HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)
TASKS = {"matmul": (1024, 1024, 1024), "conv2d": (1, 56, 56, 64, 64, 3, 1, 1)}
DRIFT = {"matmul": 0.08, "conv2d": 0.15}
"""The least that the median of a task moves without tiles drawn anew, by its logarithm."""


class Sampled:
    """A thousand programs of a task's first sketch, and the median of their estimated times."""

    def __init__(self, name: str) -> None:
        self.task = ansor.SearchTask(workload_key=CATALOG[name].key(TASKS[name]), target="c", hardware_params=HARDWARE)
        self.rng = np.random.default_rng(0)
        sketch = generate_sketches(self.task.compute_dag, "c", HARDWARE)[0]
        self.variant: Variant = random_variant(random_space(sketch, self.rng, "c", HARDWARE), self.rng)
        self.rows = sample_rows(self.variant, 1024, self.rng, "c", HARDWARE)

    def median(self, rows: Matrix) -> float:
        """The logarithm of the median of the estimated seconds."""
        made = programs(self.variant, rows, "c", HARDWARE)
        return float(np.median(-AnalyticalModel().predict_programs(self.task, made)))

    def again(self, group: Group, rng: np.random.Generator) -> Matrix:
        return drawn_again(group.variant, group.rows, rng, "c", HARDWARE)

    def changed(self, mutations: tuple[Mutation, ...], times: int) -> Matrix:
        rows = self.rows
        for _ in range(times):
            rows, _ = mutate(rows, self.variant.space, mutations, self.rng)
            rows = self.again(Group(self.variant, rows), self.rng)
        return rows


@pytest.mark.parametrize("name", TASKS)
def test_a_dozen_mutations_lead_nowhere(name: str) -> None:
    """Factors alone make half of the programs slower, by a tenth to a half."""
    sampled = Sampled(name)
    start = sampled.median(sampled.rows)
    assert abs(sampled.median(sampled.changed(CPU_MUTATIONS, 12)) - start) < 0.2
    moves = tuple([m for m in CPU_MUTATIONS if not isinstance(m, Redraw)])
    assert sampled.median(sampled.changed(moves, 12)) - start > DRIFT[name]


def test_what_rests_on_lengths_is_drawn_again_in_evolution() -> None:
    """Blind evolution keeps the number of vector loops that sampling would draw, and never none."""
    sampled = Sampled("matmul")
    column = next(c.column for c in sampled.variant.space.choices if c.kind == "vectorize")
    assert (sampled.rows[:, column] > 0).all()
    moves = tuple([m for m in CPU_MUTATIONS if m.name in ("tile sizes", "whole tiles")])
    options = EvolveOptions(size=256, iterations=4, out=256)
    stale = sampled.rows[:256].copy()
    stale[:, column] = 0
    found = evolve(
        (Group(sampled.variant, stale),), lambda group: sampled.rng.random(len(group)), sampled.rng, moves, options,
        again=sampled.again,
    )  # fmt: skip
    fresh = [c.row[column] > 0 for c in found if not (c.row == stale).all(axis=1).any()]
    assert np.mean(fresh) > 0.6


def test_a_tile_drawn_anew_is_one_of_its_table() -> None:
    sampled = Sampled("conv2d")
    rows, changed = Redraw(1.0).apply(sampled.rows, sampled.variant.space, sampled.rng)
    others = [[c for c in range(rows.shape[1]) if c not in range(t.columns.start, t.columns.stop)] for t in
              sampled.variant.space.tiles]  # fmt: skip
    same = np.stack([(rows[:, other] == sampled.rows[:, other]).all(axis=1) for other in others])
    assert same.any(axis=0).all() and 0.5 < changed.mean() < 1
    require_rows(rows, sampled.variant.space, "redraw")
