"""Mutation, crossover and sets of programs: rows stay valid, every point is reached, masks tell the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansor.evolve.crossover import crossover, parts_of
from ansor.evolve.mutation import CPU_MUTATIONS, GPU_MUTATIONS, Change, Mutation, mutate
from ansor.space.decisions.draw import Matrix
from ansor.space.decisions.factor_tables import covered
from ansor.space.decisions.lengths import Lengths
from ansor.space.decisions.parallel import Parallel
from ansor.space.decisions.threads import Threads
from ansor.space.decisions.unroll import Unroll
from ansor.space.duplicates import Seen, first_of_each, row_keys
from ansor.space.spaces import Group, Space
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
from tests.ansor.sketch_cases import matmul

MUTATIONS = {"c": CPU_MUTATIONS, "cuda": GPU_MUTATIONS}
SPACES = [
    (name, target, space)
    for name, target, innermost in [
        ("matmul", "c", 64), ("prime_matmul", "c", 64), ("prime_matmul", "cuda", 8), ("strided_conv", "cuda", 4),
        ("winograd", "c", 16), ("winograd", "cuda", 64), ("softmax", "cuda", 64), ("min", "c", 3),
    ]
    for space in [space_named(name, target, innermost)]
]  # fmt: skip
IDS = [f"{name}-{target}" for name, target, _ in SPACES]


def differs(a: Matrix, b: Matrix) -> np.ndarray:
    return np.asarray((a != b).any(axis=1))


@pytest.mark.parametrize(("target", "space"), [(t, s) for _, t, s in SPACES], ids=IDS)
@examples(15)
@given(seed=st.integers(0, 2**32))
def test_every_mutation_keeps_rows_valid_and_says_what_it_changed(target: str, space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(space, 97, rng)
    before = rows.copy()
    for mutation in MUTATIONS[target]:
        changed, mask = mutation.apply(rows, space, rng)
        assert valid(space, changed).all()
        assert (differs(changed, rows) == mask).all()
    assert (rows == before).all()


@pytest.mark.parametrize("space", [s for _, _, s in SPACES], ids=IDS)
def test_a_moved_factor_stays_in_one_tile_and_between_two_lengths(space: Space) -> None:
    rng = np.random.default_rng(1)
    rows = random_rows(space, 500, rng)
    changed, mask = Change(Lengths(), 1.0).apply(rows, space, rng)
    touched = np.zeros(len(rows), int)
    for t in space.tiles:
        old, new = rows[:, t.columns], changed[:, t.columns]
        old, new = [np.column_stack([[covered(t.extents, n) // n for n in x.prod(axis=1)], x]) for x in (old, new)]
        moved = (old != new).sum(axis=1)
        assert set(moved.tolist()) <= {0, 2}
        touched += moved > 0
    assert (touched == mask).all()
    for c in space.choices:
        assert (rows[:, c.column] == changed[:, c.column]).all()


def test_a_new_choice_changes_one_column_of_its_kind() -> None:
    space = space_named("winograd", "cuda")
    rng = np.random.default_rng(2)
    rows = random_rows(space, 400, rng)
    changed, mask = Change(Unroll(), 1.0).apply(rows, space, rng)
    assert mask.all() and ((changed != rows).sum(axis=1) == 1).all()
    columns = {c.column for c in space.choices if c.kind == "unroll"}
    assert len(columns) > 1 and set(np.nonzero(changed != rows)[1].tolist()) == columns


def test_what_does_not_apply_leaves_rows_alone() -> None:
    softmax = space_named("softmax", "cuda")
    rng = np.random.default_rng(3)
    rows = random_rows(softmax, 50, rng)
    for mutation in (Change(Lengths(), 1.0), Change(Parallel(), 1.0)):
        same, mask = mutation.apply(rows, softmax, rng)
        assert (same == rows).all() and not mask.any()


def test_a_prime_that_fits_no_innermost_length_is_never_moved() -> None:
    space = space_named("prime_matmul", "c")
    one = replace(space, tiles=tuple([replace(t, extents=(101,), parts=1) for t in space.tiles[:1]]), choices=())
    rows = np.ones((40, 1), np.int64)
    assert not Change(Lengths(), 1.0).apply(rows, one, np.random.default_rng(0))[1].any()
    seven = replace(one, tiles=(replace(one.tiles[0], extents=(7,)),))
    assert (Change(Lengths(), 1.0).apply(rows, seven, np.random.default_rng(0))[0] == 7).all()


def test_the_draw_is_uniform_over_pairs_and_divisors() -> None:
    space = space_named("prime_matmul", "c")
    one = replace(space, tiles=(replace(space.tiles[0], extents=(16,), parts=1, max_innermost=8),), choices=())
    rows = np.full((4000, 1), 4)
    changed = Change(Lengths(), 1.0).apply(rows, one, np.random.default_rng(0))[0]
    values, counts = np.unique(changed, return_counts=True)
    # the rest 4 gives a 2 (a 4 would not fit), the innermost 4 gives a 2 or a 4: 1/2, 1/4, 1/4
    assert values.tolist() == [1, 2, 8]
    assert np.allclose(counts / 4000, [0.25, 0.25, 0.5], atol=0.04)


@pytest.mark.parametrize(("target", "shape"), [("c", (4, 6, 2)), ("cuda", (2, 3, 4))])
@pytest.mark.one_in(2)
def test_mutations_reach_every_point(target: str, shape: tuple[int, int, int]) -> None:
    space = spaces_of(ComputeDAG(matmul(*shape)), target, max_innermost=3)[0]
    (variant,) = variants_of(space, 1)
    rng = np.random.default_rng(0)
    seen = Seen()
    rows = random_rows(space, 1, rng)
    seen.add(Group(variant, rows))
    misses = 0
    while misses < 30:
        changed, _ = mutate(np.tile(rows, (4, 1)), space, MUTATIONS[target], rng)
        assert valid(space, changed).all()
        new = seen.take_new(Group(variant, changed)).rows
        misses = 0 if len(new) else misses + 1
        rows = np.concatenate([rows, new])
    assert len(rows) == point_count(space)


# ------------------------------------------------------------------------------------------------ dealing out


def test_rows_are_dealt_again_until_they_change_and_are_allowed() -> None:
    space = space_named("matmul", "cuda")
    rng = np.random.default_rng(4)
    even = next(c for c in space.choices if c.kind == "unroll").column
    rows = random_rows(space, 600, rng)
    changed, mask = mutate(rows, space, GPU_MUTATIONS, rng, lambda r: r[:, even] >= 64)
    assert (changed[mask, even] >= 64).all() and (differs(changed, rows) == mask).all()
    assert mask[rows[:, even] >= 64].all()
    nothing, none = mutate(rows, space, GPU_MUTATIONS, rng, lambda r: np.zeros(len(r), bool))
    assert not none.any() and (nothing == rows).all()


def test_a_heavy_mutation_that_does_not_apply_is_passed_over() -> None:
    space = space_named("softmax", "cuda")
    rng = np.random.default_rng(5)
    _, mask = mutate(random_rows(space, 300, rng), space, [Change(Lengths(), 1e9), Change(Threads(), 1e-3)], rng)
    assert mask.all()


def test_weights_decide_how_often() -> None:
    space = space_named("matmul", "c")
    rng = np.random.default_rng(6)
    rows = random_rows(space, 4000, rng)
    changed, _ = mutate(rows, space, [Change(Unroll(), 3.0), Change(Parallel(), 1.0)], rng)
    column = next(c.column for c in space.choices if c.kind == "unroll")
    assert 0.71 < (changed != rows)[:, column].mean() < 0.79


@dataclass(frozen=True)
class LargestUnroll:
    """A mutation of one's own, with nothing but what the protocol asks for."""

    name: str = "largest unroll"
    weight: float = 1.0

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, np.ndarray]:
        out = rows.copy()
        for c in space.choices:
            if c.kind == "unroll":
                out[:, c.column] = c.values[-1]
        return out, (out != rows).any(axis=1)


