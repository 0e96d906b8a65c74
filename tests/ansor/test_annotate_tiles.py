"""Tables of factorisations, and the draw of lengths that fit a GPU, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ansor.core.hardware import HardwareParams
from ansor.sketch import generate_sketches
from ansor.sketch.shared_memory import estimated_shared_bytes, shared_bytes
from ansor.space.annotate_sample import draw_gpu_lengths
from ansor.space.factor_tables import choose_lengths, divisors, factor_table
from ansor.space.threads import bind_threads
from ansor.space.tile_sizes import ThreadLimits, fill, holes, thread_plan
from te_lite.bounds import infer_bounds
from te_lite.errors import ScheduleError
from tests.ansor.sketch_cases import HARDWARE, dag_of


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


def test_every_tuple_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    table = factor_table(12, 2).tolist()
    counts = dict.fromkeys(map(tuple, table), 0)
    for _ in range(200 * len(table)):
        counts[choose_lengths(12, 2, rng)] += 1  # type: ignore[index]
    assert min(counts.values()) > 140 and max(counts.values()) < 260


LIMITS = ThreadLimits(max_vthread=2, min_threads=4, max_threads=6)


def fitting(extents: tuple[int, ...], parts: int, limits: ThreadLimits) -> set[tuple[tuple[int, ...], ...]]:
    tables = [[tuple(r) for r in factor_table(e, parts, 64).tolist()] for e in extents]
    return {
        rows  # type: ignore[misc]
        for rows in itertools.product(*tables)
        if math.prod(r[0] for r in rows) <= limits.max_vthread
        and limits.min_threads <= math.prod(r[1] for r in rows) <= limits.max_threads
    }


@pytest.mark.parametrize("extents", [(6, 8), (12,), (2, 3, 4)])
def test_thread_draw_is_uniform_over_what_fits(extents: tuple[int, ...]) -> None:
    expected = fitting(extents, 2, LIMITS)
    plan = thread_plan(extents, 2, LIMITS, 64)
    assert plan.ways[0] == {(1, 1): float(len(expected))}
    rng = np.random.default_rng(1)
    drawn = [tuple(plan.draw(rng)) for _ in range(120 * len(expected))]
    assert set(drawn) == expected
    counts = [drawn.count(rows) for rows in expected]
    assert min(counts) > 70 and max(counts) < 180


def test_too_few_threads_are_allowed_when_nothing_else_fits() -> None:
    plan = thread_plan((2053,), 4, ThreadLimits(8, 32, 1024), 64)
    rows = plan.draw(np.random.default_rng(0))
    assert rows[0][0] == rows[0][1] == 1


@pytest.mark.parametrize("name", ["matmul", "conv2d_bn_relu", "strided_conv", "double_matmul", "winograd", "attention"])
def test_shared_estimate_is_exact_for_affine_reads(name: str) -> None:
    dag = dag_of(name)
    hardware = HARDWARE["cuda"]
    rng = np.random.default_rng(0)
    for sketch in generate_sketches(dag, "cuda", hardware):
        for _ in range(20):
            lengths = draw_gpu_lengths(sketch, hardware, rng, 64)
            assert lengths is not None
            bound = bind_threads(fill(sketch, lengths), hardware, rng)
            assert bound is not None
            exact = max(shared_bytes(infer_bounds(bound)).values(), default=0)
            assert exact == estimated_shared_bytes(sketch, lengths) <= hardware.max_shared_memory_per_block


def test_little_shared_memory_gets_small_tiles() -> None:
    (sketch,) = generate_sketches(dag_of("matmul"), "cuda", HARDWARE["cuda"])
    little = HardwareParams(-1, 16, 64, 256, 2**31 - 1, 1024, 8, 32)
    lengths = draw_gpu_lengths(sketch, little, np.random.default_rng(0), 64)
    assert lengths is not None and estimated_shared_bytes(sketch, lengths) <= 256
    none = HardwareParams(-1, 16, 64, 8, 2**31 - 1, 1024, 8, 32)
    assert draw_gpu_lengths(sketch, none, np.random.default_rng(0), 64) is None


def test_fill_replaces_steps_and_checks_lengths() -> None:
    sketch = generate_sketches(dag_of("matmul"), "c", HARDWARE["c"])[0]
    positions = list(holes(sketch))
    filled = fill(sketch, {positions[0]: (2, 4, 8), positions[1]: (1, 1, 16), positions[2]: (32,)})
    assert [it.extent for it in filled.stages[2].iters] == [8, 32, 2, 1, 16, 4, 1, 32, 8, 16]
    assert filled.concrete and not sketch.concrete
    with pytest.raises(ScheduleError, match="every factor must be positive"):
        fill(sketch, {positions[0]: (2, 0, 8)})
