"""Reads that go backward, divide, and mix both: regions cover what is read, and programs compute what was written.

The oracle is plain NumPy (`tests/backward_reads.py`).  `ANSOR_FUZZ` scales the number of random chains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite.bounds.bounds import infer_bounds
from te_lite.meaning.interp import run
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.step import Step, to_json
from te_lite.verify.verify import verify
from tests.backward_reads import LONGEST, Case, random_case
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer
from tests.te_lite.test_lanes import LANES, Untrue, assert_equal

PER_KIND = int(os.environ.get("ANSOR_FUZZ", "4"))
SEED = int(os.environ.get("ANSOR_FUZZ_SEED", "20261122"))


def compiled(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    codegen_c.build(func)(*args)


# -------------------------------------------------------------------------------------------------- by hand

INDICES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "backward": (lambda i: 8 - i, 1),
    "backward by two": (lambda i: 16 - 2 * i, 1),
    "a quotient backward": (lambda i: 8 - i // 2, 1),
    "the quotient of a difference": (lambda i: (17 - i) // 3, 1),
    "a remainder backward": (lambda i: 4 - i % 5, 1),
    "the remainder of a difference": (lambda i: (3 - i) % 4, 1),
    "there and back": (lambda i: i // 3 - i % 3 + 2, 1),
    "clamped": (lambda i: te.minimum(8 - i, 5), 6),
    "a product": (lambda i: i * i, 65),
}
"""How `y[i]` reads `s`, and how many elements of `t` are computed for one `i`."""


def chain_of_three(index: Callable[[Any], Any], size: int, inside: bool) -> te.Schedule:
    """`s` at the loop of `y`, which reads it at `index`; `t`, which `s` reads, there too or at root."""
    x = te.placeholder((size,), name="x")
    t = te.compute((size,), lambda i: x[i] + 1.0, name="t")
    s = te.compute((size,), lambda i: t[i] * 2.0, name="s")
    y = te.compute((9,), lambda i: s[index(i)], name="y")
    schedule = te.create_schedule(y.op)
    schedule[s].compute_at(schedule[y], y.op.axis[0])
    if inside:
        schedule[t].compute_at(schedule[y], y.op.axis[0])
    return schedule


@pytest.mark.parametrize("inside", [False, True], ids=["at root", "inside"])
@pytest.mark.parametrize("name", INDICES)
def test_a_stage_that_feeds_a_stage_inside(name: str, inside: bool) -> None:
    index, elements = INDICES[name]
    places = np.array([int(index(te.const(i)).value) for i in range(9)])
    schedule = chain_of_three(index, int(places.max()) + 1, inside)
    func = te.lower(schedule, schedule.state.dag.tensors)
    data = np.arange(float(func.args[0].shape[0]), dtype="float32")
    for execute in (run, compiled) if name.startswith("backward") else (run,):
        out = np.full(9, np.nan, "float32")
        execute(func, [data, out])
        np.testing.assert_array_equal(out, (data[places] + 1) * 2)
    bounds = infer_bounds(schedule.state)
    (t,) = [k for k, op in enumerate(schedule.state.ops) if op.name == "t"]
    low, extent = bounds.regions[t][0].min, bounds.regions[t][0].extent
    if inside:
        assert extent == elements
    else:
        assert low.range()[0] <= places.min() and low.const + extent > places.max()


# ----------------------------------------------------------------------------------------------- at random


def drawn(number: int, gpu: bool) -> tuple[Case, te.State, te.LoweredFunc, str]:
    """A random chain, a random schedule of it, its program, and how to find it again."""
    case = random_case([SEED, number])
    state, func = Fuzzer(case.dag, np.random.default_rng([SEED, number, gpu]), gpu).draw()
    return case, state, func, f"seed [{SEED}, {number}], {case.chain}, steps {[to_json(s) for s in state.steps]}"


@pytest.mark.unverified
@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
def test_random_chains(gpu: bool) -> None:
    for number in nonempty(range(2 * PER_KIND)):
        case, _, func, where = drawn(number, gpu)
        assert case.mismatch(te.lower(case.dag.init_state), run) is None, where
        verify(func)
        assert case.mismatch(func, run) is None, where
        if not gpu and number % 6 == 0:
            assert case.mismatch(func, compiled) is None, where


def in_lanes(state: te.State, rng: np.random.Generator) -> tuple[list[Step], list[list[Step]]]:
    """The steps of a state with other lengths in each lane, and those of each lane; `rfactor` needs what it had."""
    fixed = max([n for n, step in enumerate(state.steps) if isinstance(step, RFactor)], default=-1)
    many: list[Step] = []
    single: list[list[Step]] = [[] for _ in range(LANES)]
    for n, step in enumerate(state.steps):
        if n <= fixed or not isinstance(step, Split):
            many.append(step)
            for steps in single:
                steps.append(step)
            continue
        lengths = rng.integers(1, LONGEST, size=(LANES, len(step.lengths)))
        many.append(replace(step, lengths=tuple(lengths.T.copy())))
        for lane, steps in enumerate(single):
            steps.append(replace(step, lengths=tuple(lengths[lane].tolist())))
    return many, single


@pytest.mark.unverified
@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
def test_lanes_are_their_programs(gpu: bool) -> None:
    for number in nonempty(range(PER_KIND)):
        case, state, _, _ = drawn(number, gpu)
        rng = np.random.default_rng([SEED, number])
        many, single = in_lanes(state, rng)
        lanes = infer_bounds(replay(case.dag, many))
        for lane in rng.integers(0, LANES, size=4).tolist():
            assert_equal(lanes, infer_bounds(replay(case.dag, single[lane])), lane)


def untrue(step: Step) -> Step:
    """The first lane of a step, which refuses to be asked for its truth."""
    if not isinstance(step, Split) or not all(isinstance(length, np.ndarray) for length in step.lengths):
        return step
    return replace(step, lengths=tuple([np.asarray(length)[:1].view(Untrue) for length in step.lengths]))


@pytest.mark.unverified
def test_no_lane_is_asked_for_its_truth() -> None:
    for number in range(PER_KIND // 2):
        case, state, _, _ = drawn(number, gpu=False)
        many, _ = in_lanes(state, np.random.default_rng([SEED, number]))
        infer_bounds(replay(case.dag, [untrue(step) for step in many]))


@pytest.mark.parametrize("threads", [4, 8])
def test_threads_that_a_region_does_not_know(threads: int) -> None:
    """`t` is local: its place follows the threads of the copy, which are fewer than those that read it themselves."""
    x = te.placeholder((8,), name="x")
    t = te.compute((8,), lambda i: x[7 - i] + 1.0, name="t")
    c = te.compute((threads,), lambda i: t[i] * 2.0, name="c")
    y = te.compute((3, 8), lambda b, i: c[i % threads] + t[i], name="y")
    s = te.create_schedule(y.op)
    block, thread = y.op.axis
    s[y].bind(block, te.thread_axis("blockIdx.x"))
    s[y].bind(thread, te.thread_axis("threadIdx.x"))
    s[c].set_scope("shared")
    s[t].set_scope("local")
    s[c].compute_at(s[y], thread)
    s[t].compute_at(s[y], thread)
    s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    if threads < 8:
        with pytest.raises(te.LowerError, match="every reader must run in the threads that its region depends on"):
            te.lower(s, [x, y])
        return
    data, out = np.arange(8, dtype="float32"), np.full((3, 8), np.nan, "float32")
    run(te.lower(s, [x, y]), [data, out])
    np.testing.assert_array_equal(out, np.tile(3 * (8 - np.arange(8)), (3, 1)))
