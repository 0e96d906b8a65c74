"""Plans where results are written over arguments, and tensors lie in outputs before these, on poisoned memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from ansor.core.device.read_plan import plan_from_json
from codegen_cuda.networks.streams import dependencies
from relay_lite.ir.nodes import Constant, Expr, Function, Tuple, TupleGetItem, Var
from relay_lite.ir.types import TensorType, fields_of
from relay_lite.runtime import assemble
from relay_lite.runtime.assemble import GroupKernel, make_plan
from relay_lite.runtime.memory import KernelCall, Value, nbytes_of, take_over
from tests.relay_lite.test_build_plan import (
    MIX,
    RESHAPE,
    Rng,
    any_order,
    carry_out,
    evaluate,
    group,
    kernel_of,
    random_function,
)


def over(function: Function) -> GroupKernel:
    """`kernel_of`, with each result written over an argument of its size; `_mix` reads all of them before it writes."""
    kernel, types = kernel_of(function), fields_of(function.body.type)
    given = [p.var_type for p in function.params]
    pairs = [
        (j, len(types) + n) for j, r in enumerate(types) for n, t in enumerate(given) if nbytes_of(t) == nbytes_of(r)
    ]
    return replace(kernel, over=tuple(pairs))


def few_shapes(rng: Rng, size: int) -> Function:
    """Groups whose results often have the size of an argument, so that they may be written over it."""
    x = Var("x", TensorType((2, 6), "int64"))
    values: list[Expr] = [x, Constant(rng.integers(0, 99, (3, 4)))]
    for k in range(size):
        args = [values[-int(min(rng.geometric(0.5), len(values)))] for _ in range(int(rng.integers(1, 3)))]
        if rng.random() < 0.2:
            shape = (12,) if len(args[0].shape) == 2 else args[0].shape
            values.append(group(RESHAPE, args[:1], [shape] if np.prod(args[0].shape) == 12 else [args[0].shape], k))
        elif rng.random() < 0.2:
            pair = group(MIX, args, [(2, 6), (4, 3)], k)
            values += [TupleGetItem(pair, 1), TupleGetItem(pair, 0)]
        else:
            values.append(group(MIX, args, [(12,) if rng.random() < 0.7 else (20,)], k))
    outputs = [values[-1], *[values[int(k)] for k in rng.integers(2, len(values), int(rng.integers(0, 3)))]]
    return Function((x,), Tuple(tuple(outputs)) if len(outputs) > 1 else outputs[0])


@pytest.mark.parametrize("slack", [0, 3])
@pytest.mark.parametrize("make", [few_shapes, random_function])
def test_results_are_written_over_what_nobody_reads_any_more(
    make: Callable[[Rng, int], Function], slack: int
) -> None:  # fmt: skip
    """In any order that keeps the dependencies, in small memory and in large, with inputs and weights as they were."""
    taken = saved = 0
    for seed in range(40):
        rng = np.random.default_rng([15, seed])
        function = make(rng, int(rng.integers(2, 30)))
        plan, values = make_plan(function, over, 64, slack)
        given = {**{v.name: rng.integers(0, 50, v.shape) for v in function.params}, **values}
        want = evaluate(function, given)
        for _ in range(3):
            got = carry_out(plan, function, given, any_order(rng, dependencies(plan)))
            assert all((a == b).all() for a, b in zip(got, want, strict=True))
        assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
        taken += sum(len(set(s.storages)) < len(s.storages) and bool(set(s.written)) for s in plan.steps)
        saved += make_plan(function, kernel_of, 64, slack)[0].arena_bytes - plan.arena_bytes
        fixed = {p.storage for p in (*plan.inputs, *plan.params)}
        assert not any(plan.place(k)[0] in fixed for step in plan.steps for k in step.written)
    assert taken > 10 and (saved > 0 or make is random_function)  # of which few have the size of an argument


def test_a_result_over_what_is_still_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every argument counts as read for the last time, graphs give other results."""

    def all_at_once(values: Sequence[Value], calls: Sequence[KernelCall]) -> None:
        for k, call in enumerate(calls):
            kept = [(v, v.last) for v in values]
            for v in values:
                v.last = k
            take_over(values, [KernelCall("", (), (), ())] * k + [call])
            for v, last in kept:
                v.last = last

    monkeypatch.setattr(assemble, "take_over", all_at_once)
    wrong = 0
    for seed in range(40):
        rng = np.random.default_rng([15, seed])
        function = few_shapes(rng, int(rng.integers(2, 30)))
        plan, values = make_plan(function, over, 64)
        given = {**{v.name: rng.integers(0, 50, v.shape) for v in function.params}, **values}
        got = carry_out(plan, function, given)
        wrong += any((a != b).any() for a, b in zip(got, evaluate(function, given), strict=True))
    assert wrong > 10


def test_what_is_needed_before_an_output_lies_in_it() -> None:
    """Three steps of a size: the first result in the output, over which the last is written, if that is allowed."""
    x = Var("x", TensorType((4, 256), "int64"))
    body: Expr = x
    for k in (3, 6, 9):  # no scratch memory
        body = group(MIX, [body], [(4, 256)], k)
    plan, _ = make_plan(Function((x,), body), kernel_of, 64)
    first, second, third = [s.storages for s in plan.steps]
    assert first == (1, 0) and second[1] == 1 and third == (1, second[0])
    assert plan.arena_bytes == 4 * 256 * 8 + 64
    plan, _ = make_plan(Function((x,), body), over, 64)
    assert [s.storages for s in plan.steps] == [(1, 0), (1, 1), (1, 1)] and not plan.arena_bytes
