"""Buckets: programs that use a machine alike, and how many of them go first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

import ansor
from ansor.evolve.evolution import Candidate
from ansor.evolve.selection import Row, bucket, spread
from ansor.policy.proposals import MOST_OF_A_BUCKET
from ansor.space.spaces import Space, Variant
from tests.ansor.evolution_cases import random_rows, space_named, variants_of
from tests.ansor.sketch_cases import HARDWARE, dag_of


def by_definition(space: Space, row: Sequence[int]) -> tuple[int, ...]:
    """floor(log2) of the product of the lengths at each level of each stage, space and reduction apart."""
    products: dict[tuple[int, bool, int], int] = {}
    for tile in space.tiles:
        for level in range(tile.parts):
            key = (tile.stage, tile.reduce, level)
            products[key] = products.get(key, 1) * row[tile.first + level]
    return tuple([math.floor(math.log2(p)) for p in products.values()])


@pytest.mark.parametrize(("name", "target"), [("matmul", "c"), ("strided_conv", "cuda"), ("winograd", "cuda")])
def test_a_bucket_is_the_size_of_the_tiles_at_every_level(name: str, target: str) -> None:
    space = space_named(name, target)
    rows = random_rows(space, 200, np.random.default_rng(0))
    assert [tuple(b) for b in bucket(space, rows).tolist()] == [by_definition(space, r) for r in rows.tolist()]


def cases() -> tuple[list[Row], dict[Variant, Space]]:
    """Rows of two variants, many of few buckets."""
    space = space_named("prime_matmul", "c")
    variants = variants_of(space, 2)
    rng = np.random.default_rng(1)
    rows = random_rows(space, 1200, rng)
    return [(variants[int(rng.integers(2))], row) for row in rows], {v: space for v in variants}


@pytest.mark.parametrize("most", [1, 2, 5, 1000])
def test_spread_puts_off_what_its_bucket_has_no_room_for(most: int) -> None:
    """Nothing is lost; the first ones of a bucket keep their order, the rest follow in theirs."""
    rows, spaces = cases()
    keys = [(v, by_definition(spaces[v], row.tolist())) for v, row in rows]
    taken: Counter[tuple[Variant, tuple[int, ...]]] = Counter()
    first, late = [], []
    for k, key in enumerate(keys):
        (first if taken[key] < most else late).append(k)
        taken[key] += 1
    found = list(spread(rows, most))
    order = [next(k for k, (_, row) in enumerate(rows) if row is found_row) for _, found_row in found]
    assert order == first + late
    assert most == 1000 or late


def test_a_round_is_not_spent_on_one_kind_of_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evolution likes the programs of one bucket best; the round has its share of them, and goes on with others."""
    task = ansor.SearchTask(
        "matmul", (64, 64, 64), target="c", hardware_params=ansor.HardwareParams(num_cores=4, vector_unit_bytes=32)
    )
    policy, n = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0), 32
    proposals = policy.proposals
    groups = proposals.population(4000)
    rows = [(g.variant, row, bucket(g.variant.space, row[None, :]).tobytes()) for g in groups for row in g.rows]
    (favourite, count), *_ = Counter((v, key) for v, _, key in rows).most_common(1)
    rows.sort(key=lambda entry: (entry[0], entry[2]) != favourite)
    share = int(n * MOST_OF_A_BUCKET)
    assert share == 4 < count
    found = [Candidate(v, row, -float(k)) for k, (v, row, _) in enumerate(rows)]
    monkeypatch.setattr("ansor.policy.proposals.evolve", lambda *args, **options: found)
    picked = proposals.evolved(n, lambda group: np.zeros(len(group.rows)), [])
    counts = Counter((v, bucket(v.space, row[None, :]).tobytes()) for _, (v, row) in picked)
    assert len(picked) == n and counts[favourite] == share == max(counts.values())


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_a_population_has_few_variants_half_of_them_those_of_the_best(target: str) -> None:
    """Every variant costs time of its own; elites beyond the first few variants stay out, the others all come in."""
    task = ansor.SearchTask(compute_dag=dag_of("conv2d_bn_relu"), target=target, hardware_params=HARDWARE[target])
    wide = {"extra_sketch_rules": "packed_read, double_buffer, split_reduction"}
    proposals = ansor.SketchPolicy(task, ansor.RandomModel(0), params=wide, seed=2, verbose=0).proposals
    most = proposals.most_variants
    elites = [row for _, row in proposals.random(6 * most)]
    order = list(dict.fromkeys(v for v, _ in elites))
    assert len(order) > most // 2 > 0
    population = proposals.population(64, elites)
    groups: dict[Variant, list[bytes]] = {}
    for g in population:
        groups.setdefault(g.variant, []).extend(row.tobytes() for row in g.rows)
    assert len(groups) <= most
    for v, row in elites:
        assert v in order[: most // 2] or v not in groups or row.tobytes() not in groups[v]
        assert v not in order[: most // 2] or row.tobytes() in groups[v]
    fresh = sum(len(g.rows) for g in proposals.population(64))
    assert 64 <= fresh < 64 + most
