"""Evolution finds optima, keeps structures apart, asks nothing twice, and survives any scores."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor.core.errors import TaskError
from ansor.evolve.evolution import Candidate, EvolveOptions, StageScores, evolve
from ansor.evolve.mutation import CPU_MUTATIONS, GPU_MUTATIONS
from ansor.evolve.selection import BASE, Scored, best_of, fitness
from ansor.space.decisions.draw import Matrix, pick, roulette
from ansor.space.decisions.factor_tables import tile_table
from ansor.space.duplicates import Seen
from ansor.space.limits import rows_fit
from ansor.space.spaces import Group, Space, Variant
from te_lite import ComputeDAG
from tests.amount import examples
from tests.ansor.evolution_cases import (
    point_count,
    random_group,
    random_rows,
    space_named,
    spaces_of,
    valid,
    variants_of,
)
from tests.ansor.sketch_cases import HARDWARE, matmul
from tests.conv_layer import tutorial_layer
from tests.nonempty import nonempty

SMALL = EvolveOptions(size=256, out=64, parents=32)


@functools.cache
def conv_space() -> Space:
    return spaces_of(tutorial_layer(), "cuda")[0]


class Additive:
    """A score that adds up a random figure for every value of every column; its maximum is known."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self.figures = np.random.default_rng(seed).random((space.width, 2048))

    def rows(self, rows: Matrix) -> np.ndarray:
        return np.asarray(self.figures[np.arange(self.space.width), rows].sum(axis=1))

    def __call__(self, group: Group) -> np.ndarray:
        return self.rows(group.rows)

    def maximum(self) -> float:
        total = 0.0
        for t in self.space.tiles:
            table = tile_table(t.extents, t.parts, t.max_innermost)
            total += self.figures[np.arange(t.first, t.first + t.parts), table].sum(axis=1).max()
        return float(total + sum(self.figures[c.column, list(c.values)].max() for c in self.space.choices))


@pytest.mark.parametrize("seed", range(3))
def test_it_beats_random_sampling_by_far(seed: int) -> None:
    space, rng = conv_space(), np.random.default_rng(seed)
    score = Additive(space, seed)
    (variant,) = variants_of(space, 1)
    found = evolve((random_group(variant, 2048, rng),), score, rng, GPU_MUTATIONS)
    sampled = np.sort(score.rows(random_rows(space, 5 * 2048, rng)))[::-1]
    mean, best = score.rows(random_rows(space, 2048, rng)).mean(), score.maximum()
    reached, drawn = (found[0].score - mean) / (best - mean), (sampled[0] - mean) / (best - mean)
    assert reached > 0.97 and 1 - reached < 0.2 * (1 - drawn)
    assert len(found) == 128 and found[-1].score > sampled[0]


def test_best_come_first_each_once_with_their_scores() -> None:
    space, rng = conv_space(), np.random.default_rng(3)
    score = Additive(space, 3)
    variants = variants_of(space, 3)
    found = evolve(tuple([random_group(v, 100, rng) for v in variants]), score, rng, GPU_MUTATIONS, SMALL)
    scores = [c.score for c in found]
    assert scores == sorted(scores, reverse=True)
    assert len({(c.variant, tuple(c.row)) for c in found}) == len(found) == 64
    rows = np.stack([c.row for c in found])
    assert valid(space, rows).all() and score.rows(rows).tolist() == scores


def in_text(found: list[Candidate]) -> list[tuple[object, ...]]:
    return [(c.variant.places, c.row.tolist(), c.score) for c in found]


def test_a_seed_decides() -> None:
    space = conv_space()
    variants = variants_of(space, 4)

    def run(seed: int) -> list[tuple[object, ...]]:
        rng = np.random.default_rng(seed)
        start = tuple([random_group(v, 64, rng) for v in variants[:2]])
        moves = lambda v, rng: variants[int(rng.integers(4))]  # noqa: E731
        return in_text(evolve(start, Additive(space, 0), rng, GPU_MUTATIONS, SMALL, move=moves))

    assert run(5) == run(5) != run(6)


class Recorded:
    """A score that keeps the groups it was asked about, generation by generation."""

    def __init__(self, score: Callable[[Group], np.ndarray]) -> None:
        self.score = score
        self.groups: list[Group] = []

    def __call__(self, group: Group) -> np.ndarray:
        self.groups.append(group)
        return self.score(group)

    def asked(self) -> list[tuple[object, ...]]:
        return [(g.variant, *row) for g in self.groups for row in g.rows.tolist()]


