"""The printed table byte by byte, and the rule by which repeats grow."""

from __future__ import annotations

import pytest

from relay_lite.ir.errors import GraphError
from relay_lite.runtime.benchmark import BenchmarkResult, TimeEvaluator


class Clock:
    """Calls that take `each` seconds, and the numbers of calls asked for."""

    def __init__(self, each: float) -> None:
        self.each = each
        self.asked: list[int] = []

    def __call__(self, number: int) -> float:
        self.asked.append(number)
        return self.each * number


def test_the_table() -> None:
    # mean, median, max, min, std of these are those of the tutorial's page, up to the last digit of the mean
    result = BenchmarkResult((0.0098429, 0.0098024, 0.0097289))
    assert str(result) == (
        "Execution time summary:\n"
        " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  \n"
        "   9.7914       9.8024       9.8429       9.7289       0.0472                  "
    )
    assert repr(BenchmarkResult((2.0,))) == (
        "BenchmarkResult(min=2.0, mean=2.0, median=2.0, max=2.0, std=0.0, results=(2.0,))"
    )


def test_odd_slack_goes_right() -> None:
    assert str(BenchmarkResult((1.0,))).splitlines()[2][:12] == " 1000.0000  "


def test_repeats_grow_until_they_are_long_enough() -> None:
    clock = Clock(1e-3)
    evaluator = TimeEvaluator(clock, number=2, repeat=2, min_repeat_ms=50)
    assert evaluator().results == pytest.approx((1e-3, 1e-3))
    assert clock.asked == [1, 2, 51, 51]  # one to warm up; too short; the number stays for the second repeat
    evaluator()
    assert clock.asked[4:] == [1, 51, 51]


def test_growth_is_at_least_the_golden_ratio() -> None:
    clock = Clock(1e-3)
    took = iter([0.0, 0.0299, 0.0299, 0.031])

    def seconds(number: int) -> float:
        clock(number)
        return next(took)

    assert TimeEvaluator(seconds, number=100, min_repeat_ms=30)().results == pytest.approx((0.031 / 260,))
    assert clock.asked == [1, 100, 161, 260]


def test_no_measurable_time_is_given_up() -> None:
    clock = Clock(0.0)
    TimeEvaluator(clock, number=5, min_repeat_ms=10, limit_zero_time_iterations=7)()
    assert clock.asked == [1] + [5] * 7


def test_preparation_runs_once_a_repeat() -> None:
    told: list[str] = []
    clock = Clock(1e-3)
    TimeEvaluator(
        clock, number=1, repeat=2, min_repeat_ms=3, prepare=lambda: told.append("p"), before=lambda: told.append("b")
    )()
    assert told == ["p", "b", "b", "p", "b"]


@pytest.mark.parametrize("name", ["number", "repeat", "repeats_to_cooldown"])
def test_what_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match=f"{name} must be at least 1"):
        TimeEvaluator(Clock(1.0), **{name: 0})  # type: ignore[arg-type]
