"""Random loops without a bound, in and around other loops and branches; plans that are unsound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import relay_lite as relay
from ansor.core.device.network_plan import ExecutionPlan, Step, Storage, TensorPlace
from ansor.core.device.read_plan import plan_from_json
from relay_lite.ir.control import UNBOUNDED
from relay_lite.ir.errors import GraphError
from relay_lite.ir.loops import branch, loop
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, Tuple, Var, const
from relay_lite.ir.reference import run
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import post_order
from tests.nonempty import nonempty
from tests.relay_lite.test_build_plan import Rng

TENSOR, TRIP = TensorType((2, 6), "float32"), TensorType((), "int64")
LIMITS = (0, 1, 2, 3, 4, 5)


def random_step(rng: Rng, values: Sequence[Expr], limit: Expr, depth: int) -> list[Expr]:
    """As many new values, some of them old ones, or made by another loop or a branch."""
    made = list(values)
    for _ in range(int(rng.integers(1, 4))):
        a, b = (made[int(k)] for k in rng.integers(0, len(made), 2))
        weight = const(rng.standard_normal((6, 6)) / 3, "float32")
        ways = [
            lambda a=a, weight=weight: call("tanh", call("nn.dense", a, weight)),
            lambda a=a, b=b: call("maximum", a, b),
            lambda a=a, b=b: call("subtract", a, call("multiply", b, const(0.5, "float32"))),
        ]
        made.append(ways[int(rng.integers(len(ways)))]())
    if depth and rng.random() < 0.8:
        kind = int(rng.integers(3))
        inside = made[-len(values) :]
        found = [unbounded, steps, ways_of][kind](rng, inside, limit, depth - 1)
        made += found
    order = rng.permutation(len(values))
    return [made[len(made) - 1 - int(k)] for k in order]


def unbounded(rng: Rng, values: Sequence[Expr], limit: Expr, depth: int) -> list[Expr]:
    """So many trips as the limit says, less some."""
    less = const(int(rng.integers(0, 2)), "int64")

    def step(_: Sequence[Expr], held: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        on, trip, *old = held
        later = call("add", trip, const(1, "int64"))
        new = random_step(rng, old, limit, depth)
        outside = {*held, *post_order(Tuple((limit, less)))}
        return branch(on, [call("less", later, limit), later, *new], held, outside), []

    begin = [call("less", less, limit), less]
    last, _ = loop(step, [], [*begin, *values], UNBOUNDED, unbounded=True)
    return last[2:]


def steps(rng: Rng, values: Sequence[Expr], limit: Expr, depth: int) -> list[Expr]:
    """A loop of a few steps, which gives a slice in each."""

    def step(slices: Sequence[Expr], held: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        new = random_step(rng, held, limit, depth)
        row = call("maximum", call("reshape", slices[0], newshape=(1, 6)), new[0])
        return [row, *new[1:]], [row]

    last, (every,) = loop(step, [values[0]], values, 2)
    return [*last[1:], call("strided_slice", every, begin=(1, 0), end=(3, 6))]


def ways_of(rng: Rng, values: Sequence[Expr], limit: Expr, depth: int) -> list[Expr]:
    outside = set(post_order(Tuple((*values, limit))))
    condition = call("less", const(2, "int64"), limit)
    return branch(condition, *[random_step(rng, values, limit, depth) for _ in range(2)], {*outside, condition})


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(40))
def test_random_unbounded_loops(seed: int) -> None:
    """The same network with every limit: memory that a run before left may be read by none."""
    rng = np.random.default_rng([53, seed])
    limit, inputs = Var("limit", TRIP), [Var(n, TENSOR) for n in "abc"[: 1 + seed % 3]]
    made = unbounded(rng, inputs, limit, 2)
    function = Function((limit, *inputs), Tuple((*made, call("negative", inputs[0]))))
    library = relay.build(function, "c")
    assert any(not step.kernel for step in library.plan.steps)
    assert plan_from_json(json.loads(json.dumps(library.plan.to_json()))) == library.plan
    network = relay.graph_executor.GraphModule(library["default"]())
    for trips in nonempty(rng.permutation(LIMITS)):
        given = {v.name: rng.standard_normal(TENSOR.shape).astype("float32") for v in inputs}
        given["limit"] = np.array(trips)
        network.run(**given)
        for k, want in nonempty(enumerate(run(function, given))):
            np.testing.assert_allclose(network.get_output(k).numpy(), want, rtol=1e-4, atol=1e-5, err_msg=str(trips))


def plan_of(*steps: Step) -> ExecutionPlan:
    """Of an input, an output, and three tensors of the arena, of which the last two lie in one place."""
    storages = (
        Storage("input", 4), Storage("output", 4), Storage("arena", 4, 0), Storage("arena", 4, 64),
        Storage("arena", 4, 64), Storage("arena", 1, 128),
    )  # fmt: skip
    ends = TensorPlace("x", (1,), "float32", 0), TensorPlace("output0", (1,), "float32", 1)
    return ExecutionPlan(storages, steps, ends[:1], (), ends[1:], 192)


def test_what_was_made_before_a_turn_is_kept_until_its_last_step() -> None:
    """Storage 3 is made before the turn and read at its beginning, then overwritten at its end by storage 4."""
    turn = [
        Step("a", (0, 3), (3,)), Step("b", (3, 2, 5), (2, 5)), Step("c", (2, 4), (4,)), Step("d", (4, 1, 5), (1, 5))
    ]  # fmt: skip
    assert plan_from_json(plan_of(*turn).to_json()) == plan_of(*turn)
    for back in (1, 2):
        plan = plan_of(*turn, Step("", (), (), (5,), back=back))
        assert plan_from_json(plan.to_json()) == plan
    with pytest.raises(GraphError, match="step 2 overwrites what is still needed"):
        plan_from_json(plan_of(*turn, Step("", (), (), (5,), back=3)).to_json())


def test_what_a_turn_kept_is_free_behind_it() -> None:
    """Storage 3, made before the turn, is used by no step after it; storage 4 then lies in its place."""
    turn = [Step("a", (0, 3, 5), (3, 5)), Step("b", (3, 2, 5), (2, 5)), Step("", (), (), (5,), back=1)]
    plan = plan_of(*turn, Step("c", (0, 4), (4,)), Step("d", (4, 1), (1,)))
    assert plan_from_json(plan.to_json()) == plan


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("seed", range(6))
def test_loops_one_after_the_other(seed: int) -> None:
    """The memory of the first is used again by the second; the plan is sound, and so is what is read from JSON."""
    rng, limit, x = np.random.default_rng([54, seed]), Var("limit", TRIP), Var("x", TENSOR)
    values: list[Expr] = [x, x]
    for _ in range(3):
        values = unbounded(rng, [call("tanh", v) for v in values], limit, seed % 2)
    function = Function((limit, x), Tuple(tuple(values)))
    library = relay.build(function, "c")
    assert plan_from_json(json.loads(json.dumps(library.plan.to_json()))) == library.plan
    network = relay.graph_executor.GraphModule(library["default"]())
    for trips in nonempty(LIMITS):
        given = {"x": rng.standard_normal(TENSOR.shape).astype("float32"), "limit": np.array(trips)}
        network.run(**given)
        for k, want in nonempty(enumerate(run(function, given))):
            np.testing.assert_allclose(network.get_output(k).numpy(), want, rtol=1e-4, atol=1e-5, err_msg=str(trips))


TURNS = [
    ([Step("b", (0, 1), (1,))], Step("", (), (), back=1)),  # without a bool
    ([Step("b", (0, 1), (1,))], Step("", (), (), (5,), back=1)),  # which nothing writes
    ([Step("b", (0, 5), (5,))], Step("", (), (), (), (5,), back=1)),  # which goes on where it is false
    ([Step("b", (0, 5), (5,), (6,))], Step("", (), (), (5,), back=1)),  # written where another one is true
    ([Step("b", (0, 5), (5,), (), (6,))], Step("", (), (), (5, 6), back=1)),  # or false
    ([Step("b", (0, 5), (5,)), Step("c", (0, 1), (1,))], Step("", (), (), (5,), back=1)),  # before the turn
]


@pytest.mark.parametrize("turn, back", TURNS)
def test_turns_that_may_go_on_without_a_kernel_are_refused(turn: list[Step], back: Step) -> None:
    begin = Step("a", (0, 5, 6), (5, 6))
    plan = replace(plan_of(), storages=(*plan_of().storages, Storage("arena", 1, 160)), steps=(begin, *turn, back))
    with pytest.raises(GraphError, match="goes back for ever, or no step always writes how long"):
        plan_from_json(plan.to_json())
    always = Step("d", (0, 5), (5,))
    ends = replace(plan, steps=(begin, *turn, always, replace(back, where=(5, *back.where), back=2)))
    assert plan_from_json(ends.to_json()) == ends


NOWHERE = [
    Step("", (), ()), Step("", (), (), back=2), Step("k", (0, 1), (1,), back=1), Step("", (2,), (2,), (5,), back=1)
]  # fmt: skip


@pytest.mark.parametrize("step", NOWHERE)
def test_steps_that_go_nowhere_are_refused(step: Step) -> None:
    with pytest.raises(GraphError, match="a step has a kernel, or goes back to one before it"):
        plan_of(Step("k", (0, 1), (1,)), step)
    data = plan_of(Step("k", (0, 1), (1,))).to_json()
    data["steps"] = (*data["steps"], {**data["steps"][0], "kernel": "", "storages": [], "written": [], "back": -1})
    with pytest.raises(GraphError, match="an integer of at least 0"):
        plan_from_json(data)


def test_a_step_after_which_nothing_is_needed() -> None:
    plan = plan_of(Step("a", (0, 5), (5,)), Step("b", (5, 1), (1, 5)), Step("", (), (), (5,), back=1))
    assert plan_from_json(plan.to_json()) == plan
    with pytest.raises(GraphError, match="there are 6 storages"):
        replace(plan, steps=(plan.steps[0], Step("", (), (), (1,), back=1)))