def test_a_mutation_of_ones_own_takes_part() -> None:
    space = space_named("matmul", "c")
    rng = np.random.default_rng(7)
    mutation: Mutation = LargestUnroll()
    rows = random_rows(space, 200, rng)
    changed, mask = mutate(rows, space, [mutation], rng)
    column = next(c.column for c in space.choices if c.kind == "unroll")
    assert (changed[:, column] == 512).all() and (mask == (rows[:, column] != 512)).all()


# ------------------------------------------------------------------------------------------------ crossover


@pytest.mark.parametrize("space", [s for _, _, s in SPACES], ids=IDS)
def test_children_take_each_part_whole_from_one_parent(space: Space) -> None:
    rng = np.random.default_rng(8)
    first, second = random_rows(space, 300, rng), random_rows(space, 300, rng)
    children = crossover(first, second, space, rng)
    assert valid(space, children).all()
    for columns in [t.columns for t in space.tiles] + [slice(c.column, c.column + 1) for c in space.choices]:
        from_first, from_second = [~differs(children[:, columns], p[:, columns]) for p in (first, second)]
        assert (from_first | from_second).all()
        assert (~from_first).any() or not differs(first[:, columns], second[:, columns]).any()
        assert (~from_second).any() or not differs(first[:, columns], second[:, columns]).any()


