"""Plans of random graphs of groups, carried out in Python on poisoned memory: no tensor is overwritten too early."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ansor.core.device.network_plan import ExecutionPlan
from ansor.core.device.read_plan import plan_from_json
from codegen_cuda.networks.streams import dependencies, queues
from relay_lite.ir.control import Branch, Loop
from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Call, Constant, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var
from relay_lite.ir.op_registry import Attrs, Op, OpPattern
from relay_lite.ir.types import TensorType, TupleType, Type
from relay_lite.ir.visit import function_calls, post_order
from relay_lite.runtime import assemble
from relay_lite.runtime.assemble import GroupKernel, make_plan, reshaped_params
from relay_lite.runtime.memory import Request
from tests.nonempty import nonempty
from tests.relay_lite.memory_oracle import collisions

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    fields = tuple([TensorType(shape, "int64") for shape in attrs["shapes"]])
    return fields[0] if len(fields) == 1 else TupleType(fields)


def _mix(args: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Numbers that depend on every element of every argument and on its place."""
    total = sum((k + 3) * int((a.reshape(-1) * np.arange(1, a.size + 1)).sum()) for k, a in enumerate(args))
    return [np.arange(np.prod(s)).reshape(s) * 7 + total % 1_000_003 + j for j, s in enumerate(attrs["shapes"])]


MIX = Op("mix", OpPattern.OPAQUE, _infer, _mix, None, {"shapes": ()})
RESHAPE = Op("reshape", OpPattern.INJECTIVE, _infer, lambda a, t: a[0].reshape(t["shapes"][0]), None, {"shapes": ()})


def group(op: Op, args: Sequence[Expr], shapes: Sequence[tuple[int, ...]], number: int) -> FunctionCall:
    params = tuple([Var(f"p{k}", a.type) for k, a in enumerate(args)])  # type: ignore[arg-type]
    attrs = {"name": f"kernel{number}", "reshape_only": op is RESHAPE}
    return FunctionCall(Function(params, Call(op, params, {"shapes": tuple(shapes)}), attrs), tuple(args))


def random_function(rng: Rng, size: int) -> Function:
    """Groups of one or two results, reshapes, tuples, constants that several groups read, unused results."""
    inputs = tuple([Var(n, TensorType((2, 6), "int64")) for n in ("x", "p0", "unused")])
    constants = [Constant(rng.integers(0, 99, (3, int(n)))) for n in rng.integers(1, 9, 4)]
    values: list[Expr] = [*inputs[:2], *constants]

    def pick() -> Expr:
        back = int(min(rng.geometric(0.3), len(values)))
        return values[-back] if rng.random() < 0.8 else values[int(rng.integers(len(values)))]

    for k in range(size):
        args = [pick() for _ in range(int(rng.integers(1, 4)))]
        if rng.random() < 0.2:
            made: Expr = group(RESHAPE, args[:1], [(int(np.prod(args[0].shape)),)], k)
        elif rng.random() < 0.25:
            pair = group(MIX, args, [(int(rng.integers(1, 60)),), (4, int(rng.integers(1, 9)))], k)
            values.append(TupleGetItem(pair, 1))
            made = TupleGetItem(pair, 0) if rng.random() < 0.7 else values[-1]
        else:
            made = group(MIX, args, [tuple(map(int, rng.integers(1, 12, 2)))], k)
        values.append(made)
    outputs = tuple([values[-1], *[pick() for _ in range(int(rng.integers(0, 4)))]])
    return Function(inputs, Tuple(outputs) if len(outputs) > 1 else outputs[0])


def kernel_of(function: Function) -> GroupKernel:
    """Arguments in another order than the parameters, and some scratch memory."""
    number = int(str(function.attrs["name"]).removeprefix("kernel"))
    results = len(function.body.attrs["shapes"])  # type: ignore[attr-defined]
    first = len(function.params)
    arguments = (*range(first, first + results), *range(first))
    return GroupKernel(f"kernel{number}", arguments, tuple(range(first, first + results)), (8 * number,) * (number % 3))


