"""Tables of factorisations, and the draw of lengths that fit a GPU, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ansor.sketch import generate_sketches
from ansor.sketch.shared_memory import estimated_shared_bytes, shared_bytes
from ansor.space.decisions.factor_tables import divisors, factor_table
from ansor.space.decisions.loops import fill, holes
from ansor.space.decisions.thread_plans import ThreadLimits, thread_plan
from ansor.space.sample import sample_rows
from ansor.space.spaces import home, space_of
from ansor.space.states import concrete
from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import ScheduleError
from tests.ansor.sketch_cases import HARDWARE, dag_of
from tests.nonempty import nonempty


def brute_force(extent: int, parts: int, innermost: int) -> list[tuple[int, ...]]:
    candidates = itertools.product(range(1, extent + 1), repeat=parts)
    return [t for t in candidates if extent % math.prod(t) == 0 and t[-1] <= innermost]


@pytest.mark.parametrize(("extent", "parts", "innermost"), [(1, 4, 64), (12, 3, 64), (24, 2, 4), (7, 3, 5), (20, 1, 6)])
def test_table_is_every_factorisation(extent: int, parts: int, innermost: int) -> None:
    table = factor_table(extent, parts, innermost)
    assert [tuple(row) for row in table.tolist()] == brute_force(extent, parts, innermost)
    assert not table.flags.writeable and table is factor_table(extent, parts, innermost)


def test_prime_larger_than_the_innermost_limit() -> None:
    assert factor_table(101, 1).tolist() == [[1]]
    assert factor_table(101, 2).tolist() == [[1, 1], [101, 1]]


def test_divisors() -> None:
    for n in range(1, 200):
        assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


LIMITS = ThreadLimits(max_vthread=2, min_threads=4, max_threads=6)


def fitting(extents: tuple[int, ...], parts: int, limits: ThreadLimits) -> set[tuple[tuple[int, ...], ...]]:
    tables = [[tuple(r) for r in factor_table(e, parts, 64).tolist()] for e in extents]
    return {
        rows  # type: ignore[misc]
        for rows in itertools.product(*tables)
        if math.prod(r[0] for r in rows) <= limits.max_vthread
        and limits.min_threads <= math.prod(r[1] for r in rows) <= limits.max_threads
    }


def rows_of(drawn: list[np.ndarray]) -> list[tuple[tuple[int, ...], ...]]:
    return [tuple(tuple(lengths) for lengths in rows) for rows in zip(*[a.tolist() for a in drawn], strict=True)]


@pytest.mark.parametrize("extents", [(6, 8), (12,), (2, 3, 4)])
def test_thread_draw_is_uniform_over_what_fits(extents: tuple[int, ...]) -> None:
    expected = fitting(extents, 2, LIMITS)
    plan = thread_plan(tuple([(e,) for e in extents]), 2, LIMITS, 64)
    assert plan.ways[0] == {(1, 1): float(len(expected))}
    rng = np.random.default_rng(1)
    drawn = rows_of(plan.draw(120 * len(expected), rng))
    assert set(drawn) == expected
    counts = [drawn.count(rows) for rows in expected]
    assert min(counts) > 70 and max(counts) < 180


def test_too_few_threads_are_allowed_when_nothing_else_fits() -> None:
    plan = thread_plan(((2053,),), 4, ThreadLimits(8, 32, 1024), 64)
    (rows,) = plan.draw(8, np.random.default_rng(0))
    assert (rows[:, :2] == 1).all()


@pytest.mark.parametrize("name", ["matmul", "conv2d_bn_relu", "strided_conv", "double_matmul", "winograd", "attention"])
@pytest.mark.one_in(5)
def test_shared_estimate_is_exact_for_affine_reads(name: str) -> None:
    dag = dag_of(name)
    hardware = HARDWARE["cuda"]
    rng = np.random.default_rng(0)
    for sketch in nonempty(generate_sketches(dag, "cuda", hardware)):
        variant = home(space_of(sketch, "cuda", hardware))
        rows = sample_rows(variant, 20, rng, "cuda", hardware)
        assert len(rows) == 20
        for row in nonempty(rows):
            lengths = {t.step: row[t.columns].tolist() for t in variant.space.tiles}
            bound = concrete(variant, row, "cuda", hardware)
            exact = max(shared_bytes(infer_bounds(bound)).values(), default=0)
            divides = all(t.extents[0] % int(np.prod(lengths[t.step])) == 0 for t in variant.space.tiles)
            estimated = estimated_shared_bytes(sketch, lengths)
            assert estimated <= exact <= hardware.max_shared_memory_per_block
            assert estimated == exact or not divides


def test_fill_replaces_steps_and_checks_lengths() -> None:
    sketch = generate_sketches(dag_of("matmul"), "c", HARDWARE["c"])[0]
    positions = list(holes(sketch))
    filled = fill(sketch, {positions[0]: (2, 4, 8), positions[1]: (1, 1, 16), positions[2]: (32,)})
    assert [it.extent for it in filled.stages[2].iters] == [8, 32, 2, 1, 16, 4, 1, 32, 8, 16]
    assert filled.concrete and not sketch.concrete
    with pytest.raises(ScheduleError, match="every factor must be positive"):
        fill(sketch, {positions[0]: (2, 0, 8)})
