"""Which of the ways in which kernels follow each other is taken; the clock is made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from codegen_cuda.early_launch import PARAMS, TYPES, Trigger
from codegen_cuda.launch_ways import NOTHING, Ahead, Way, fastest

EARLY = [Way(True, trigger, True) for trigger in Trigger]
LATE = Way(False, Trigger.END, True)


def clock(seconds: Mapping[Way, float], runs: list[int]) -> Callable[[Way], Callable[[int], float]]:
    """Runs of a way take its seconds, half a second where it says nothing; the first one twice as long."""

    def record(way: Way) -> Callable[[int], float]:
        late = [2.0]

        def timed(number: int) -> float:
            runs.append(number)
            return number * seconds.get(way, 0.5) * (late.pop() if late else 1.0)

        return timed

    return record


@pytest.mark.parametrize("best", [LATE, *EARLY])
@pytest.mark.parametrize("fetches", [False, True])
def test_the_fastest_way_is_taken(best: Way, fetches: bool) -> None:
    without = Way(best.early, best.trigger, False)
    seconds = {best: 2e-3, without: 2.1e-3 if fetches else 1.9e-3}
    assert fastest(clock(seconds, [])) == (best if fetches else without)


def test_short_networks_run_many_times() -> None:
    runs: list[int] = []
    fastest(clock(dict.fromkeys([LATE, *EARLY, Way(False, Trigger.END, False)], 2e-5), runs))
    assert max(runs) in range(40, 101)


def test_what_a_kernel_is_told() -> None:
    ahead = Ahead(Trigger.AFTER_WAIT, 4096, 1600)
    told = dict(zip(PARAMS, ahead.arguments(blocks=10, multiprocessors=4), strict=True))
    assert len(TYPES) == len(told) and list(told.values()) == [4096, 400, 1600, 1]
    assert Ahead(ahead.trigger).arguments(10, 4) == [0, 0, 0, 1] and NOTHING.arguments(10, 4) == [0, 0, 0, 0]