def evaluate(function: Function, inputs: dict[str, Array]) -> list[Array]:
    return _evaluate(function.body, {id(v): [inputs[v.name]] for v in function.params})


def _loop(node: Loop, args: Sequence[Array]) -> list[Array]:
    """What a loop gives, a step after the other."""
    cut, kept = node.sliced, node.sliced + node.states
    states, given = list(args[cut:kept]), list[list[Array]]()
    for step in range(node.steps)[:: -1 if node.backwards else 1]:
        slices = [a[step * (len(a) // node.steps) : (step + 1) * (len(a) // node.steps)] for a in args[:cut]]
        params = zip(node.function.params, [*slices, *states, *args[kept:]], strict=True)
        found = _evaluate(node.function.body, {id(v): [a] for v, a in params})
        states, given = found[: node.states], [*given, found[node.states :]]
    ordered = given[::-1] if node.backwards else given
    return [*states, *[np.concatenate(every) for every in zip(*ordered, strict=True)]]


def _evaluate(top: Expr, values: dict[int, list[Array]]) -> list[Array]:
    for node in post_order(top):
        match node:
            case Loop():
                values[id(node)] = _loop(node, [values[id(a)][0] for a in node.args])
            case Branch(args=(condition, *others)):
                taken = node.then if values[id(condition)][0] else node.otherwise
                given = zip(taken.params, others, strict=True)
                values[id(node)] = _evaluate(taken.body, {id(v): values[id(a)] for v, a in given})
            case Constant(value=value):
                values[id(node)] = [value]
            case Tuple(fields=fields):
                values[id(node)] = [values[id(f)][0] for f in fields]
            case TupleGetItem(tuple_value=value, index=index):
                values[id(node)] = [values[id(value)][index]]
            case FunctionCall(function=f, args=args):
                body = f.body
                assert isinstance(body, Call)
                made = body.op.numpy([values[id(a)][0] for a in args], body.attrs)
                values[id(node)] = made if isinstance(made, list) else [made]
    return values[id(top)]


def carry_out(
    plan: ExecutionPlan, function: Function, given: dict[str, Array], order: Sequence[int] | None = None
) -> list[Array]:
    """Run the steps on raw bytes; kernels fill their scratch memory with rubbish, and the arena begins as rubbish."""
    arena = np.full(plan.arena_bytes, 0xA5, np.uint8)
    outside = [np.full(s.nbytes, 0xA5, np.uint8) for s in plan.storages[: plan.externals]]
    for place in (*plan.inputs, *plan.params):
        outside[place.storage][...] = given[place.name].reshape(-1).view(np.uint8)
    functions = {str(n.function.attrs["name"]): n.function for n in function_calls(function.body)}

    def memory(k: int) -> Array:
        whole, start = plan.place(k)
        return (arena if whole is None else outside[whole])[start : start + plan.storages[k].nbytes]

    for step in plan.steps if order is None else [plan.steps[k] for k in order]:
        body = functions[step.kernel].body
        assert isinstance(body, Call)
        if not all(memory(k)[0] for k in step.where) or any(memory(k)[0] for k in step.unless):
            continue
        count = len(body.attrs["shapes"])
        used = [memory(k).view(np.int64) for k in step.storages]
        arguments, results = used[count : count + len(body.args)], used[:count]
        for scratch in used[count + len(body.args) :]:
            scratch[...] = -1
        for place, value in zip(results, _mix(arguments, body.attrs), strict=True):
            place[...] = value.reshape(-1)
    return [outside[p.storage].view(np.int64).reshape(p.shape) for p in plan.outputs]


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    function = random_function(rng, int(rng.integers(1, 40)))
    plan, values = make_plan(function, kernel_of, 64)
    inputs = {v.name: rng.integers(0, 50, v.shape) for v in function.params}
    assert not set(values) & set(inputs)
    got = carry_out(plan, function, {**inputs, **values})
    for a, b in zip(got, evaluate(function, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert {p.name: p.shape for p in plan.inputs} == {v.name: v.shape for v in function.params}


def any_order(rng: Rng, needed: Sequence[set[int]]) -> list[int]:
    """A random order in which every step comes after those it needs."""
    order: list[int] = []
    while len(order) < len(needed):
        ready = [k for k, needs in enumerate(needed) if k not in order and needs <= set(order)]
        order.append(ready[int(rng.integers(len(ready)))])
    return order


@pytest.mark.parametrize("slack", [0, 3])
@pytest.mark.parametrize("seed", range(20))
def test_any_order_that_keeps_the_dependencies_is_right(seed: int, slack: int) -> None:
    rng = np.random.default_rng([9, seed])
    function = random_function(rng, 30)
    plan, values = make_plan(function, kernel_of, 64, slack)
    given = {**{v.name: rng.integers(0, 50, v.shape) for v in function.params}, **values}
    want = evaluate(function, given)
    for _ in range(4):
        got = carry_out(plan, function, given, any_order(rng, dependencies(plan)))
        assert all((a == b).all() for a, b in nonempty(zip(got, want, strict=True)))


@pytest.mark.parametrize(("small", "tensors"), [(assemble.SMALL, 4), (0, 1)])
def test_memory_of_large_tensors_is_used_again_at_once(
    small: int, tensors: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """In a chain of six steps, whose slack keeps all five tensors between them apart where they are small.

    One of them, or every second one, lies in the output, which is written last.
    """
    monkeypatch.setattr(assemble, "SMALL", small)
    x = Var("x", TensorType((4, 256), "int64"))
    body: Expr = x
    for k in range(6):
        body = group(MIX, [body], [(4, 256)], k)
    plan, _ = make_plan(Function((x,), body), kernel_of, 64, 3)
    assert len(plan.steps) == 6 and plan.arena_bytes // (4 * 256 * 8 + 64) == tensors  # and a little scratch memory


def test_a_dependency_that_is_left_out_is_seen() -> None:
    wrong = 0
    for seed in range(20):
        rng = np.random.default_rng([9, seed])
        function = random_function(rng, 30)
        plan, values = make_plan(function, kernel_of, 64)
        given = {**{v.name: rng.integers(0, 50, v.shape) for v in function.params}, **values}
        want = evaluate(function, given)
        needed = dependencies(plan)
        some = [needs - {max(needs, default=0)} for needs in needed]
        got = carry_out(plan, function, given, any_order(rng, some))
        wrong += any((a != b).any() for a, b in zip(got, want, strict=True))
    assert wrong > 15


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_streams_keep_the_dependencies(seed: int, most: int) -> None:
    """Every step comes after those it needs, by the order of its stream and what it and those before it wait for."""
    rng = np.random.default_rng([13, seed])
    needed = [{int(i) for i in rng.integers(0, j, int(rng.integers(0, 4)))} if j else set() for j in range(40)]
    queued = queues(needed, most)
    assert max(q.stream for q in queued) < most
    before: list[set[int]] = []
    for j, q in enumerate(queued):
        earlier = [i for i in range(j) if queued[i].stream == q.stream][-1:]
        assert all(queued[i].stream != q.stream and i < j for i in q.waits)
        before.append(set().union(*[{i, *before[i]} for i in (*earlier, *q.waits)]))
        assert needed[j] <= before[j]
    if most == 1:
        assert not any(q.waits for q in queued)


def test_branches_are_on_streams_of_their_own() -> None:
    """0 -> (1 -> 3), (2 -> 4) -> 5: the second branch waits for 0 only, the end for one step of the other branch."""
    queued = queues([set(), {0}, {0}, {1}, {2}, {3, 4}], 4)
    assert [q.stream for q in queued[:5]] == [0, 0, 1, 0, 1]
    assert [q.waits for q in queued] == [(), (), (0,), (), (), (3,)] and queued[5].stream == 1


def test_storage_that_is_released_too_early_is_seen() -> None:
    """Plans in which one arena storage is moved onto another that is in use give other results."""
    wrong = tried = 0
    for seed in range(20):
        rng = np.random.default_rng([7, seed])
        function = random_function(rng, 25)
        plan, values = make_plan(function, kernel_of, 64)
        inputs = {v.name: rng.integers(0, 50, v.shape) for v in function.params}
        want = evaluate(function, inputs)
        for j, k in _live_together(plan):
            moved = replace(plan.storages[k], offset=plan.storages[j].offset)
            storages = tuple([moved if n == k else s for n, s in enumerate(plan.storages)])
            broken = replace(plan, storages=storages, arena_bytes=plan.arena_bytes + moved.nbytes)
            got = carry_out(broken, function, {**inputs, **values})
            tried += 1
            wrong += any((a != b).any() for a, b in zip(got, want, strict=True))
    assert tried > 40 and wrong > 0.5 * tried


def _live_together(plan: ExecutionPlan) -> list[tuple[int, int]]:
    uses: dict[int, list[int]] = {}
    for n, step in enumerate(plan.steps):
        for k in step.storages:
            uses.setdefault(k, []).append(n)
    arena = [k for k, s in enumerate(plan.storages) if s.kind == "arena" and s.nbytes]
    live = [Request(plan.storages[k].nbytes, min(uses[k]), max(uses[k])) for k in arena]
    assert not collisions(live, [plan.storages[k].offset for k in arena])
    return [(arena[j], arena[k]) for k in range(len(arena)) for j in range(k) if live[j].meets(live[k])][::3]


def test_reshapes_are_no_steps_and_take_no_memory() -> None:
    x = Var("x", TensorType((2, 6), "int64"))
    flat = group(RESHAPE, [x], [(12,)], 0)
    mixed = group(MIX, [flat], [(3, 4)], 1)
    body = group(RESHAPE, [mixed], [(12,)], 2)
    plan, _ = make_plan(Function((x,), body), kernel_of, 64)
    assert reshaped_params(flat.function) == (0,) and reshaped_params(mixed.function) is None
    assert [s.kernel for s in plan.steps] == ["kernel1"] and plan.arena_bytes == 128  # scratch memory and a gap
    assert plan.outputs[0].shape == (12,) and plan.steps[0].storages[:2] == (plan.outputs[0].storage, 0)


def test_a_result_that_is_an_argument_needs_no_storage() -> None:
    x = Var("x", TensorType((4,), "int64"))
    pair = group(MIX, [x], [(4,), (4,)], 1)
    same = GroupKernel("kernel1", (1, 0), (1, 0))
    plan, _ = make_plan(Function((x,), pair), lambda f: same, 64)
    assert [p.storage for p in plan.outputs] == [1, 0]


def test_what_is_no_fused_graph() -> None:
    x = Var("x", TensorType((4,), "int64"))
    with pytest.raises(GraphError, match="mix is in no fused group"):
        make_plan(Function((x,), Call(MIX, (x,), {"shapes": ((4,),)})), kernel_of, 64)
    with pytest.raises(GraphError, match="a variable must be a parameter"):
        make_plan(Function((), group(MIX, [x], [(4,)], 0)), kernel_of, 64)


@pytest.mark.parametrize("spoil", ["offset", "step", "kind", "missing"])
def test_a_plan_that_does_not_fit_is_refused(spoil: str) -> None:
    plan, _ = make_plan(random_function(np.random.default_rng(0), 12), kernel_of, 64)
    data = json.loads(json.dumps(plan.to_json()))
    match spoil:
        case "offset":
            data["storages"][-1]["offset"] = plan.arena_bytes + 1
        case "step":
            data["steps"][0]["storages"][0] = len(plan.storages)
        case "kind":
            data["storages"][0]["kind"] = "arena"
        case _:
            del data["steps"]
    with pytest.raises(GraphError, match="plan"):
        plan_from_json(data)
