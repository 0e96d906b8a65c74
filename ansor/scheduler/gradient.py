"""Which task to tune next.  Pure functions of the progress: no clock, no randomness.

The gradient strategy estimates how much the objective f would fall if a task got one more round (Ansor, section 6
and appendix A).  For task i with least latency g_i after t_i rounds:

    df/dt_i = df/dg_i * (alpha * (g_i(t_i) - g_i(t_i - W)) / W
                         + (1 - alpha) * (min(g_i - g_i / t_i, beta * C_i / max_k V_k) - g_i))

The first term looks back over W rounds; the second is a guess of the future, either that all rounds were equally
good, or that the task gets within beta of the best speed V_k of the tasks like it (C_i: its operations).

Three cases the formula is silent about.  A task without a working program has no latency: it takes turns, with as
many rounds as the mean of all tasks and no more.  A task that cannot go on is never chosen.  Where no gradient is
negative (the objective does not depend on any task, or gets worse when tasks get faster) the task with the fewest
rounds is next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.values.parts import asking_own
from .groups import Groups, others, speeds
from .task_progress import TaskProgress

RELATIVE_STEP = 1e-3

Objective = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class GradientParams:
    """`alpha` weighs the past, 1 - `alpha` the future; `beta` and `window` (W) are those of the formula.

    Raises TaskError unless 0 <= alpha <= 1, beta > 0 and window >= 1.
    """

    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3

    def __post_init__(self) -> None:
        require(0 <= self.alpha <= 1, TaskError, "TaskScheduler", "alpha must lie in 0 to 1", alpha=self.alpha)
        ok = 0 < self.beta < math.inf
        require(ok, TaskError, "TaskScheduler", "beta must be positive and finite", beta=self.beta)
        ok = isinstance(self.window, int) and self.window >= 1
        law = "backward_window_size must be an integer of at least 1"
        require(ok, TaskError, "TaskScheduler", law, backward_window_size=self.window)


@dataclass(frozen=True)
class SchedulerState:
    """All that a choice depends on, by task; `alive` lists the tasks that can be chosen."""

    progress: tuple[TaskProgress, ...]
    alive: tuple[int, ...]
    flops: tuple[float, ...]
    groups: Groups


def evaluate(objective: Objective, costs: Sequence[float]) -> float:
    """The objective of latencies in seconds.

    Raises TaskError when it is no finite number, PartError for a function of the user's own that raises.
    """
    with asking_own("objective_func", "the function"):
        value = objective(list(costs))
    ok = isinstance(value, Real) and math.isfinite(value)
    require(ok, TaskError, "objective_func", "it must give a finite number", value=value, costs=list(costs))
    return float(value)


def stand_ins(progress: Sequence[TaskProgress]) -> list[float]:
    """The latency of each task; one that has none yet is taken for as slow as the slowest.

    At least one task must have a latency.
    """
    slowest = max(s.cost for s in progress if s.valid)
    return [s.cost if s.valid else slowest for s in progress]


def chain(objective: Objective, costs: Sequence[float], task_id: int) -> float:
    """df/dg of one task, by a small step towards a lower latency: the weight, for a weighted sum."""
    step = RELATIVE_STEP * costs[task_id]
    lower = [c - step if k == task_id else c for k, c in enumerate(costs)]
    return (evaluate(objective, costs) - evaluate(objective, lower)) / step


def backward(history: Sequence[float], window: int) -> float:
    """Seconds gained a round over the last `window` rounds, as a number <= 0; 0 when there were not so many."""
    if len(history) <= window or not math.isfinite(history[-1 - window]):
        return 0.0
    return (history[-1] - history[-1 - window]) / window


def forward(state: SchedulerState, task_id: int, beta: float) -> float:
    """Seconds the next round may gain, as a number <= 0."""
    now = state.progress[task_id]
    hoped = now.cost - now.cost / now.rounds
    reached = max((speeds(state.progress, state.flops)[k] for k in others(state.groups, task_id)), default=0.0)
    if reached > 0 and state.flops[task_id] > 0:
        reached = max(reached, state.flops[task_id] / now.cost)
        hoped = min(hoped, beta * state.flops[task_id] / reached)
    return hoped - now.cost


def gradients(state: SchedulerState, objective: Objective, params: GradientParams) -> dict[int, float]:
    """df/dt of every task that is alive and has a latency; the more negative, the more a round promises."""
    found = {}
    for k in state.alive:
        now = state.progress[k]
        if now.valid:
            slope = chain(objective, stand_ins(state.progress), k)
            past = backward(now.history, params.window)
            found[k] = slope * (params.alpha * past + (1 - params.alpha) * forward(state, k, params.beta))
    return found


def pick_by_gradient(state: SchedulerState, objective: Objective, params: GradientParams) -> int:
    """The task whose next round promises most; equals go to the one with fewer rounds, then the first.

    At least one task must be alive.
    """

    def rounds(k: int) -> tuple[int, int]:
        return state.progress[k].rounds, k

    mean = sum(state.progress[k].rounds for k in state.alive) / len(state.alive)
    without = [k for k in state.alive if not state.progress[k].valid]
    if without and state.progress[min(without, key=rounds)].rounds < mean:
        return min(without, key=rounds)
    found = gradients(state, objective, params)
    falling = [k for k, gradient in found.items() if gradient < 0]
    return min(falling, key=lambda k: (found[k], rounds(k))) if falling else min(state.alive, key=rounds)


def pick_in_turn(last: int, alive: Sequence[int]) -> int:
    """The next task after `last` in a circle, of those alive (at least one, ascending)."""
    return next((k for k in alive if k > last), alive[0])
