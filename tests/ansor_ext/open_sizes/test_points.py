"""Which sizes count and how much, what is refused of them, and which programs are kept and run at a size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor_ext.open_sizes.choice import MOST_PROGRAMS, Scores, nearness, scores_of
from ansor_ext.open_sizes.points import Point, points_of
from tests.nonempty import nonempty

N, M = te.size_var("n", 1, 1000), te.size_var("m", 2, 8)
NAN, INF = float("nan"), float("inf")


def weights(given: Any) -> dict[tuple[int, ...], float]:
    return {p.values: round(p.weight, 9) for p in points_of([N], given)}


def test_values_without_a_weight_share_what_is_left() -> None:
    assert weights({"n": [1000, (1, 0.1), (128, 0.5), 2]}) == {(1,): 0.1, (2,): 0.2, (128,): 0.5, (1000,): 0.2}
    assert weights({"n": [(4, 3), (8, 1)]}) == {(4,): 0.75, (8,): 0.25}
    assert weights({"n": (7, 8)}) == {(7,): 0.5, (8,): 0.5}


def test_ranges_have_their_ends_and_grow_by_factors() -> None:
    assert list(weights(None)) == list(weights({"n": range(1, 1001)})) == [(1,), (4,), (16,), (63,), (251,), (1000,)]
    assert list(weights({"n": range(8, 65, 8)})) == [(8,), (16,), (24,), (40,), (64,)]
    assert list(weights({"n": range(5, 6)})) == [(5,)]
    for point in nonempty(points_of([N, M], {"n": [1, 2]})):
        assert point.values[0] in (1, 2) and 2 <= point.values[1] <= 8


def test_combinations_multiply() -> None:
    found = points_of([N, M], {"m": [(2, 1), (8, 3)], "n": [1, 10]})
    assert found == (
        Point((1, 2), 0.125), Point((1, 8), 0.375), Point((10, 2), 0.125), Point((10, 8), 0.375),
    )  # fmt: skip


def test_numbers_of_numpy_are_numbers() -> None:
    assert points_of([N], {"n": [(np.int64(10), np.float32(0.25)), np.int32(20)]}) == points_of(
        [N], {"n": [(10, 0.25), 20]}
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": [1]}, "OpenTask: sizes: the open extents are n, got 'k'"),
        ({"n": [0]}, "OpenTask: sizes of n: a value is one of 1 to 1000, got 0"),
        ({"n": [1001]}, "OpenTask: sizes of n: a value is one of 1 to 1000, got 1001"),
        ({"n": range(1, 2000)}, "OpenTask: sizes of n: a value is one of 1 to 1000, got 1999"),
        ({"n": range(0, 100)}, "OpenTask: sizes of n: a value is one of 1 to 1000, got 0"),
        ({"n": [1.5]}, "OpenTask: sizes of n: a value is one of 1 to 1000, got 1.5"),
        ({"n": [(1, -0.5)]}, "OpenTask: sizes of n: a weight is a positive number, got value=1 weight=-0.5"),
        ({"n": [(1, 0)]}, "OpenTask: sizes of n: a weight is a positive number, got value=1 weight=0"),
        ({"n": [(1, NAN)]}, "OpenTask: sizes of n: a weight is a positive number, got value=1 weight=nan"),
        ({"n": [(1, "x")]}, "OpenTask: sizes of n: a weight is a positive number, got value=1 weight='x'"),
        ({"n": [1, (1, 0.5)]}, "OpenTask: sizes of n: each value is listed once"),
        ({"n": [1, (2, 1.5)]}, "OpenTask: sizes of n: weights leave a part of 1 for the values without one"),
        ({"n": []}, "OpenTask: sizes of n: a range, or a list of values and pairs"),
        ({"n": 7}, "OpenTask: sizes of n: a range, or a list of values and pairs"),
        ([1], "OpenTask: sizes is a dictionary"),
        ({"n": list(range(1, 34))}, "OpenTask: sizes: at most 32 combinations, got 33"),
    ],
)
def test_what_fits_no_size_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ansor.TaskError) as caught:
        points_of([N], given)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


POINTS = (Point((1,), 0.25), Point((16,), 0.25), Point((256,), 0.5))


def scores(*rows: list[float], known: tuple[float, ...] = (INF, INF, INF)) -> Scores:
    return scores_of(POINTS, np.array(rows), np.array(known))


def test_scores_are_relative_to_the_best_that_is_known() -> None:
    logs = scores([2.0, 3.0, 8.0], [4.0, 3.0, 4.0], known=(1.0, INF, INF)).logs
    np.testing.assert_allclose(np.exp(logs), [[2, 1, 2], [4, 1, 1]])


def test_what_was_not_measured_is_predicted_from_near_points() -> None:
    logs = scores([1.0, NAN, 4.0], [2.0, 2.0, 1.0]).logs
    assert logs[0, 0] < logs[0, 1] < logs[0, 2]
    np.testing.assert_allclose(logs[0, 1], (logs[0, 0] + logs[0, 2]) / 2)


def test_the_programs_that_serve_all_points_are_kept() -> None:
    assert scores([1, 9, 9], [9, 1, 9], [2, 2, 2], [9, 9, 1]).chosen() == (2, 3, 0, 1)
    assert scores([1, 9, 9], [9, 1, 9], [2, 2, 2], [9, 9, 1]).chosen(2) == (2, 3)
    assert scores([1, 1, 1], [1, 1, 1], [2, 2, 2]).chosen() == (0,)
    assert scores([1, 1, 1.001], [9, 9, 1]).chosen() == (0,)


def test_never_more_programs_than_allowed() -> None:
    points = tuple([Point((k,), 1 / 20) for k in range(1, 21)])
    seconds = np.full((20, 20), 50.0) - 49 * np.eye(20)
    assert len(scores_of(points, seconds, np.full(20, INF)).chosen()) == MOST_PROGRAMS == 8


def test_the_best_program_of_a_size() -> None:
    found = scores([1.0, 4.0, 4.0], [4.0, 1.0, 1.5], [8.0, 2.0, 1.0])
    assert [found.best_at((n,)) for n in (1, 2, 14, 16, 20, 200, 256, 1000)] == [0, 0, 1, 1, 1, 2, 2, 2]
    assert found.only((2, 0)).best_at((1,)) == 1


def test_nearness_sums_up_to_one() -> None:
    for n in nonempty((1, 2, 16, 255, 1000)):
        assert abs(nearness((n,), POINTS).sum() - 1) < 1e-12
    assert list(nearness((16,), POINTS)) == [0, 1, 0]