def test_nothing_is_asked_twice_and_nothing_seen_comes_out() -> None:
    space, rng = conv_space(), np.random.default_rng(7)
    (variant,) = variants_of(space, 1)
    start = random_group(variant, 256, rng)
    score = Recorded(Additive(space, 7))
    # what another run would find is seen, and half of the start
    first = evolve((start,), Additive(space, 7), np.random.default_rng(8), GPU_MUTATIONS, SMALL)
    seen = Seen([Group(variant, start.rows[:128]), Group(variant, np.stack([c.row for c in first]))])
    found = evolve((start, start), score, np.random.default_rng(8), GPU_MUTATIONS, SMALL, seen=seen)
    asked = score.asked()
    assert len(set(asked)) == len(asked) <= 5 * 256
    assert len(asked) > 0.9 * 5 * 256
    assert not seen.holds(Group(variant, np.stack([c.row for c in found]))).any()
    assert not any(seen.holds(g).any() for g in score.groups[1:])


def test_a_seen_program_of_the_start_does_not_come_out() -> None:
    space, rng = conv_space(), np.random.default_rng(21)
    group = random_group(variants_of(space, 1)[0], 50, rng)
    score = Additive(space, 21)
    order = np.argsort(-score(group))
    seen = Seen([Group(group.variant, group.rows[order[:20]])])
    found = evolve((group,), score, rng, GPU_MUTATIONS, EvolveOptions(iterations=0), seen=seen)
    assert np.stack([c.row for c in found]).tolist() == group.rows[order[20:]].tolist()


def test_parents_come_from_all_generations() -> None:
    space, rng = conv_space(), np.random.default_rng(22)
    start = random_group(variants_of(space, 1)[0], 40, rng)
    good = Additive(space, 22)
    score = Recorded(lambda g: good(g) if len(score.groups) != 2 else np.full(len(g), -np.inf))
    options = EvolveOptions(size=40, iterations=2, parents=10, crossover_prob=0.0)
    evolve((start,), score, rng, GPU_MUTATIONS, options)
    best = start.rows[np.argsort(-good(start))[:10]]
    for group in nonempty(score.groups[1:]):
        distance = (group.rows[:, None, :] != best[None, :, :]).sum(axis=2).min(axis=1)
        assert len(group) > 30 and (distance <= 2).all()


def test_children_are_allowed() -> None:
    space, rng = conv_space(), np.random.default_rng(9)
    (variant,) = variants_of(space, 1)
    score = Recorded(Additive(space, 9))

    def allowed(group: Group) -> np.ndarray:
        return rows_fit(space, group.rows, HARDWARE["cuda"])

    evolve((random_group(variant, 256, rng),), score, rng, GPU_MUTATIONS, SMALL, allowed=allowed)
    assert not allowed(score.groups[0]).all()
    assert all(allowed(g).all() for g in score.groups[1:])
    assert sum(len(g) for g in score.groups[1:]) > 0.7 * 4 * 256


def test_a_used_up_space_ends_the_search() -> None:
    space = spaces_of(ComputeDAG(matmul(2, 3, 2)), "c")[0]
    (variant,) = variants_of(space, 1)
    rng = np.random.default_rng(10)
    options = EvolveOptions(size=200, iterations=12, out=10**6, parents=1000)
    score = Additive(space, 10)
    found = evolve((random_group(variant, 50, rng),), score, rng, CPU_MUTATIONS, options)
    assert 0.9 * point_count(space) < len(found) <= point_count(space) < 12 * 200
    assert found[0].score == pytest.approx(score.maximum())


def test_nothing_comes_of_nothing() -> None:
    assert evolve((), Additive(conv_space(), 0), np.random.default_rng(0), GPU_MUTATIONS) == []
    empty = random_group(variants_of(conv_space(), 1)[0], 0, np.random.default_rng(0))
    assert evolve((empty,), Additive(conv_space(), 0), np.random.default_rng(0), GPU_MUTATIONS) == []


# ------------------------------------------------------------------------------------------------ variants


