"""Branches: what is none, texts, and the plans of random ones, in and around loops, on poisoned memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relay_lite as relay
from ansor.core.device.read_plan import plan_from_json
from relay_lite.ir.control import Branch, Loop
from relay_lite.ir.errors import GraphError
from relay_lite.ir.loops import branch
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, Tuple, TupleGetItem, Var, const
from relay_lite.ir.reference import run
from relay_lite.ir.types import TensorType
from relay_lite.runtime.assemble import make_plan
from relay_lite.transform.fold_constant import FoldConstant
from relay_lite.transform.select_branches import SelectBranches
from tests.nonempty import nonempty
from tests.relay_lite.test_build_plan import MIX, Rng, carry_out, evaluate, group, kernel_of

SHAPE = (2, 6)
WHOLE, FLAG = TensorType(SHAPE, "int64"), TensorType((), "bool")


def number(rng: Rng, numbers: list[int]) -> int:
    """One that no kernel has."""
    numbers.append(len(numbers))
    return numbers[-1]


def random_way(rng: Rng, numbers: list[int], count: int, depth: int) -> Function:
    """Some groups on tensors, and another branch or loop; the first parameters are two flags."""
    flags, given = [Var(f"c{k}", FLAG) for k in range(2)], [Var(f"w{k}", WHOLE) for k in range(count)]
    values: list[Expr] = list(given)
    for _ in range(int(rng.integers(1, 4))):
        args = [values[int(rng.integers(len(values)))] for _ in range(int(rng.integers(1, 4)))]
        values.append(group(MIX, args, [SHAPE], number(rng, numbers)))
    if depth and rng.random() < 0.7:
        made = random_branch(rng, numbers, flags, values, depth - 1)
        values += [TupleGetItem(made, k) for k in range(2)]
    elif depth:
        values += random_steps(rng, numbers, flags, values, depth - 1)
    last = [group(MIX, [values[-1 - k], values[0]], [SHAPE], number(rng, numbers)) for k in range(2)]
    return Function((*flags, *given), Tuple(tuple(last)))


def random_branch(rng: Rng, numbers: list[int], flags: Sequence[Expr], values: Sequence[Expr], depth: int) -> Branch:
    chosen = [values[int(rng.integers(len(values)))] for _ in range(2)]
    ways = [random_way(rng, numbers, 2, depth) for _ in range(2)]
    return Branch(ways[0], ways[1], (flags[int(rng.integers(2))], *flags, *chosen))


def random_steps(
    rng: Rng, numbers: list[int], flags: Sequence[Expr], values: Sequence[Expr], depth: int
) -> list[Expr]:  # fmt: skip
    """A loop with a branch in every step: its state, and a slice of what its steps give."""
    steps = int(rng.integers(1, 5))
    own, slice_, state = [Var(f"f{k}", FLAG) for k in range(2)], Var("x", WHOLE), Var("s", WHOLE)
    made = random_branch(rng, numbers, own, [slice_, state], depth)
    after = [group(MIX, [TupleGetItem(made, k), state], [SHAPE], number(rng, numbers)) for k in range(2)]
    long = group(MIX, [values[-1]], [(steps * SHAPE[0], SHAPE[1])], number(rng, numbers))
    function = Function((slice_, state, *own), Tuple(tuple(after)))
    loop = Loop(function, (long, values[0], *flags), steps, 1, 1, bool(rng.random() < 0.5))
    return [TupleGetItem(loop, 0), group(MIX, [TupleGetItem(loop, 1)], [SHAPE], number(rng, numbers))]


@pytest.mark.parametrize("seed", range(60))
def test_random_branches(seed: int) -> None:
    """Both of two flags, either way; the other way of a branch leaves no trace."""
    rng, numbers = np.random.default_rng([21, seed]), list[int]()
    flags, inputs = [Var(f"c{k}", FLAG) for k in range(2)], [Var(n, WHOLE) for n in "ab"]
    made = random_branch(rng, numbers, flags, inputs, 2)
    read = [group(MIX, [TupleGetItem(made, 0), inputs[0]], [SHAPE], number(rng, numbers)), TupleGetItem(made, 1)]
    function = Function((*flags, *inputs), Tuple(tuple(read)))
    plan, values = make_plan(function, kernel_of, 64)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    for state in range(4):
        given = {v.name: rng.integers(0, 50, SHAPE) for v in inputs} | values
        given |= {v.name: np.array(bool(state >> k & 1)) for k, v in enumerate(flags)}
        for got, want in nonempty(zip(carry_out(plan, function, given), evaluate(function, given), strict=True)):
            np.testing.assert_array_equal(got, want)


def either() -> Function:
    c, x = Var("c", FLAG), Var("x", TensorType((3, 4), "float32"))
    weight = const(np.arange(16.0).reshape(4, 4) / 16, "float32")
    product = call("tanh", call("nn.dense", x, weight))
    (out,) = branch(c, [product], [x], {c, x})
    return Function((c, x), out)


def test_a_plan_with_flags_that_are_none_is_refused() -> None:
    plan = relay.build(either(), "c").plan
    wide = next(k for k, s in enumerate(plan.storages) if s.nbytes > 1)
    step = next(s for s in plan.steps if s.where)
    for bad in (replace(step, where=(wide,)), replace(step, where=(len(plan.storages),))):
        with pytest.raises(GraphError, match="plan"):
            replace(plan, steps=(bad,))
    data = plan.to_json()
    data["steps"][0]["where"] = [-1]
    with pytest.raises(GraphError, match="an integer of at least 0"):
        plan_from_json(data)


def test_one_library_for_both_ways(tmp_path: Path) -> None:
    """The kernel of the second way comes last, and must not run after the first one; so it is when it was stored."""
    relay.build(either(), "c").export(tmp_path / "network")
    module = relay.graph_executor.GraphModule(relay.load(tmp_path / "network")["default"]())
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    for flag in (True, False):
        module.run(c=np.array(flag), x=x)
        want = run(either(), [np.array(flag), x])
        np.testing.assert_allclose(module.get_output(0).numpy(), want, atol=1e-6)
        assert flag != bool(np.array_equal(want, x)) and len(module.profile(1)) == 2


def test_a_condition_that_is_known_is_no_branch() -> None:
    function = either()
    bound = relay.build(function, "c", params={"c": np.array(True)})
    assert not any(s.where or s.unless for s in bound.plan.steps)
    assert "branch %c of @f" in relay.as_text(function)


def test_what_is_no_branch() -> None:
    c, x, y = Var("c", FLAG), Var("x", WHOLE), Var("y", TensorType((3,), "int64"))
    one, other = (Function((v,), Tuple((v,))) for v in (x, y))
    with pytest.raises(GraphError, match=r"branch: the first argument must be a bool of shape \(\)"):
        Branch(one, one, (x, x))
    with pytest.raises(GraphError, match="branch: arguments behind the first are"):
        Branch(one, other, (c, x))
    with pytest.raises(GraphError, match="branch: both functions must give a tuple of the same types"):
        Branch(one, Function((x,), Tuple((x, x))), (c, x))
    with pytest.raises(GraphError, match="branch: both functions must give a tuple"):
        Branch(Function((x,), x), Function((x,), x), (c, x))


def test_short_ways_are_selected_and_others_are_not() -> None:
    c, x = Var("c", FLAG), Var("x", TensorType((3, 4), "int64"))
    for name, short in (("add", True), ("floor_mod", False)):
        (out,) = branch(c, [call(name, x, x)], [x], {c, x})
        made = SelectBranches(everywhere=False)(FoldConstant()(Function((c, x), out)))
        assert isinstance(made.body, TupleGetItem) != short
