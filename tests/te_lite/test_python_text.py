"""The printed Python schedule, executed, makes the same program up to the names of loops."""

from __future__ import annotations

import re

import numpy as np
import pytest

import te_lite as te
from ansor.sketch import generate_sketches
from te_lite import ComputeDAG, LoweredFunc, State
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.loop_steps import (
    Annotate,
    FollowFusedSplit,
    FollowSplit,
    FreePragma,
    Fuse,
    Pragma,
    Reorder,
    Split,
)
from te_lite.schedule.place_steps import ComputeAt, ComputeRoot
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite, RFactor
from te_lite.schedule.step import Step
from te_lite.schedule.storage_steps import StorageAlign
from tests.ansor import sketch_cases
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer
from tests.workloads import WORKLOADS, argmax, conv2d_nchw, matmul, matmul_relu, softmax

DRAWS = 4


def executed(state: State) -> State:
    s = te.Schedule(state.dag)
    exec(compile(python_schedule(state), "schedule", "exec"), dict(python_names(state.dag), s=s, te=te))
    return s.state


def anonymous(func: LoweredFunc) -> str:
    """The text of a program with its names numbered in the order in which they appear."""
    numbers: dict[str, str] = {}
    return re.sub(r"[A-Za-z_][\w.]*", lambda m: numbers.setdefault(m.group(0), f"v{len(numbers)}"), str(func))


def assert_same_program(state: State) -> None:
    again = executed(state)
    assert [s.op.name for s in again.stages] == [s.op.name for s in state.stages]
    assert anonymous(te.lower(again)) == anonymous(te.lower(state)), python_schedule(state)


@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.one_in(5)
def test_random_schedules(name: str, gpu: bool) -> None:
    dag = ComputeDAG(WORKLOADS[name]())
    for i in range(DRAWS):
        assert_same_program(Fuzzer(dag, np.random.default_rng([11, i]), gpu).draw()[0])


SAMPLED = {
    "conv_bn_relu": lambda: sketch_cases.conv2d_bn_relu(1, 6, 6, 4, 8, 3, 2, 1),
    "double_matmul": lambda: sketch_cases.double_matmul(8),
    "softmax": lambda: softmax(3, 70),
    "min_rows": lambda: sketch_cases.min_rows(4, 64),
    "winograd": WORKLOADS["winograd"],
}


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", sorted(SAMPLED))
@pytest.mark.one_in(3)
def test_sampled_sketches(name: str, target: str) -> None:
    hardware = sketch_cases.HARDWARE[target]
    sketches = generate_sketches(ComputeDAG(SAMPLED[name]()), target, hardware)
    rng = np.random.default_rng(5)
    for sketch in nonempty(sketches[:6]):
        state = drawn_program(sketch, target, hardware, rng)
        assert state is not None
        assert_same_program(state)


X, K = te.placeholder((37,), name="x"), te.reduce_axis((0, 37), "k")
TOTAL = te.compute((), lambda: te.sum(X[K], axis=K), name="total")
CASES: dict[str, tuple[ComputeDAG, list[Step]]] = {
    "splits that do not divide": (
        ComputeDAG(matmul(7, 6, 5)), [Split(2, 0, 0, (3, 2)), Split(2, 3, 0, (4, 4), False), Split(2, 4, 0, (3,))],
    ),
    "rfactor after fuse": (
        ComputeDAG(conv2d_nchw(1, 5, 3, 4, 3, 1, 1)), [Fuse(3, (4, 5, 6)), Split(3, 4, 0, (4,)), RFactor(3, 5, 0)],
    ),
    "a unit loop": (
        ComputeDAG([X, TOTAL]),
        [Fuse(1, ()), Annotate(1, 0, "blockIdx.x"), Split(1, 1, 0, (4,)), Annotate(1, 2, "threadIdx.x")],
    ),
    "a split by nothing": (ComputeDAG(matmul(7, 6, 5)), [Split(2, 0, 0, ()), FollowSplit(2, 1, 0, 1)]),
    "rfactor of two outputs": (ComputeDAG(argmax(4, 9)), [Split(1, 1, 9, (2,)), RFactor(1, 2, 1)]),
    "cache of two outputs": (ComputeDAG(argmax(4, 9)), [CacheWrite(1, "local"), ComputeAt(1, 2, 0)]),
    "follow splits": (
        ComputeDAG(matmul_relu(8, 6, 4)),
        [CacheWrite(2, "local"), Split(3, 0, 8, (2, 2)), Split(3, 3, 6, (3, 1)), FollowSplit(2, 0, 1, 2),
         FollowSplit(2, 3, 2, 3), FollowSplit(6, 0, 1, 1), FollowFusedSplit(6, 2, (2, 1), 0, False),
         FollowFusedSplit(6, 0, (1, 2), 0, True)],
    ),
    "every other step": (
        ComputeDAG(matmul_relu(8, 6, 4)),
        [CacheRead(0, "local", (2,)), StorageAlign(1, 0, 8, 1), Reorder(3, (2, 0, 1)), ComputeAt(1, 3, 0),
         ComputeRoot(3), Annotate(3, 1, "parallel"), Pragma(3, 0, "auto_unroll_max_step$16"),
         FreePragma(3, 0, 'odd "name"$1'), FreePragma(3, 1, "bare")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_steps_of_every_kind(name: str) -> None:
    dag, steps = CASES[name]
    assert_same_program(replay(dag, steps))


def test_pragma_on_a_stage_without_loops() -> None:
    x = te.placeholder((), name="x")
    dag = ComputeDAG([x, te.compute((), lambda: x() * 2.0, name="y")])
    state = replay(dag, [Pragma(1, 0, "auto_unroll_max_step$8")])
    assert python_schedule(state) == "\n" and executed(state).stages[1].op.name == "y"


def test_names_are_unique_identifiers() -> None:
    """Tensors may share names, or be called like the names of the program around the schedule."""
    inputs = [te.placeholder((4,), name=name) for name in ("s", "te", "tuple", "class", "my tensor", "1st", "x", "x")]
    stage = inputs[0]
    for tensor in inputs[1:]:
        before = stage
        stage = te.compute((4,), lambda i, a=before, b=tensor: a[i] + b[i], name="compute")
    dag = ComputeDAG([*inputs, stage])
    names = python_names(dag)
    assert len(names) == len(dag.ops) and not {"s", "te", "tuple"} & set(names)
    state = replay(dag, [Split(k, 0, 4, (2,)) for k, op in enumerate(dag.ops) if isinstance(op, te.ComputeOp)])
    assert_same_program(state)