def test_variants_are_bounded_and_keep_their_share() -> None:
    space, rng = conv_space(), np.random.default_rng(11)
    variants = variants_of(space, 40)
    good = Additive(space, 11)
    score = Recorded(lambda g: good(g) + 3.0 * (g.variant == variants[5]))
    start = tuple([random_group(v, 128, rng) for v in variants[:16]])
    move = lambda v, rng: variants[int(rng.integers(40))]  # noqa: E731
    found = evolve(start, score, rng, GPU_MUTATIONS, EvolveOptions(), move=move)
    later = score.groups[16:]
    sizes = [len(g) for g in later]
    assert len(later) <= 4 * 9 and sum(sizes) > 0.9 * 4 * 2048
    assert np.median(sizes) >= 128 and min(sizes) > 100
    assert {g.variant for g in later} - set(variants[:16])
    assert found[0].variant == variants[5]


def test_a_better_structure_is_found_by_moving() -> None:
    space, rng = conv_space(), np.random.default_rng(12)
    variants = variants_of(space, 10)
    good = Additive(space, 12)

    def score(group: Group) -> np.ndarray:
        return good(group) + variants.index(group.variant)

    def uphill(v: Variant, rng: np.random.Generator) -> Variant | None:
        return variants[min(variants.index(v) + 1, 9)] if rng.random() < 0.9 else None

    options = EvolveOptions(size=256, iterations=9, out=10, max_variants=3)
    found = evolve((random_group(variants[0], 256, rng),), score, rng, GPU_MUTATIONS, options, move=uphill)
    assert variants.index(found[0].variant) >= 3


def test_a_move_stays_in_its_space() -> None:
    elsewhere = variants_of(space_named("matmul", "cuda"), 1)[0]
    group = random_group(variants_of(conv_space(), 1)[0], 10, np.random.default_rng(0))
    with pytest.raises(TaskError, match="a move must stay in its space"):
        evolve(
            (group,), Additive(conv_space(), 0), np.random.default_rng(0), GPU_MUTATIONS, SMALL,
            move=lambda v, rng: elsewhere,
        )  # fmt: skip


def test_several_spaces_search_together() -> None:
    spaces = spaces_of(tutorial_layer(), "c")
    assert len(spaces) > 1
    rng = np.random.default_rng(13)
    scores = {s: Additive(s, k) for k, s in enumerate(spaces)}
    start = tuple([random_group(v, 40, rng) for s in spaces for v in variants_of(s, 2)])
    score = Recorded(lambda g: scores[g.variant.space](g))
    found = evolve(start, score, rng, CPU_MUTATIONS, SMALL)
    assert all(valid(c.variant.space, c.row[None]).all() for c in found)
    assert {g.variant.space for g in score.groups[-4:]} <= set(spaces)
    assert {g.variant.space for g in score.groups[len(start) :]} == set(spaces)


def test_scores_of_stages_are_used() -> None:
    space = space_named("winograd", "c")
    (variant,) = variants_of(space, 1)
    good = Additive(space, 14)

    def score(group: Group) -> StageScores:
        stages = np.zeros((len(group), len(space.sketch.stages)))
        for t in space.tiles:
            columns = np.arange(t.first, t.first + t.parts)
            stages[:, t.stage] += good.figures[columns, group.rows[:, t.columns]].sum(axis=1)
        return StageScores(stages.sum(axis=1), stages)

    # crossover alone: the best of each stage comes together
    options = EvolveOptions(size=256, iterations=6, out=1, parents=64, mutation_prob=0.0, crossover_prob=1.0)
    start = random_group(variant, 256, np.random.default_rng(0))
    best = score(start).stages.max(axis=0).sum()
    (found,) = evolve((start,), score, np.random.default_rng(1), CPU_MUTATIONS, options)
    assert found.score >= 0.97 * best > score(start).programs.max()


# ------------------------------------------------------------------------------------------------ any scores

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan]


@examples(40)
@given(values=st.lists(st.one_of(st.sampled_from(SPECIAL), st.floats(width=64)), min_size=1, max_size=6))
def test_any_scores_are_survived(values: list[float]) -> None:
    space = conv_space()
    variants = variants_of(space, 3)
    rng = np.random.default_rng(15)

    def score(group: Group) -> np.ndarray:
        return np.asarray(np.array(values)[group.rows.sum(axis=1) % len(values)])

    options = EvolveOptions(size=48, iterations=2, out=8, parents=12)
    start = tuple([random_group(v, 8, rng) for v in variants[:2]])
    found = evolve(start, score, rng, GPU_MUTATIONS, options, move=lambda v, rng: variants[int(rng.integers(3))])
    assert all(c.score > -np.inf for c in found)
    assert bool(found) or all(not v > -np.inf for v in values) or len(values) > 1


