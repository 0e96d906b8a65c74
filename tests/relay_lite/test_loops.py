"""Loops: what they mean, the plans of random ones on poisoned memory, and recurrent layers against sums by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from ansor.core.device.network_plan import ExecutionPlan, Step, Storage, TensorPlace
from ansor.core.device.read_plan import plan_from_json
from codegen_cuda.driver.compile import available_compilers
from codegen_cuda.networks.streams import dependencies, queues
from relay_lite import reference
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.control import Loop
from relay_lite.ir.errors import GraphError
from relay_lite.ir.loops import Exprs, loop, loop_of_one
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, FunctionCall, Tuple, TupleGetItem, Var, const
from relay_lite.ir.types import TensorType, TupleType
from relay_lite.ir.visit import function_calls, is_op, post_order
from relay_lite.runtime.assemble import make_plan
from relay_lite.transform.defuse_ops import DefuseOps
from tests.nonempty import nonempty
from tests.relay_lite.test_build_cuda import TARGET, emulate
from tests.relay_lite.test_build_plan import MIX, Array, Rng, any_order, carry_out, evaluate, group, kernel_of

SHAPE = (2, 6)


def random_loop(rng: Rng, first: int, steps: int, read: list[Expr]) -> Loop:
    """Some groups a step, on a slice, two states and two tensors that stay; states that are given, and some not."""
    whole = TensorType(SHAPE, "int64")
    slices, states, stay = ([Var(f"{n}{k}", whole) for k in range(2)] for n in "xsw")
    values: list[Expr] = [*slices, *states, *stay]
    made = []
    for k in range(first, first + 4):
        args = [values[int(rng.integers(len(values)))] for _ in range(int(rng.integers(1, 4)))]
        pair = group(MIX, [*args, states[k % 2]], [SHAPE, SHAPE], k)
        made += [TupleGetItem(pair, 0), TupleGetItem(pair, 1)]
        values += made[-2:]
    chosen = [made[k] for k in rng.permutation(len(made))[:4]]
    given = [chosen[0], chosen[2]] if rng.random() < 0.5 else [chosen[2], chosen[3]]
    function = Function((*slices, *states, *stay), Tuple((*chosen[:2], *given)))
    long = [group(MIX, read, [(steps * SHAPE[0], SHAPE[1])], first + 4 + k) for k in range(2)]
    others = [group(MIX, read, [SHAPE], first + 6 + k) for k in range(4)]
    return Loop(function, (*long, *others), steps, 2, 2, bool(rng.random() < 0.5))


def random_function(rng: Rng) -> Function:
    """Two loops, the second of which reads what the first gives, between groups."""
    inputs = tuple([Var(n, TensorType(SHAPE, "int64")) for n in "ab"])
    read: list[Expr] = list(inputs)
    for first in (0, 20):
        made = random_loop(rng, first, int(rng.integers(1, 6)), read)
        read = [*read, *[group(MIX, [TupleGetItem(made, k)], [SHAPE], first + 10 + k) for k in range(4)]]
    return Function(inputs, Tuple((read[-1], TupleGetItem(made, 2), group(MIX, read, [(3, 3)], 40))))


@pytest.mark.parametrize("seed", range(40))
def test_random_loops(seed: int) -> None:
    """In order, and in any that keeps the dependencies."""
    rng = np.random.default_rng([11, seed])
    function = random_function(rng)
    plan, values = make_plan(function, kernel_of, 64)
    given = {**{v.name: rng.integers(0, 50, v.shape) for v in function.params}, **values}
    want = evaluate(function, given)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    for order in (None, any_order(rng, dependencies(plan))):
        for got, value in zip(carry_out(plan, function, given, order), want, strict=True):
            np.testing.assert_array_equal(got, value)


def test_a_dependency_between_steps_that_is_left_out_is_seen() -> None:
    wrong = 0
    for seed in range(20):
        rng = np.random.default_rng([11, seed])
        function = random_function(rng)
        plan, values = make_plan(function, kernel_of, 64)
        given = {**{v.name: rng.integers(0, 50, v.shape) for v in function.params}, **values}
        some = [needs - {max(needs, default=0)} for needs in dependencies(plan)]
        got = carry_out(plan, function, given, any_order(rng, some))
        wrong += any((a != b).any() for a, b in zip(got, evaluate(function, given), strict=True))
    assert wrong > 15


def counted(steps: int) -> Function:
    """A running sum, and what it was after each step."""
    x = Var("x", TensorType((steps * 2, 8), "float32"))

    def step(slices: Exprs, states: Exprs) -> tuple[Exprs, Exprs]:
        total = call("add", states[0], slices[0])
        return [total], [total]

    (last,), (every,) = loop(step, [x], [const(np.zeros((2, 8)), "float32")], steps)
    return Function((x,), Tuple((call("nn.relu", last), every)))


def tables(turns: tuple[tuple[int, int], ...]) -> Function:
    """For every step a row of x times one of y."""
    x, y = (Var(n, TensorType((rows, 8), "float32")) for n, rows in (("x", 3), ("y", 4)))
    every: list[Expr] = loop(lambda s, _: ([], [call("multiply", *s)]), [x, y], [], 12, turns=turns)[1]
    return Function((x, y), every[0])


def test_slices_that_stay_for_several_steps_and_come_again() -> None:
    function = tables(((3, 4), (4, 1)))
    x, y = (np.random.default_rng(k).uniform(-1, 1, (3 + k, 8)).astype("float32") for k in range(2))
    want = (x[:, None] * y).reshape(12, 8)
    module = relay.graph_executor.GraphModule(relay.build(function, target="c")["default"](relay.cpu()))
    module.run(x=x, y=y)
    np.testing.assert_array_equal(module.get_output(0).numpy(), want)
    np.testing.assert_array_equal(reference.run(function, [x, y]), want)
    assert "turns=((3, 4), (4, 1))" in relay.as_text(function)
    for wrong in (((3, 5), (4, 1)), ((3, 4),), ((3, 0), (4, 1))):
        with pytest.raises(GraphError, match="turns are slices and steps of a slice"):
            tables(wrong)


def test_steps_share_memory_and_kernels() -> None:
    few, many = (relay.build(counted(steps), target="c") for steps in (2, 200))
    assert len(many.kernels) == len(few.kernels) and len(many.plan.steps) == len(few.plan.steps) + 198
    assert many.plan.arena_bytes == few.plan.arena_bytes
    assert sum(map(len, dependencies(many.plan))) < 3 * len(many.plan.steps)  # and not all steps before
    assert {q.stream for q in queues(dependencies(many.plan), 4)} == {0}


def test_a_running_sum() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (100, 8)).astype("float32")
    want = np.cumsum(x.reshape(50, 2, 8).astype("float64"), 0)
    module = relay.graph_executor.GraphModule(relay.build(counted(50), target="c")["default"](relay.cpu()))
    module.run(x=x)
    np.testing.assert_allclose(module.get_output(1).numpy().reshape(50, 2, 8), want, atol=1e-5)
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(want[-1], 0), atol=1e-5)
    np.testing.assert_allclose(reference.run(counted(50), [x])[1].reshape(50, 2, 8), want, atol=1e-5)


# ------------------------------------------------------------------------------------------- recurrent layers


def lstm(steps: int, batch: int, hidden: int, backwards: bool, looped: Callable[..., Any]) -> Function:
    """An LSTM without the product of its inputs; the last states, and all hidden ones."""
    rng = np.random.default_rng(3)
    weight = const(rng.standard_normal((4 * hidden, hidden)) / hidden, "float32")
    x = Var("x", TensorType((steps * batch, 4 * hidden), "float32"))
    before = [Var(n, TensorType((batch, hidden), "float32")) for n in "hc"]

    def step(slices: Exprs, states: Exprs) -> tuple[Exprs, Exprs]:
        h, c = states
        gates = call("add", slices[0], call("nn.dense", h, weight))
        parts = [call("strided_slice", gates, begin=(0, k * hidden), end=(batch, (k + 1) * hidden)) for k in range(4)]
        i, f, o = (call("sigmoid", parts[k]) for k in (0, 1, 3))
        c = call("add", call("multiply", f, c), call("multiply", i, call("tanh", parts[2])))
        new = [call("multiply", o, call("tanh", c)), c]
        return new, new

    last, every = looped(step, [x], before, steps, backwards)
    return Function((x, *before), Tuple((call("nn.relu", last[0]), call("copy", last[1]), every[0])))


def lstm_by_hand(weight: Array, x: Array, h: Array, c: Array, steps: int, backwards: bool) -> list[Array]:
    """The same in float64."""
    size, shown = h.shape[1], [np.zeros(0)] * steps
    for t in range(steps)[:: -1 if backwards else 1]:
        gates = x.reshape(steps, len(h), -1)[t] + h @ weight.T
        i, f, o = (1 / (1 + np.exp(-gates[:, k * size : (k + 1) * size])) for k in (0, 1, 3))
        c = f * c + i * np.tanh(gates[:, 2 * size : 3 * size])
        h = shown[t] = o * np.tanh(c)
    return [np.maximum(h, 0), c, np.concatenate(shown)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("looped", [loop, loop_of_one])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("steps", "batch", "hidden"), [(1, 1, 1), (2, 3, 5), (7, 2, 4), (5, 1, 7)])
def test_a_recurrent_layer(steps: int, batch: int, hidden: int, backwards: bool, looped: Callable[..., Any]) -> None:
    """Of odd sizes too, whose slices begin where no wide access may."""
    function = lstm(steps, batch, hidden, backwards, looped)
    rng = np.random.default_rng(4)
    given = {v.name: rng.uniform(-2, 2, v.shape).astype("float32") for v in function.params}
    weight = np.random.default_rng(3).standard_normal((4 * hidden, hidden)) / hidden
    want = lstm_by_hand(weight, given["x"].astype("float64"), given["h"], given["c"], steps, backwards)
    module = relay.graph_executor.GraphModule(relay.build(function, target="c")["default"](relay.cpu()))
    module.run(**given)
    for k, (known, value) in nonempty(enumerate(zip(reference.run(function, given), want, strict=True))):
        np.testing.assert_allclose(known, value, atol=1e-5)
        np.testing.assert_allclose(module.get_output(k).numpy(), value, atol=1e-5)


@pytest.mark.long
@pytest.mark.skipif(not available_compilers() or shutil.which("g++") is None, reason="no CUDA compiler, or no g++")
@pytest.mark.parametrize("sizes", [(3, 2, 4), (4, 3, 5)])
def test_a_recurrent_layer_on_the_emulator(sizes: tuple[int, int, int]) -> None:
    function = lstm(*sizes, True, loop_of_one)
    rng = np.random.default_rng(4)
    given = {v.name: rng.uniform(-2, 2, v.shape).astype("float32") for v in function.params}
    library = relay.build(function, target=TARGET)
    assert all(s.offset % 16 == 0 for s in nonempty(library.plan.storages))
    for got, want in nonempty(zip(emulate(library, given), reference.run(function, given), strict=True)):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_layers_of_one_shape_are_one_task() -> None:
    """A task weighs what its kernel is run."""
    x = Var("x", TensorType((6, 16), "float32"))
    zero, rng = const(np.zeros((2, 4)), "float32"), np.random.default_rng(0)
    rows: Expr = x
    for _ in range(2):
        weight = const(rng.standard_normal((4, 4)), "float32")
        inside = call("nn.dense", rows, const(rng.standard_normal((4, rows.shape[1])), "float32"))

        def step(slices: Exprs, states: Exprs, weight: Expr = weight) -> tuple[Exprs, Exprs]:
            new = call("tanh", call("add", slices[0], call("nn.dense", states[0], weight)))
            return [new], [new]

        _, (rows,) = loop(step, [inside], [zero], 3)
    graph = relay.IRModule({"main": Function((x,), rows)})
    tasks, weights = relay.compiler.optimize.extract_tasks(graph, {}, "c")
    assert sorted(weights) == [1, 1, 6] and len(tasks) == 3


# --------------------------------------------------------------------------------------------------- refusals


def one_step(result: Callable[[Var, Var], tuple[Expr, ...]]) -> Function:
    x, s = (Var(n, TensorType(SHAPE, "int64")) for n in "xs")
    return Function((x, s), Tuple(result(x, s)))


def mixed(*args: Expr) -> FunctionCall:
    return group(MIX, args, [SHAPE], 1)


def test_what_is_no_loop() -> None:
    x, long = Var("x", TensorType(SHAPE, "int64")), Var("l", TensorType((6, 6), "int64"))
    function = one_step(lambda x, s: (mixed(x, s), mixed(x)))
    assert Loop(function, (long, x), 3, 1, 1).type == TupleType((x.var_type, long.var_type))
    with pytest.raises(GraphError, match="loop: at least one step is needed, got steps=0"):
        Loop(function, (long, x), 0, 1, 1)
    with pytest.raises(GraphError, match=r"loop: arguments are Tensor\[\(4, 6\), int64\]"):
        Loop(function, (long, x), 2, 1, 1)
    with pytest.raises(GraphError, match="loop: there are 2 parameters"):
        Loop(function, (long,), 3, 1, 1)
    other = one_step(lambda x, s: (group(MIX, [x], [(3,)], 0),))
    with pytest.raises(GraphError, match="loop: the new states are"):
        Loop(other, (long, x), 3, 1, 1)


@pytest.mark.parametrize(
    ("result", "law"),
    [
        (lambda x, s: (x, mixed(x, s)), "must be computed in it"),
        (lambda x, s: (mixed(x, s), s), "must be computed in it"),
        (lambda x, s: (mixed(x, s), *[mixed(x)] * 2), "results that a loop puts together must differ"),
    ],
)
def test_a_step_that_cannot_be_placed(result: Callable[..., tuple[Expr, ...]], law: str) -> None:
    function = one_step(result)
    if len(function.body.fields) == 3:  # type: ignore[attr-defined]
        shared = mixed(*function.params)
        function = Function(function.params, Tuple((mixed(*function.params), shared, shared)))
    x, long = Var("x", TensorType(SHAPE, "int64")), Var("l", TensorType((6, 6), "int64"))
    made = Loop(function, (long, x), 3, 1, 1)
    with pytest.raises(GraphError, match=law):
        make_plan(Function((x, long), TupleGetItem(made, 0)), kernel_of, 64)


def test_a_part_is_no_output_and_lies_in_its_whole() -> None:
    x, long = Var("x", TensorType(SHAPE, "int64")), Var("l", TensorType((6, 6), "int64"))
    params = tuple([Var(n, TensorType(SHAPE, "int64")) for n in "xs"])
    shown = mixed(*params)
    made = Loop(Function(params, Tuple((shown, shown))), (long, x), 3, 1, 1)
    with pytest.raises(GraphError, match="an output must be no part"):
        make_plan(Function((x, long), TupleGetItem(made, 0)), kernel_of, 64)
    plan, _ = make_plan(Function((x, long), TupleGetItem(made, 1)), kernel_of, 64)
    part = plan.storages[-1]
    assert part.kind == "part" and plan.place(len(plan.storages) - 1)[1] == part.offset
    itself = len(plan.storages) - 1
    for bad in (replace(part, of=itself), replace(part, offset=part.offset + 1000), replace(part, of=itself + 1)):
        with pytest.raises(GraphError, match="a part lies inside a storage that is none"):
            replace(plan, storages=(*plan.storages[:-1], bad))
    for k, bad in ((itself, replace(part, of=None)), (0, replace(plan.storages[0], of=1))):
        with pytest.raises(GraphError, match="parts, and nothing else, say what they are parts of"):
            replace(plan, storages=(*plan.storages[:k], bad, *plan.storages[k + 1 :]))


def test_what_is_read_of_parts_was_written() -> None:
    """Neither another part of a storage than was written, nor the rest of one that a step begins, nor all of it."""
    storages = (
        Storage("input", 8), Storage("output", 8), Storage("arena", 64),
        Storage("part", 8, 0, 2), Storage("part", 8, 32, 2), Storage("part", 16, 0, 2), Storage("part", 8, 8, 2),
    )  # fmt: skip
    places = TensorPlace("x", (2,), "float32", 0), TensorPlace("y", (2,), "float32", 1)
    fill, rest = Step("k", (0, 3), (3,)), Step("k", (0, 6), (6,))

    def read(*steps: Step) -> ExecutionPlan:
        plan = ExecutionPlan(storages, steps, places[:1], (), places[1:], 64)
        return plan_from_json(plan.to_json())

    assert read(fill, rest, Step("k", (5, 1), (1,))).steps[0] == fill
    for wrong in ([fill, Step("k", (4, 1), (1,))], [Step("k", (4, 3), (3,))], [fill, Step("k", (5, 1), (1,))],
                  [fill, Step("k", (2, 1), (1,))]):  # fmt: skip
        with pytest.raises(GraphError, match="reads memory that no step before it wrote"):
            read(*wrong)


Given = Callable[[Exprs, Exprs], tuple[Exprs, Exprs]]


def plus(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


def _once(x: Expr, state: Expr, *more: Callable[[Expr], Expr]) -> tuple[Exprs, Exprs]:
    total = plus(x, state)
    return [total], [f(total) for f in more]


STEPS: dict[str, Given] = {
    "two sums that are one": lambda x, s: ([plus(x[0], s[0])], [plus(x[0], s[0])]),
    "a delay": lambda x, s: ([x[0]], [s[0]]),
    "the slice itself": lambda x, s: ([s[0]], [x[0]]),
    "a constant": lambda x, s: ([s[0]], [const(np.ones(s[0].shape), "float32")]),
    "a result twice": lambda x, s: _once(x[0], s[0], lambda v: v, lambda v: v),
    "another shape": lambda x, s: _once(x[0], s[0], lambda v: call("reshape", v, newshape=(v.shape[0] * v.shape[1],))),
    "nothing": lambda x, s: _once(x[0], s[0]),
}


@pytest.mark.parametrize("width", [3, 8])
@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_may_give(name: str, width: int) -> None:
    """With wide slices, which lie where they are, and with narrow ones, which are padded."""
    x, y = Var("x", TensorType((10, width), "float32")), Var("y", TensorType((2, width), "float32"))
    last, every = loop(STEPS[name], [x], [y], 5, True)
    function = Function((x, y), Tuple((*last, *every)))
    rng = np.random.default_rng(0)
    given = {v.name: rng.uniform(-1, 1, v.shape).astype("float32") for v in function.params}
    module = relay.graph_executor.GraphModule(relay.build(function, target="c")["default"](relay.cpu()))
    module.run(**given)
    for k, want in nonempty(enumerate(reference.run(function, given))):
        np.testing.assert_allclose(module.get_output(k).numpy(), want, atol=1e-6)


def test_passes_go_into_loops() -> None:
    function = lstm(3, 2, 4, False, loop)
    mixed_precision = relay.transform.ToMixedPrecision()(function)
    (found,) = [n for n in post_order(mixed_precision.body) if isinstance(n, Loop)]
    (product,) = [n for n in post_order(found.function.body) if is_op(n, "nn.dense")]
    assert product.args[0].dtype == "float16"
    fused = optimize(function, {}, "c")
    assert not list(function_calls(DefuseOps()(fused).body)) and list(function_calls(fused.body))


def test_text() -> None:
    text = relay.as_text(counted(3))
    assert "def @f0(%x0: Tensor[(2, 8), float32], %s0: Tensor[(2, 8), float32])" in text
    assert "loop @f0(%x, const(Tensor[(2, 8), float32]), steps=3, sliced=1, states=1)" in text


def test_calls_in_the_order_in_which_they_run() -> None:
    function = random_function(np.random.default_rng(1))
    plan, _ = make_plan(function, kernel_of, 64)
    assert [s.kernel for s in plan.steps] == [c.function.attrs["name"] for c in function_calls(function.body)]
