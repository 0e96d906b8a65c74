"""Reductions across threads in which a thread holds several outputs: spatial loops inside the reduction."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from te_lite import Tensor, topi
from te_lite.errors import LowerError
from te_lite.meaning.interp import run
from te_lite.schedule.loop_steps import Annotate, Reorder, Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from tests.oracle import Oracle

CASES = 24


def sums(rng: np.random.Generator) -> list[Tensor]:
    """Sums, maxima or positions of maxima of an array of odd sizes."""
    a = te.placeholder((int(rng.integers(1, 12)), int(rng.integers(1, 6)), int(rng.integers(2, 70))), name="A")
    fold = (topi.sum, topi.max, topi.argmax)[rng.integers(3)]
    return [a, fold(a, axis=2)]


def spread(state: State, k: int, rng: np.random.Generator) -> State:
    """Stage `k` with the loops [block, outer, thread, inner, item, j]: the last two, or some, inside the reduction."""
    item, threads, inner = int(rng.integers(1, 5)), int(rng.choice([3, 8, 32, 64])), int(rng.integers(1, 5))
    state = apply(state, Split(k, 0, 0, (item,)))
    state = apply(state, Split(k, 3, 0, (threads, inner)))
    block, held, j, outer, thread, last = range(6)
    late = [[held, j], [j, held], [j]][rng.integers(3)]
    early = [n for n in (block, held, j) if n not in late]
    middle = [outer, thread, *late, last] if rng.random() < 0.5 else [outer, thread, last, *late]
    order = [*early, *middle]
    state = apply(state, Reorder(k, tuple(order)))
    for place, tag in ((block, "blockIdx.x"), (thread, "threadIdx.x")):
        state = apply(state, Annotate(k, order.index(place), tag))
    return state


@pytest.mark.parametrize("number", range(CASES))
def test_threads_hold_several_outputs(number: int) -> None:
    rng = np.random.default_rng([16, number])
    dag = te.ComputeDAG(sums(rng))
    oracle = Oracle(dag, rng)
    stage = next(k for k, s in enumerate(dag.init_state.stages) if s.op.reduce_axis)
    func = te.lower(spread(dag.init_state, stage, rng))
    assert oracle.mismatch(func, run) is None


def test_virtual_threads_stay_outside() -> None:
    a = te.placeholder((4, 32), name="A")
    state = te.ComputeDAG([a, topi.sum(a, axis=1)]).init_state
    for step in (Reorder(1, (1, 0)), Annotate(1, 0, "threadIdx.x"), Annotate(1, 1, "vthread")):
        state = apply(state, step)
    with pytest.raises(LowerError, match="virtual threads inside a reduction across threads"):
        te.lower(state)
