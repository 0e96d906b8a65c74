"""Programs in turns: who leaves when, and who is found where figures of one program differ more than the programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.tasks.measure_values import Baseline
from ansor.core.values.steady import by_turns, greatest_factor
from ansor.measure.finals import FINALISTS, Field, Leaders, nothing_better
from ansor.measure.turns import LAST, MOST_SECONDS, ROUNDS, figures, race

States = Callable[..., list[Any]]


def test_the_slower_half_leaves_after_each_few_rounds() -> None:
    asked: list[int] = []

    def figure(k: int) -> float:
        asked.append(k)
        return 1.0 + (k * 5 + 3) % 11

    times = race(11, figure)
    there, begun = set(range(11)), 0
    for count in (11, 6, 3, 2):
        there = set(sorted(there, key=lambda k: (k * 5 + 3) % 11)[:count])
        assert asked[begun : begun + count * ROUNDS] == sorted(there) * ROUNDS
        begun += count * ROUNDS
    assert begun == len(asked)
    assert sorted(len(t) for t in times) == [5] * 5 + [10] * 3 + [15] + [20] * 2
    best = min(range(11), key=lambda k: by_turns(times[k]))
    assert (best * 5 + 3) % 11 == 0


@pytest.mark.parametrize("count", [0, 1, LAST])
def test_few_programs_have_equal_numbers_of_figures(count: int) -> None:
    assert race(count, lambda k: 1.0 + k) == figures(count, lambda k: 1.0 + k, ROUNDS)


def test_a_program_that_stops_to_run_has_no_figures() -> None:
    calls = itertools.count()
    times = race(5, lambda k: None if (k == 1 and next(calls) >= 3) or k == 4 else 2.0 - k / 10)
    assert times[1] == times[4] == [] and [len(times[k]) for k in (0, 2, 3)] == [5, 10, 10]
    assert race(3, lambda k: None) == [[], [], []]


def test_nobody_leaves_where_programs_take_too_long() -> None:
    ticks = itertools.chain([0.0], itertools.repeat(MOST_SECONDS))
    assert [len(t) for t in race(9, lambda k: 1.0, lambda: next(ticks))] == [ROUNDS] * 9


def test_a_fast_minute_of_the_machine_flatters_nobody_who_left() -> None:
    """The figures of those who stay are of slower times."""
    calls = itertools.count()

    def figure(k: int) -> float:
        return (1.0 + k / 10) * (1 if next(calls) < 4 * ROUNDS else 3)

    times = race(4, figure)
    assert np.median(times[3]) < np.median(times[0])
    assert sorted(range(4), key=lambda k: by_turns(times[k]))[0] == 0


def test_the_race_finds_better_programs_than_five_figures_of_the_luckiest_five() -> None:
    """Figures 9 % off, programs within 15 %, as on 16 busy cores: single figures choose the field."""
    rng, loss = np.random.default_rng(0), {"race": 0.0, "five": 0.0}
    for _ in range(300):
        true = 1 + np.sort(rng.uniform(0, 0.15, 64))
        lucky = np.argsort(true * np.exp(0.12 * rng.standard_normal(64)))

        def figure(k: int, true: np.ndarray = true, lucky: np.ndarray = lucky) -> float:
            return float(true[lucky[k]] * np.exp(0.09 * rng.standard_normal()))

        times = race(16, figure)
        loss["race"] += true[lucky[min(range(16), key=lambda k: by_turns(times[k]))]] / true[0] - 1
        five = figures(5, figure, 5)
        loss["five"] += true[lucky[min(range(5), key=lambda k: np.median(five[k]))]] / true[0] - 1
    assert loss["race"] < 0.75 * loss["five"]


def test_how_many_are_timed_once_more(matmul_task: ansor.SearchTask) -> None:
    inp = ansor.MeasureInput(matmul_task, steps=())

    def after(trials: int, seconds: float) -> Leaders:
        leaders = Leaders()
        for k in range(trials):
            leaders.add((seconds * (trials - k), k, inp))
        return leaders

    sizes = [FINALISTS.size(after(n, 1e-3)) for n in (0, 1, 20, 24, 64, 1000)]
    assert sizes == [5, 5, 5, 6, 16, 16]
    assert [FINALISTS.size(after(64, s)) for s in (0.05, 0.1, 0.25)] == [16, 10, 5]
    assert Field(3, 8).size(after(1000, 1e-3)) == 8
    kept = after(40, 1e-3)
    assert kept.trials == 40 and [number for _, number, _ in kept.best] == list(range(39, 23, -1))


def test_one_figure_of_many_makes_no_machine_busy() -> None:
    assert greatest_factor([[1.0] * 19 + [3.0], [1.0] * 4 + [9.0]]) == 1.0
    assert greatest_factor([[1.0] * 10 + [3.0] * 10, [1.0] * 5]) == 3.0
    assert greatest_factor([[1.0] * 4 + [2.5]] * 2) == 2.5 and greatest_factor([]) == 1.0


@pytest.mark.parametrize(("figures", "said"), [(5, ""), (20, "slower than default: ")])
def test_a_baseline_that_left_the_turns_was_slower(
    matmul_task: ansor.SearchTask, states: States, figures: int, said: str
) -> None:
    """Whatever it took when the machine was faster."""
    best, default = (ansor.MeasureInput(matmul_task, state) for state in states(2))
    timed = [((3e-3, 1, best), [3e-3] * 20), ((2e-3, 0, default), [2e-3] * figures)]
    text = nothing_better(timed, [leader for leader, _ in timed], {Baseline.DEFAULT: (1e-3, 0, default)})
    assert text.startswith(said) and bool(text) == bool(said)
    raced = [timed[0][0], (1e-3, 0, default)]
    assert nothing_better(timed[:1], raced, {Baseline.DEFAULT: (1e-3, 0, default)}) == "", "it raced, and did not run"
    assert nothing_better(timed[:1], raced[:1], {Baseline.DEFAULT: (1e-3, 0, default)}).startswith(
        "slower than default"
    )
