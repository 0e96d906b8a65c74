"""A C program is timed several times for each cost, and the median counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.timing import TIMINGS, costs

CALL = 2e-3


class Program:
    """Takes `CALL` seconds a call, and more in the iterations that are disturbed."""

    def __init__(self, disturbed: tuple[int, ...] = (), call: float = CALL) -> None:
        self.disturbed, self.call = disturbed, call
        self.asked: list[int] = []

    def __call__(self, number: int) -> float:
        self.asked.append(number)
        return number * self.call * (20 if len(self.asked) - 1 in self.disturbed else 1)


@pytest.mark.parametrize("iteration", range(TIMINGS))
def test_one_disturbance_leaves_no_trace(iteration: int) -> None:
    assert costs(Program((iteration,)), 3, 1, 0) == pytest.approx([CALL])
    assert costs(Program((0, 1)), 3, 1, 0) == pytest.approx([20 * CALL])


@given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 60), st.floats(1e-6, 5e-2))
def test_all_figures_of_a_cost_have_the_calls_and_the_time_that_were_asked_for(
    number: int, repeat: int, min_repeat_ms: int, call: float
) -> None:
    program = Program(call=call)
    assert costs(program, number, repeat, min_repeat_ms) == pytest.approx([call] * repeat)
    last = program.asked[-TIMINGS:]
    assert sum(last) >= number and sum(last) * call * 1e3 >= min_repeat_ms * (1 - 1e-9)
    assert len(program.asked) <= repeat * TIMINGS + 3
    wasted = sum(program.asked) - repeat * TIMINGS * last[0]
    assert wasted <= 2 * last[0]


def test_a_slow_program_is_called_no_oftener_than_before() -> None:
    program = Program(call=1.0)
    costs(program, 3, 1, 100)
    assert program.asked == [1, 1, 1]
