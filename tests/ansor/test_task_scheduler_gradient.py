"""The choice of the next task: formula, dead tasks, tasks without a program, objectives of any shape, groups."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ansor
import te_lite as te
from ansor.scheduler.gradient import (
    GradientParams,
    SchedulerState,
    backward,
    chain,
    forward,
    gradients,
    pick_by_gradient,
    pick_in_turn,
    stand_ins,
)
from ansor.scheduler.groups import derive_similarity_tag, group_tasks, leave_if_behind
from ansor.scheduler.task_progress import TaskProgress
from tests.nonempty import nonempty

COSTS = st.floats(1e-7, 10.0)
PARAMS = GradientParams()


@st.composite
def progress(draw, valid=None):
    rounds = draw(
        st.lists(st.lists(st.one_of(COSTS, st.just(math.inf)), min_size=1, max_size=4), min_size=1, max_size=8)
    )
    progress = TaskProgress()
    for measured in rounds:
        progress = progress.after_round(measured)
    return progress.after_round([draw(COSTS)]) if valid and not progress.valid else progress


@st.composite
def boards(draw, valid=None):
    count = draw(st.integers(1, 6))
    made = tuple(draw(progress(valid)) for _ in range(count))
    alive = draw(st.sets(st.integers(0, count - 1), min_size=1))
    flops = tuple(draw(st.sampled_from((-1.0, 0.0, 1e3, 2e6, 3e9))) for _ in range(count))
    groups = tuple(draw(st.integers(0, 2)) for _ in range(count))
    return SchedulerState(made, tuple(sorted(alive)), flops, groups)


def weighted(weights):
    return lambda costs: sum(w * c for w, c in zip(weights, costs, strict=True))


def formula(state, weights, alpha, beta, window):
    """Spec 8.4, with arrays."""
    g = np.array([s.cost for s in state.progress])
    t = np.array([s.rounds for s in state.progress])
    flops = np.maximum(state.flops, 0.0)
    group = np.array(state.groups)
    out = {}
    for i in state.alive:
        h = state.progress[i].history
        past = (h[t[i] - 1] - h[t[i] - 1 - window]) / window if t[i] - 1 - window >= 0 else 0.0
        past = past if np.isfinite(past) else 0.0
        like = group == group[i]
        best = (flops[like] / g[like]).max()
        rest = (flops[like] / g[like])[np.flatnonzero(like) != i].max(initial=0.0)
        hint = beta * flops[i] / best if rest > 0 and flops[i] > 0 else np.inf
        out[i] = weights[i] * (alpha * past + (1 - alpha) * (min(g[i] - g[i] / t[i], hint) - g[i]))
    return out


@given(boards(valid=True), st.data())
def test_gradients_follow_the_formula(state, data):
    weights = data.draw(st.lists(st.floats(0.1, 100), min_size=len(state.flops), max_size=len(state.flops)))
    params = GradientParams(data.draw(st.floats(0, 1)), data.draw(st.floats(0.5, 8)), data.draw(st.integers(1, 4)))
    got = gradients(state, weighted(weights), params)
    want = formula(state, weights, params.alpha, params.beta, params.window)
    # a difference of sums: its error is that of the largest term
    scale = sum(w * s.cost for w, s in zip(weights, state.progress, strict=True))
    assert got.keys() == want.keys()
    for k in got:
        error = 1e-12 * scale / state.progress[k].cost * abs(want[k] / weights[k])
        assert got[k] == pytest.approx(want[k], rel=1e-9, abs=error) and got[k] <= 1e-30


OBJECTIVES = {
    "sum": sum,
    "first": lambda costs: 1e5 * costs[0],
    "slowest": max,
    "geometric mean": lambda costs: math.exp(sum(map(math.log, costs)) / len(costs)),
    "constant": lambda costs: 7,
    "wrong way": lambda costs: -sum(costs),
    "hill": lambda costs: -sum((c - 1e-3) ** 2 for c in costs),
    "steps": lambda costs: sum(c > 1e-3 for c in costs),
    "numpy": lambda costs: np.float32(np.sum(costs)),
}


@given(boards(), st.sampled_from(sorted(OBJECTIVES)))
def test_only_living_tasks_are_chosen(state, name):
    chosen = pick_by_gradient(state, OBJECTIVES[name], PARAMS)
    assert chosen in state.alive
    assert pick_by_gradient(state, OBJECTIVES[name], PARAMS) == chosen


@given(boards(valid=True), st.integers(-20, 20))
def test_the_unit_of_time_does_not_matter(state, exponent):
    """TVM differentiates with a step of 0.1 ms, whatever the latencies."""
    scaled = tuple(
        TaskProgress(s.trials, s.cost * 2.0**exponent, s.best_trial, tuple(c * 2.0**exponent for c in s.history))
        for s in state.progress
    )
    for objective in (sum, max, OBJECTIVES["geometric mean"]):
        other = SchedulerState(scaled, state.alive, state.flops, state.groups)
        a, b = gradients(state, objective, PARAMS), gradients(other, objective, PARAMS)
        assert [b[k] for k in a] == pytest.approx([g * 2.0**exponent for g in a.values()], rel=1e-6)


@given(
    st.lists(st.booleans(), min_size=2, max_size=7).filter(lambda works: not all(works)),
    st.integers(10, 60),
    st.sampled_from(sorted(OBJECTIVES)),
)
def test_a_task_without_a_program_starves_nobody_and_is_not_starved(works, budget, name):
    """It gets as many rounds as if tasks took turns."""
    made = [TaskProgress().after_round([1e-3 * (k + 1) if ok else math.inf]) for k, ok in enumerate(works)]
    alive = tuple(range(len(works)))
    flops, groups = (1e6,) * len(works), tuple(alive)
    for _ in range(budget):
        k = pick_by_gradient(SchedulerState(tuple(made), alive, flops, groups), OBJECTIVES[name], PARAMS)
        made[k] = made[k].after_round([made[k].cost])
    share = (budget + len(works)) / len(works)
    for progress in nonempty(p for p in made if not p.valid):
        assert share - 1 <= progress.rounds <= share + 1


def test_weights_and_objectives_direct_the_trials():
    made = tuple(TaskProgress().after_round([cost]) for cost in (1e-6, 4e-6, 2e-6))
    state = SchedulerState(made, (0, 1, 2), (1e6,) * 3, (0, 1, 2))
    assert pick_by_gradient(state, sum, PARAMS) == 1
    assert pick_by_gradient(state, weighted([9, 1, 1]), PARAMS) == 0
    assert pick_by_gradient(state, weighted([9, 0, 0]), PARAMS) == 0
    assert pick_by_gradient(state, lambda c: c[2] * 1e5, PARAMS) == 2
    assert pick_by_gradient(SchedulerState(made, (0, 2), state.flops, state.groups), sum, PARAMS) == 2
    more = (made[0], made[1].after_round([4e-6]), made[2].after_round([2e-6]))
    for objective in (OBJECTIVES["constant"], OBJECTIVES["wrong way"]):
        assert pick_by_gradient(SchedulerState(more, (0, 1, 2), state.flops, state.groups), objective, PARAMS) == 0


def test_objectives_that_give_no_number_are_refused():
    state = SchedulerState((TaskProgress().after_round([1e-3]),), (0,), (1.0,), (0,))
    for value in (math.nan, math.inf, None, "1", [1.0], 1j):
        with pytest.raises(ansor.TaskError, match="objective_func: it must give a finite number"):
            pick_by_gradient(state, lambda costs, value=value: value, PARAMS)


def test_parameters_are_checked():
    for bad in ({"alpha": -0.1}, {"alpha": 1.1}, {"alpha": math.nan}, {"beta": 0}, {"beta": math.inf}, {"window": 0}):
        with pytest.raises(ansor.TaskError, match="TaskScheduler: "):
            GradientParams(**bad)


def test_pieces_of_the_formula():
    assert backward([8.0, 6.0, 5.0, 2.0], 3) == -2.0 and backward([8.0, 6.0, 5.0], 3) == 0.0
    assert backward([math.inf, 6.0, 5.0, 2.0], 3) == 0.0 and backward([math.inf] * 5, 3) == 0.0
    assert chain(weighted([3, 5]), [1e-6, 2.0], 0) == pytest.approx(3, rel=1e-6)
    made = [TaskProgress().after_round([c]) for c in (1e-3, math.inf, 3e-3)]
    assert stand_ins(made) == [1e-3, 3e-3, 3e-3]


@given(st.integers(1, 8), st.data())
def test_turns_visit_everybody(count, data):
    alive = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    last, visited = data.draw(st.integers(-1, count - 1)), []
    for _ in alive:
        last = pick_in_turn(last, alive)
        visited.append(last)
    assert sorted(visited) == alive


# ---------------------------------------------------------------------------------------------------- groups


def matmul_of(n, m, k):
    return ansor.SearchTask(
        "matmul", (n, m, k), target="c", hardware_params=ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
    )


def tagged(n, tag):
    a = te.placeholder((n,), name="A")
    attrs = {"auto_scheduler_task_scheduler_tag": tag} if tag else {}
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B", attrs=attrs)
    return ansor.SearchTask(compute_dag=[a, b, te.compute((n,), lambda i: b[i] * 2.0, name="C")], target="c")


def test_similar_tasks_share_a_group():
    tasks = [matmul_of(64, 32, 16), matmul_of(32, 64, 16), matmul_of(67, 31, 16), matmul_of(512, 64, 64)]
    assert group_tasks(tasks) == (0, 0, 0, 3)
    tasks = [tagged(100, "x"), tagged(101, "x"), tagged(102, "y"), tagged(100_000, "x"), tagged(103, None)]
    assert group_tasks(tasks) == (0, 0, 2, 3, 4)
    assert derive_similarity_tag(tasks[0].compute_dag) == f"x_{int(math.log(201, 1.618))}"
    assert derive_similarity_tag(tasks[4].compute_dag) == ""


def test_a_task_that_lags_leaves_its_group():
    fast = TaskProgress().after_round([1e-3])
    slow = TaskProgress()
    for rounds in range(1, 12):
        slow = slow.after_round([3e-3])
        groups = leave_if_behind((0, 0, 2), 1, (fast, slow, fast), (1e6, 1e6, 1e6), 2.0)
        assert groups == ((0, -2, 2) if rounds > 5 + fast.rounds else (0, 0, 2))
    assert leave_if_behind((0, 0, 2), 1, (fast, slow, fast), (1e6, 1e6, 1e6), 4.0) == (0, 0, 2)
    assert leave_if_behind((0, 1, 2), 1, (fast, slow, fast), (1e6, 1e6, 1e6), 2.0) == (0, 1, 2)
    assert leave_if_behind((0, 0, 0), 1, (TaskProgress(), slow, TaskProgress()), (1e6,) * 3, 2.0) == (0, 0, 0)


def test_a_faster_relative_raises_hope():
    """Task 1 reaches a tenth of the speed of the task like it, so it promises more than the slower, lonely task 2."""
    made = []
    for costs in ([1e-3], [1e-2], [1.2e-2]):
        progress = TaskProgress()
        for _ in range(6):
            progress = progress.after_round(costs)
        made.append(progress)
    flops = (1e6,) * 3
    assert pick_by_gradient(SchedulerState(tuple(made), (0, 1, 2), flops, (0, 1, 2)), sum, PARAMS) == 2
    grouped = SchedulerState(tuple(made), (0, 1, 2), flops, (0, 0, 2))
    assert pick_by_gradient(grouped, sum, PARAMS) == 1
    # the best speed of a group is that of all its tasks
    assert [forward(grouped, k, 0.5) for k in (0, 1)] == pytest.approx([-0.5e-3, 0.5e-3 - 1e-2])