def test_crossover_reaches_every_mix() -> None:
    space = space_named("min", "c")
    rng = np.random.default_rng(9)
    rows = random_rows(space, 200, rng)
    first = rows[:1]
    second = rows[(rows != first).all(axis=1)][:1]
    children = crossover(np.tile(first, (800, 1)), np.tile(second, (800, 1)), space, rng)
    parts = len(space.tiles) + len(space.choices)
    assert len(np.unique(children, axis=0)) == 2**parts


def test_stage_scores_choose_the_better_stage() -> None:
    space = space_named("winograd", "c")
    rng = np.random.default_rng(10)
    n = 400
    first, second = random_rows(space, n, rng), random_rows(space, n, rng)
    scores = rng.random((2, n, len(space.sketch.stages)))
    children = crossover(first, second, space, rng, (scores[0], scores[1]))
    better = (scores[1] > scores[0])[:, parts_of(space)[1]]
    by_stage = ~differs(children, np.where(better, second, first))
    assert 0.4 < by_stage.mean() < 0.6


# ------------------------------------------------------------------------------------------------ sets of programs


@examples(60)
@given(
    data=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12), max_size=5),
    which=st.randoms(use_true_random=False),
)
def test_seen_is_a_set_of_rows_of_each_variant(data: list[list[tuple[int, int]]], which: object) -> None:
    variants = variants_of(space_named("min", "c"), 2)
    seen, oracle = Seen(), set()
    for batch in data:
        variant = variants[which.randrange(2)]  # type: ignore[attr-defined]
        group = Group(variant, np.array(batch, np.int64).reshape(-1, 2))
        assert seen.holds(group).tolist() == [(variant, row) in oracle for row in batch]
        new = [row for i, row in enumerate(batch) if (variant, row) not in oracle and row not in batch[:i]]
        assert [tuple(r) for r in seen.take_new(group).rows.tolist()] == new
        oracle |= {(variant, row) for row in batch}
        assert len(seen) == len(oracle)


def test_keys_tell_rows_apart() -> None:
    rng = np.random.default_rng(11)
    rows = np.unique(rng.integers(0, 5, (20000, 9)), axis=0)
    assert len(np.unique(row_keys(rows))) == len(rows)
    assert row_keys(np.array([[1, 2], [2, 1], [1, 2], [0, 3]])).tolist()[0::2][0] == row_keys(np.array([[1, 2]]))[0]
    assert len(set(row_keys(np.array([[1, 2], [2, 1], [0, 3], [-1, 4]])).tolist())) == 4


def splitmix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def test_keys_are_the_same_on_every_machine() -> None:
    rows = [[1, 2, 512], [0, 0, 0], [2**40, -3, 7]]
    salts = [splitmix(k * 0x9E3779B97F4A7C15 % 2**64) for k in (1, 2, 3)]
    keys = [splitmix(sum(splitmix((x + s) % 2**64) for x, s in zip(r, salts, strict=True)) % 2**64) for r in rows]
    assert row_keys(np.array(rows)).tolist() == keys


def test_first_of_each() -> None:
    keys = np.array([5, 3, 5, 5, 3, 9], np.uint64)
    assert first_of_each(keys).tolist() == [True, True, False, False, False, True]


def test_a_space_without_columns_has_one_point() -> None:
    space = replace(space_named("min", "c"), tiles=(), choices=())
    (variant,) = variants_of(space, 1)
    seen = Seen()
    group = random_group(variant, 5, np.random.default_rng(0))
    assert len(seen.take_new(group)) == 1 and len(seen.take_new(group)) == 0
