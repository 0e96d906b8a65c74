"""How often a measured program of target `c` is called; the times of calls are made up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from codegen_c.backend import CProgram

BEST = 0.03
Array = np.ndarray


class MadeUp(CProgram):
    """Takes `seconds` a call, the first one `cold` seconds longer; `slow` says which calls take ten times as long."""

    def __init__(self, seconds: float, cold: float = 0.0, slow: Sequence[int] = ()) -> None:
        self.seconds, self.cold, self.slow = seconds, cold, slow
        self.calls = 0
        self._last = math.inf

    def _once(self, number: int, args: Sequence[Array], flush: bool) -> float:
        total = 0.0
        for _ in range(number):
            total += self.seconds * (10 if self.calls in self.slow else 1) + (self.cold if self.calls == 0 else 0.0)
            self.calls += 1
        return total

    def trial(self, best: float, repeat: int = 1) -> list[float]:
        self.run([])
        return self.time([], 3, repeat, 100, False, best)


@pytest.mark.parametrize("times", [3.3, 7.0, 40.0])
def test_what_is_hopeless_is_called_twice(times: float) -> None:
    program = MadeUp(times * BEST)
    assert program.trial(BEST, repeat=3) == [times * BEST] * 3
    assert program.calls == 2


@pytest.mark.parametrize("times", [0.5, 1.0, 1.7, 2.9])
@pytest.mark.parametrize("best", [BEST, math.inf])
def test_all_others_are_called_as_often_as_ever(times: float, best: float) -> None:
    program = MadeUp(times * BEST)
    (cost,) = program.trial(best)
    assert cost == pytest.approx(times * BEST)
    assert program.calls >= 1 + max(3, 0.1 / (times * BEST))


def test_one_slow_call_makes_no_program_hopeless() -> None:
    for program in (MadeUp(BEST, slow=[0]), MadeUp(1e-3, cold=4.9e-3)):
        (cost,) = program.trial(program.seconds)
        assert cost == pytest.approx(program.seconds) and program.calls > 3
