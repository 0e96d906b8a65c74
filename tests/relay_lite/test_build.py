"""Compiled networks compute what the reference executor says; records and defaults are chosen as documented."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.policy.default_schedule import TRIED, drawn_of, drawn_states
from ansor.sketch import generate_sketches
from ansor.sketch.plain import plain_state, untuned_state
from codegen_c import build as build_c
from relay_lite import reference
from relay_lite.compiler.build import build, compile_fused
from relay_lite.compiler.group_programs import Accept, Choose, GroupProgram, choose_program, choose_programs, wanted
from relay_lite.compiler.optimize import extract_tasks, optimize
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Constant, Expr, Function, FunctionCall, Tuple
from relay_lite.ir.visit import free_vars, post_order
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.transform import PassContext
from te_lite import topi
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.relay_lite.pass_graphs import Layers, random_network, relu
from tests.workloads import WORKLOADS

Rng = np.random.Generator


def compare(function: Function, rng: Rng, tolerance: float, **kwargs: object) -> GraphModule:
    """Build, run on drawn inputs with poisoned memory, and compare all outputs with the reference."""
    module = GraphModule(build(function, target="c", **kwargs)["default"]())  # type: ignore[arg-type]
    inputs = {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in function.params}
    poison(module)
    module.run(**inputs)
    want = reference.run(function, inputs)
    want = want if isinstance(want, tuple | list) else [want]
    assert module.get_num_outputs() == len(want)
    for k, expected in enumerate(want):
        got = module.get_output(k).numpy()
        assert got.shape == expected.shape and got.dtype == expected.dtype
        largest = max(float(np.abs(expected).max(initial=0)), 1e-3)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * largest)
    return module


def poison(module: GraphModule) -> None:
    """Everything that a run must write is NaN before."""
    executor = module._executor
    executor.arena[...] = 255  # type: ignore[attr-defined]
    for place in module.plan.outputs:
        if module.plan.storages[place.storage].kind == "output":
            executor._memory[place.storage][...] = 255  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.one_in(7)
def test_random_networks(seed: int, layout: str) -> None:
    rng = np.random.default_rng([11, seed])
    compare(random_network(rng, 12, layout), rng, 1e-9)


def small_network(dtype: str = "float32") -> Function:
    """Two convolutions that share a weight, a skip, a pool and a dense layer, on a batch of two."""
    make = Layers(np.random.default_rng(5), "NHWC", dtype)
    x = make.input(2, 7, 6, 4)
    weight = make.draw(3, 3, 4, 4)

    def conv(value: Expr) -> Expr:
        return call("nn.conv2d", value, weight, padding=(1, 1, 1, 1), channels=4, kernel_size=(3, 3),
                    data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip

    first = relu(make.bn(conv(x)))
    second = relu(call("add", make.bias(conv(first)), x))
    body = Tuple((call("nn.softmax", make.tail(make.pool(second), 7)), first))
    return Function((x,), body)


def test_shared_weights_two_outputs_batch_two() -> None:
    module = compare(small_network(), np.random.default_rng(0), 1e-5)
    assert len(module.module.library.values) < 8


def test_parameters_become_part_of_the_network() -> None:
    rng = np.random.default_rng(1)
    x, w, b = var("x", (3, 11)), var("w", (5, 11)), var("b", (5,))
    function = Function((x, w, b), call("add", call("nn.dense", x, w), b))
    params = {"w": rng.uniform(-1, 1, (5, 11)).astype("float32"), "b": ansor.nd.array(np.ones(5, "float32"))}
    x_np = rng.uniform(-1, 1, (3, 11)).astype("float32")
    for lib in (
        build(function, params, "c"),
        build(IRModule({"main": function}), target="llvm", params=params),
        build(function, ansor.Target("c"), params=params),
        build(function, "cpu", params),
    ):
        module = GraphModule(lib["default"](ansor.device("c")))
        module.run(x=x_np)
        np.testing.assert_allclose(module.get_output(0).numpy(), x_np @ params["w"].T + 1, rtol=1e-5)
        assert module.get_input_info() == ({"x": (3, 11)}, {"x": "float32"})
    compare(function, rng, 1e-5)


@pytest.mark.parametrize(
    "given, law",
    [
        (("c", "cuda"), "the target is given twice"),
        (({}, {}), "the parameters are given twice"),
        ((3,), "a target and a mapping"),
        (("vta",), "networks run on c, cuda"),
    ],
)
def test_arguments_that_are_refused(given: tuple[object, ...], law: str) -> None:
    with pytest.raises(GraphError, match=law):
        build(small_network(), *given)  # type: ignore[arg-type]


def test_the_identity_and_a_constant() -> None:
    x = var("x", (2, 3))
    compare(Function((x,), Tuple((x, Constant(np.arange(6.0)), call("reshape", x, newshape=(3, 2))))),
            np.random.default_rng(0), 0)  # fmt: skip


def test_equal_groups_are_one_kernel() -> None:
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    value: Expr = make.input(1, 6, 6, 8)
    for _ in range(4):
        value = relu(make.bias(make.conv(value, 8)))
    lib = build(Function(free_vars(value), value), target="c")
    assert len(lib.kernels) == 1 and len(lib.plan.steps) == 4 and len(lib.values) == 8


# ------------------------------------------------------------------------------------------ which program


def sampled(task: ansor.SearchTask, seed: int) -> ansor.MeasureInput:
    rng = np.random.default_rng(seed)
    sketches = generate_sketches(task.compute_dag, task.target)
    state = drawn_program(sketches[0], task.target, task.hardware_params, rng)
    assert state is not None
    return ansor.MeasureInput(task, state)


def result(cost: float) -> ansor.MeasureResult:
    return ansor.MeasureResult((cost,), 0, "", 1.0, 0)


def kernel_of(task: ansor.SearchTask, built: Any) -> Any:
    """The kernel of a task, whose program may read packed weights."""
    return next(built.kernels[name] for name in (task.desc, f"{task.desc}_packed") if name in built.kernels)


def test_the_best_record_is_used(caplog: pytest.LogCaptureFixture) -> None:
    network = small_network()
    tasks, _ = extract_tasks(network, None, "c")
    assert len(tasks) >= 3
    plain = build(network, target="c")
    names = [r.getMessage() for r in caplog.records if r.name == "relay_lite"]
    assert len(names) == 1 and all(task.desc in names[0] for task in tasks)
    caplog.clear()
    inputs = [sampled(task, seed) for task in tasks for seed in (1, 2)]
    costs = [result(2.0 - k % 2) for k in range(len(inputs))]
    with ansor.ApplyHistoryBest(list(zip(inputs, costs, strict=True))):
        best = build(network, target="c")
        compare(network, np.random.default_rng(3), 1e-5)
    assert not [r for r in caplog.records if r.name == "relay_lite"]
    found = kernel_of(tasks[0], best).source
    assert found != kernel_of(tasks[0], plain).source
    chosen = next(x for x in inputs[1::2] if x.task is tasks[0])
    with ansor.ApplyHistoryBest(None) as context:
        context.update("c", tasks[0].workload_key, chosen.state)
        assert kernel_of(tasks[0], build(network, target="c")).source == found


def test_the_warning_names_only_what_lacks_a_record(caplog: pytest.LogCaptureFixture) -> None:
    network = small_network()
    tasks, _ = extract_tasks(network, None, "c")
    with caplog.at_level(logging.WARNING), ansor.ApplyHistoryBest([(sampled(tasks[0], 0), result(1.0))]):
        build(network, target="c")
    (message,) = [r.getMessage() for r in caplog.records if r.name == "relay_lite"]
    assert tasks[0].desc not in message.split(": ")[-1].split(", ")
    assert all(task.desc in message for task in tasks[1:])


def test_a_record_that_does_not_fit_is_named() -> None:
    network = small_network()
    tasks, _ = extract_tasks(network, None, "c")
    wrong = sampled(tasks[1], 0).state
    with ansor.ApplyHistoryBest(None) as context:
        context.update("c", tasks[0].workload_key, wrong)
        with pytest.raises(GraphError, match=f"kernel {tasks[0].desc}: its recorded program cannot be used"):
            build(network, target="c")


def test_the_passes_run_at_level_three_unless_told() -> None:
    network = small_network()
    with PassContext(opt_level=3):
        at_three = build(network, target="c")
    with PassContext(opt_level=0):
        at_zero = build(network, target="c")
    assert set(build(network, target="c").kernels) == set(at_three.kernels) != set(at_zero.kernels)


# ------------------------------------------------------------------------------------------------ defaults


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.parametrize("kind", ["drawn", "plain"])
@pytest.mark.one_in(5)
def test_default_programs_are_right(name: str, kind: str) -> None:
    oracle = Oracle(te.ComputeDAG(WORKLOADS[name]()), np.random.default_rng(2))
    task = ansor.SearchTask(compute_dag=oracle.dag, target="c")
    states = list(drawn_states(task))[:1] if kind == "drawn" else [plain_state(task)]
    for state in nonempty(states):
        func = te.lower(state, oracle.dag.tensors)
        assert oracle.mismatch(func, lambda f, args: build_c(f)(*args)) is None


def first_group(fused: Function) -> Function:
    """The group of the first kernel."""
    return next(node.function for node in post_order(fused.body) if isinstance(node, FunctionCall))


def test_defaults_are_the_same_every_time() -> None:
    function = first_group(optimize(small_network(), None, "c"))
    target = ansor.Target("c")
    need = wanted(function, target)
    first, second = [choose_program(need, target, lambda func: None) for _ in range(2)]
    assert str(first.func) == str(second.func) and need.recorded is None


def test_a_program_that_is_refused_gives_way() -> None:
    """A nest that nobody drew is taken when nothing drawn is accepted; when all are refused, the last error is said."""
    function = first_group(optimize(small_network(), None, "c"))
    refused: list[te.LoweredFunc] = []
    need = wanted(function, ansor.Target("c"))
    task = ansor.SearchTask(compute_dag=need.group.dag, target="c")
    drawn = len(list(drawn_of(task)))
    assert 1 <= drawn <= TRIED

    def accept_plain(func: te.LoweredFunc) -> None:
        if len(refused) < drawn:
            refused.append(func)
            raise te.LowerError("refused")

    program = choose_program(need, ansor.Target("c"), accept_plain)
    assert len(refused) == drawn
    assert program.state.steps in (plain_state(task).steps, untuned_state(task).steps)

    def accept_nothing(func: te.LoweredFunc) -> None:
        raise te.LowerError("refused all")

    with pytest.raises(te.LowerError, match="refused all"):
        choose_program(need, ansor.Target("c"), accept_nothing)


def test_an_output_that_another_one_reads() -> None:
    x = te.placeholder((5, 40), name="x")
    doubled = topi.cpp.relu(x)
    total = topi.sum(doubled, axis=1)
    oracle = Oracle(te.ComputeDAG([x, doubled, total]), np.random.default_rng(2))
    state = plain_state(ansor.SearchTask(compute_dag=oracle.dag, target="c"))
    assert oracle.mismatch(te.lower(state, oracle.dag.tensors), lambda f, args: build_c(f)(*args)) is None


def test_groups_of_one_name_are_two_kernels() -> None:
    x, p = var("x", (3, 8)), [var("p0", (3, 8)) for _ in range(2)]
    first, second = [
        Function((v,), call(op, v), {"primitive": True, "name": "same"})
        for op, v in zip(("tanh", "exp"), p, strict=True)
    ]
    fused = Function((x,), FunctionCall(second, (FunctionCall(first, (x,)),)))
    lib = compile_fused(fused, ansor.Target("c"))
    assert set(lib.kernels) == {"same", "same_1"}
    given = np.random.default_rng(0).uniform(-1, 1, (3, 8)).astype("float32")
    module = GraphModule(lib["default"]())
    module.run(x=given)
    np.testing.assert_allclose(module.get_output(0).numpy(), np.exp(np.tanh(given)), rtol=1e-6)


def test_constant_weights_are_packed_for_default_programs() -> None:
    rng = np.random.default_rng(0)
    x, w = var("x", (9, 64)), var("w", (48, 64))
    function = Function((x, w), call("nn.relu", call("nn.dense", x, w)))
    weight = rng.uniform(-1, 1, (48, 64)).astype("float32")
    loose, bound = build(function), build(function, {"w": weight})
    assert set(loose.kernels) == {"fused_nn_dense_nn_relu"} and set(bound.kernels) == {"fused_nn_dense_nn_relu_packed"}
    (packed,) = bound.values.values()
    assert packed.shape != weight.shape and sorted(packed.reshape(-1)) == sorted(weight.reshape(-1))
    given = rng.uniform(-1, 1, (9, 64)).astype("float32")
    for lib in (loose, bound):
        module = GraphModule(lib["default"]())
        module.run(x=given, w=weight)
        np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(given @ weight.T, 0), rtol=0, atol=1e-5)
    with PassContext(opt_level=2):
        assert set(build(function, {"w": weight}).kernels) == {"fused_nn_dense_nn_relu"}


def choosing(accept: Accept) -> Choose[GroupProgram]:
    """The programs themselves, without machine code."""
    return lambda need, taken: choose_program(need, ansor.Target("c"), accept, taken)


@pytest.mark.long
def test_every_kernel_is_lowered_once() -> None:
    """Packed or not, recorded or not; a group whose weight is an input in one call and constant in another is two."""
    x, v = var("x", (3, 20)), var("v", (20, 20))
    w = Constant(np.random.default_rng(0).uniform(-1, 1, (20, 20)).astype("float32"))
    twice = Function((x, v), call("nn.dense", call("nn.dense", x, v), w))
    for graph, kernels in ((small_network(), None), (twice, {"fused_nn_dense", "fused_nn_dense_packed"})):
        tasks, _ = extract_tasks(graph, None, "c")
        for records in ([], [(sampled(tasks[0], 0), result(1.0))]):
            lowered: list[te.LoweredFunc] = []
            with PassContext(opt_level=3), ansor.ApplyHistoryBest(records):
                fused = optimize(graph, None, "c", for_build=bool(records))
                packed, programs = choose_programs(fused, ansor.Target("c"), choosing(lowered.append))
            assert lowered == [program.func for program in programs.values()]
            assert kernels is None or {func.name for func in lowered} == kernels
            called = {node.function for node in post_order(packed.body) if isinstance(node, FunctionCall)}
            assert set(programs) <= called


def test_a_packed_program_that_is_refused_gives_way() -> None:
    """The next default program packs the weight for itself; in the end the plain nest runs."""
    rng = np.random.default_rng(0)
    x, weight = var("x", (9, 64)), rng.uniform(-1, 1, (48, 64)).astype("float32")
    with PassContext(opt_level=3):
        fused = optimize(Function((x,), call("nn.dense", x, Constant(weight))), None, "c")
    refused: list[str] = []

    def accept_nothing(func: te.LoweredFunc) -> None:
        refused.append(str(func))
        raise te.LowerError("refused")

    with pytest.raises(te.LowerError, match="refused"):
        choose_programs(fused, ansor.Target("c"), choosing(accept_nothing))
    assert 1 < len(refused) <= TRIED + 2  # the plain nest and the loops as they are written, too
    seen: list[te.LoweredFunc] = []

    def accept_the_last(func: te.LoweredFunc) -> None:
        seen.append(func)
        if len(seen) < len(refused):
            raise te.LowerError("refused")

    packed, programs = choose_programs(fused, ansor.Target("c"), choosing(accept_the_last))
    (program,) = programs.values()
    assert list(map(str, seen)) == refused and program.func is seen[-1] and len(set(refused)) > 1
    (node,) = [n for n in post_order(packed.body) if isinstance(n, FunctionCall)]
    assert [a.shape for a in node.args] == [p.shape for p in node.function.params] and node.function is program.function
    given = rng.uniform(-1, 1, (9, 64)).astype("float32")
    np.testing.assert_allclose(reference.run(packed, {"x": given}), given @ weight.T, rtol=0, atol=1e-5)
