"""Tokens of compiled programs: any order of loads, products and stores in any loops is free of races and deadlocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from te_lite.expr.expr import Var
from te_lite.loops.stmt import Buffer
from tests.amount import examples
from tests.vta_sim.conv import BEST, LAYERS
from tests.vta_sim.packed import conv_of
from vta_sim import CommandQueue, Device, MachineError
from vta_sim.compiler import Program, compile_schedule
from vta_sim.compiler.affine import Form
from vta_sim.compiler.kernel_calls import KernelCall
from vta_sim.compiler.steps import Call, Node, Repeat, Step
from vta_sim.compiler.tokens import Ordered, OrderedLoop, ordered
from vta_sim.compiler.transfer import Side, Transfer
from vta_sim.core.errors import DeadlockError
from vta_sim.core.kinds import Memory, Module
from vta_sim.runtime.uop_kernel import GemmMode
from vta_sim.sim import Launch
from vta_sim.top import schedule_conv2d_packed

SOURCE, WEIGHTS, TARGET = (Buffer(name, "int8", (4 * 256,)) for name in ("source", "weights", "target"))
ONE = Side(None, 1, 1)


def copy(dram: Buffer, memory: Memory) -> Transfer:
    """A transfer of one element; each thread has its own."""
    return Transfer(memory.name, dram, memory, Form(0), Form(0), 1, ONE, ONE)


CALLS: dict[Module, tuple[Call, ...]] = {
    Module.LOAD: (copy(SOURCE, Memory.INP), copy(WEIGHTS, Memory.WGT)),
    Module.COMPUTE: (KernelCall("product", GemmMode(), (), (Form(0), Form(0), Form(0)), (1, 1, 1)),),
    Module.STORE: (copy(TARGET, Memory.OUT),),
}


def joined(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Steps of one module next to each other are one step, as the compiler makes them."""
    out: list[Node] = []
    for node in nodes:
        last = out[-1] if out else None
        if isinstance(node, Step) and isinstance(last, Step) and last.module is node.module:
            out[-1] = Step(node.module, last.calls + node.calls)
        else:
            out.append(node)
    return tuple(out)


step = st.sampled_from(list(Module)).map(lambda m: Step(m, CALLS[m]))
body = st.recursive(
    st.lists(step, min_size=1, max_size=5).map(joined),
    lambda inner: st.lists(
        step | st.builds(lambda n, b: Repeat(Var("i"), n, b), st.integers(1, 3), inner), min_size=1, max_size=4
    ).map(joined),
    max_leaves=10,
)


def launch(loop: OrderedLoop, threads: int, seed: int) -> Launch:
    """The program on a machine that finds races."""
    device = Device()
    device.finds_races = True
    program = Program(device.config, (SOURCE, WEIGHTS, TARGET), ((Var("t"), threads),), loop, frozenset({TARGET}))
    queue = CommandQueue(device)
    program.emit(queue, [device.dram.alloc(b.size) for b in program.args])
    return queue.synchronize(np.random.default_rng(seed))


def steps_run(loop: OrderedLoop) -> int:
    return loop.extent * sum(steps_run(x.node) if isinstance(x.node, OrderedLoop) else 1 for x in loop.body)


@examples(150)
@given(body, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_any_order_of_steps(nodes: tuple[Node, ...], threads: int, seed: int) -> None:
    """No race, no deadlock, and no token is left over."""
    loop = ordered(nodes)
    run = launch(loop, threads, seed)
    assert set(run.waits.left.values()) == {0}
    assert len(run.order) >= threads * steps_run(loop)


@examples(60)
@given(body)
def test_a_thread_is_in_order(nodes: tuple[Node, ...]) -> None:
    """With one thread every instruction begins after the one before it ended, whatever module does it."""
    run = launch(ordered(nodes), 1, 0)
    c = run.columns
    timing = run.timing()
    real = ~c.is_nop
    begins, ends = timing.start[real], timing.end[real]
    assert (begins[1:-1] >= ends[:-2]).all()


def without(loop: OrderedLoop, number: int) -> tuple[OrderedLoop, int]:
    """The loop without the joint number `number`: the pop of one of its nodes and the push before it."""
    items = list(loop.body)
    for k, item in enumerate(items):
        if isinstance(item.node, OrderedLoop):
            inner, number = without(item.node, number)
            items[k] = Ordered(item.pops, inner, item.pushes)
        elif item.pops and k > 0 and set(item.pops) <= set(items[k - 1].pushes):
            if number == 0:
                left = tuple([e for e in items[k - 1].pushes if e not in item.pops])
                items[k - 1] = Ordered(items[k - 1].pops, items[k - 1].node, left)
                items[k] = Ordered((), item.node, item.pushes)
            number -= 1
    return dataclasses.replace(loop, body=tuple(items)), number


@pytest.mark.parametrize("number", range(2))
def test_no_token_of_a_convolution_is_superfluous(number: int) -> None:
    """Whichever is left out, the machine finds a race (or the program gets stuck)."""
    tensors = conv_of(LAYERS["C11"]).requantized()
    program = compile_schedule(schedule_conv2d_packed(BEST["C11"], tensors[-1]), tensors)
    broken, left = without(program.body, number)
    assert left < 0, "there is no such token"
    device = Device()
    device.finds_races = True
    queue = CommandQueue(device)
    dataclasses.replace(program, body=broken).emit(queue, [device.dram.alloc(b.size) for b in program.args])
    with pytest.raises((MachineError, DeadlockError), match=r"race|deadlock"):
        queue.synchronize()