def test_everything_masked_gives_nothing() -> None:
    space, rng = conv_space(), np.random.default_rng(16)
    start = (random_group(variants_of(space, 1)[0], 32, rng),)
    for worst in (-np.inf, np.nan):
        assert evolve(start, lambda g: np.full(len(g), worst), rng, GPU_MUTATIONS, SMALL) == []  # noqa: B023


def test_a_score_of_another_shape_is_refused() -> None:
    start = (random_group(variants_of(conv_space(), 1)[0], 32, np.random.default_rng(0)),)
    for shape in ((31,), (32, 1), ()):
        with pytest.raises(TaskError, match="one score per program"):
            evolve(start, lambda g: np.zeros(shape), np.random.default_rng(0), GPU_MUTATIONS, SMALL)  # noqa: B023


@pytest.mark.parametrize("field", ["size", "iterations", "out", "parents", "max_variants", "mutation_prob"])
def test_bad_options_are_refused(field: str) -> None:
    with pytest.raises(TaskError, match=f"evolution {field}"):
        EvolveOptions(**{field: -1})
    with pytest.raises(TaskError, match="a probability is needed"):
        EvolveOptions(crossover_prob=1.5)


# ------------------------------------------------------------------------------------------------ selection


@examples(200)
@given(st.lists(st.one_of(st.sampled_from(SPECIAL), st.floats(width=64)), min_size=1, max_size=9))
def test_fitness_keeps_the_order(values: list[float]) -> None:
    scores = np.array(values)
    weights = fitness(scores)
    assert (weights >= 0).all() and np.isfinite(weights).all() and weights.sum() > 0
    dead = ~(scores > -np.inf)
    assert dead.all() or ((weights[dead] == 0).all() and (weights[~dead] >= BASE).all())
    live = np.where(dead, -np.inf, scores)
    order = np.argsort(live, kind="stable")
    assert (np.diff(weights[order]) >= 0).all() or dead.all()


def test_roulette_follows_the_weights() -> None:
    rng = np.random.default_rng(17)
    weights = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    drawn = np.bincount(roulette(weights, 8000, rng), minlength=5)
    assert drawn[[0, 2, 4]].tolist() == [0, 0, 0] and 0.22 < drawn[1] / 8000 < 0.28
    assert set(roulette(np.zeros(3), 200, rng).tolist()) == {0, 1, 2}


def test_pick_draws_true_positions_evenly() -> None:
    mask = np.array([[True, False, True, False, True]]).repeat(6000, axis=0)
    counts = np.bincount(pick(mask, np.random.default_rng(18)), minlength=5) / 6000
    assert counts[[1, 3]].tolist() == [0, 0] and np.allclose(counts[[0, 2, 4]], 1 / 3, atol=0.03)


def test_the_pool_keeps_the_best_and_some_of_every_variant() -> None:
    variants = variants_of(conv_space(), 6)
    rng = np.random.default_rng(19)
    groups = [random_group(v, 30, rng) for v in variants]
    scored = [Scored(g, rng.random(30) + k) for k, g in enumerate(groups)]
    pool = best_of({}, scored, 40, 4)
    assert list(pool) == variants[2:]
    assert [len(s.scores) for s in pool.values()] == [5, 5, 5, 25]
    for s, kept in zip(scored[2:], pool.values(), strict=True):
        assert kept.scores.tolist() == np.sort(s.scores)[::-1][: len(kept.scores)].tolist()
    again = best_of(pool, [Scored(groups[0], np.full(30, 99.0))], 40, 4)
    assert list(again) == [*variants[3:], variants[0]] and len(again[variants[0]].scores) == 25


def test_the_best_variant_of_every_space_stays() -> None:
    first, second = [variants_of(s, 3) for s in spaces_of(tutorial_layer(), "c")[:2]]
    rng = np.random.default_rng(20)
    scored = [Scored(random_group(v, 5, rng), np.full(5, float(k))) for k, v in enumerate([*first, *second])]
    assert list(best_of({}, scored, 32, 2)) == [first[2], second[2]]
