"""Which of the ways in which kernels follow each other is taken; the clock is made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from codegen_cuda.networks.launch_ways import PLAIN, WAYS, Way, fastest
from codegen_cuda.overlap.prefetch import NOTHING, PARAMS, TYPES, Ahead


def clock(seconds: Mapping[Way, float], runs: list[int]) -> Callable[[Way], Callable[[int], float]]:
    """Runs of a way take its seconds, half a second where it says nothing; the first one twice as long."""

    def record(way: Way) -> Callable[[int], float]:
        late = [2.0]

        def timed(number: int) -> float:
            runs.append(number)
            return number * seconds.get(way, 0.5) * (late.pop() if late else 1.0)

        return timed

    return record


@pytest.mark.parametrize("best", WAYS)
def test_the_fastest_way_is_taken(best: Way) -> None:
    assert PLAIN in WAYS and len(set(WAYS)) == 4
    assert fastest(clock({best: 2e-3}, [])) == best


def test_short_networks_run_many_times() -> None:
    runs: list[int] = []
    fastest(clock(dict.fromkeys(WAYS, 2e-5), runs))
    assert max(runs) in range(40, 101)


def test_what_a_kernel_fetches() -> None:
    given = dict(zip(PARAMS, Ahead(4096, 1600).arguments(blocks=10, multiprocessors=4), strict=True))
    assert len(TYPES) == len(given) and list(given.values()) == [4096, 400, 1600]
    assert NOTHING.arguments(10, 4) == [0, 0, 0]
