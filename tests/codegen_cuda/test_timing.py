"""How often a measured program is called: a slow one seldom, a fast one as often as its time takes to be known.

The device is made up (`fake_gpu.py`); the oracle is the time it was given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from tests.ansor.fake_clock import FakeClock
from tests.codegen_cuda.fake_gpu import FakeGpu, fake_program, jittering

BEST = 2.7e-3


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr("codegen_cuda.driver.timing.time", clock)
    return clock


def trial(
    host: FakeClock,
    seconds: Iterator[float],
    best: float,
    stalls: Iterable[float] = (),
    number: int = 3,
    repeat: int = 1,
    min_repeat_ms: int = 100,
) -> tuple[list[float], int]:
    """The figures of a program that is run once and then timed, and how often its kernel was launched."""
    gpu = FakeGpu(host, seconds, iter(stalls))
    program = fake_program(gpu)
    program.run([])
    return program.time([], number, repeat, min_repeat_ms, False, best), gpu.calls


@pytest.mark.parametrize("draw", range(8))
def test_what_is_hopeless_and_long_is_called_once(host: FakeClock, draw: int) -> None:
    rng = np.random.default_rng(draw)
    seconds = float(rng.uniform(3.3, 40)) * BEST
    costs, calls = trial(host, jittering(rng, seconds, 0.01), BEST, repeat=3)
    assert calls == 1
    assert costs == [pytest.approx(seconds, rel=0.011)] * 3


@pytest.mark.parametrize("draw", range(8))
def test_what_is_slower_than_the_best_is_called_a_few_times(host: FakeClock, draw: int) -> None:
    rng = np.random.default_rng(draw)
    seconds = float(rng.uniform(1.3, 2.8)) * BEST
    (cost,), calls = trial(host, jittering(rng, seconds, 0.005), BEST)
    assert calls <= 3
    assert cost == pytest.approx(seconds, rel=0.006)


@pytest.mark.parametrize("best", [BEST, math.inf], ids=["known", "unknown"])
@pytest.mark.parametrize("draw", range(8))
def test_the_time_of_a_fast_long_program_is_known_to_half_a_per_cent(host: FakeClock, draw: int, best: float) -> None:
    """Half of at least five calls agree to half a per cent, however cold the first one was, or the budget is spent."""
    rng = np.random.default_rng(draw)
    seconds = float(rng.uniform(0.4, 1.05)) * BEST
    (cost,), calls = trial(host, jittering(rng, seconds, 0.003, cold=float(rng.uniform(0, 4e-4))), best)
    assert 6 <= calls <= 14
    assert cost == pytest.approx(seconds, rel=0.003)
    (cost,), calls = trial(host, jittering(rng, seconds, 0.2), best)
    assert (calls - 1) * seconds >= 0.09 or calls > 50
    assert cost == pytest.approx(seconds, rel=0.2)


def test_a_very_long_program_is_called_for_its_budget_and_no_more(host: FakeClock) -> None:
    rng = np.random.default_rng(3)
    (cost,), calls = trial(host, jittering(rng, 0.05, 0.001), 0.05)
    assert (cost, calls) == (pytest.approx(0.05, rel=0.001), 4)
    assert trial(host, jittering(rng, 0.05, 0.001), 0.05, number=70)[1] == 71


@pytest.mark.parametrize("seconds", [2e-6, 3e-5, 4e-4, 9e-4])
def test_short_programs_are_called_for_a_millisecond_at_a_time(host: FakeClock, seconds: float) -> None:
    rng = np.random.default_rng(1)
    (cost,), calls = trial(host, jittering(rng, seconds, 0.004, cold=3e-4), seconds)
    assert calls >= 1 + 2 + 6 * min(math.ceil(1e-3 / seconds), 900) * 0.9
    assert cost == pytest.approx(seconds, rel=0.004)


@pytest.mark.parametrize("seconds", [3e-5, 4e-4, BEST])
def test_a_host_that_is_away_makes_no_program_hopeless(host: FakeClock, seconds: float) -> None:
    """The first call is not held back by a spinning kernel, so its events see what the host does meanwhile."""
    rng = np.random.default_rng(1)
    for stall in (1e-3, 2e-2, 0.3):
        stalls = itertools.chain([stall], itertools.repeat(0.0))
        (cost,), _ = trial(host, jittering(rng, seconds, 0.002), seconds, stalls)
        assert cost == pytest.approx(seconds, rel=0.003)


def test_a_cold_first_call_makes_no_program_hopeless(host: FakeClock) -> None:
    rng = np.random.default_rng(1)
    for seconds in (6e-4, 1.2e-3, 2e-3):
        (cost,), _ = trial(host, jittering(rng, seconds, 0.002, cold=4.9e-4), seconds / 2.9)
        assert cost == pytest.approx(seconds, rel=0.02)


def test_a_first_call_counts_for_one_timing(host: FakeClock) -> None:
    """A program that was hopeless once is called when it is timed again."""
    gpu = FakeGpu(host, jittering(np.random.default_rng(0), 0.02, 0.001), iter(()))
    program = fake_program(gpu)
    program.run([])
    assert program.time([], 3, 1, 100, False, BEST) == [pytest.approx(0.02, rel=0.01)] and gpu.calls == 1
    program.time([], 3, 1, 100, False, math.inf)
    assert gpu.calls >= 5
