"""Tokens: who waits for whom, deadlocks, and the orders that are allowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.vta_sim.conv import Layer, buffer_of, tiles_of
from tests.vta_sim.packed import ConvProgram
from tests.vta_sim.streams import CONFIGS, Stream, fill_dram
from vta_sim import Config, DeadlockError, Device, MachineError
from vta_sim.core.kinds import NO_DEPS, Memory, Module
from vta_sim.isa import Deps, Finish, Gemm, Instruction, Load, Store, columns, encode, nop
from vta_sim.sim import PYNQ, Launch, timing
from vta_sim.sim.tokens import NEVER, NONE, order, waits

LOAD, COMPUTE, STORE = Module.LOAD, Module.COMPUTE, Module.STORE
END = Instruction(Finish())


def start(program: list[Instruction], device: Device | None = None) -> Launch:
    device = device or Device()
    return device.launch(buffer_of(device, encode(Config(), program)).address, len(program))


def token(module: Module, deps: Deps = NO_DEPS) -> Instruction:
    return Instruction(nop(module), deps)


def test_the_kth_pop_waits_for_the_kth_push() -> None:
    program = [
        token(LOAD, Deps.PUSH_NEXT),
        token(COMPUTE, Deps.POP_PREV),
        token(COMPUTE, Deps.POP_PREV | Deps.POP_NEXT | Deps.PUSH_PREV),
        token(LOAD, Deps.PUSH_NEXT),
        token(STORE, Deps.PUSH_PREV),
        token(LOAD, Deps.PUSH_NEXT | Deps.POP_NEXT),
        END,
    ]
    needs = waits(columns(Config(), encode(Config(), program)))
    assert needs.before.tolist()[1:3] == [[0, NONE], [3, 4]] and needs.before.tolist()[5] == [NONE, 2]
    assert needs.left == {(LOAD, COMPUTE): 1, (COMPUTE, LOAD): 0, (COMPUTE, STORE): 0, (STORE, COMPUTE): 0}
    assert start(program).order[-1] == 6


def test_tokens_outlive_a_launch() -> None:
    device = Device()
    start([token(LOAD, Deps.PUSH_NEXT), END], device)
    assert device.tokens[LOAD, COMPUTE] == 1
    start([token(COMPUTE, Deps.POP_PREV), END], device)
    assert device.tokens[LOAD, COMPUTE] == 0
    with pytest.raises(DeadlockError):
        start([token(COMPUTE, Deps.POP_PREV), END], device)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            [token(COMPUTE, Deps.POP_PREV), END],
            r"deadlock after 0 of 2 instructions: compute waits at instruction 0 for a token load->compute$",
        ),
        (
            [token(LOAD, Deps.POP_NEXT | Deps.PUSH_NEXT), token(COMPUTE, Deps.POP_PREV | Deps.PUSH_PREV), END],
            "load waits at instruction 0 for a token compute->load; "
            "compute waits at instruction 1 for a token load->compute",
        ),
        (
            [token(STORE), token(COMPUTE, Deps.POP_PREV | Deps.POP_NEXT), token(STORE, Deps.POP_PREV), END],
            "deadlock after 1 of 4 instructions: compute waits at instruction 1 for a token load->compute and "
            "store->compute; store waits at instruction 2 for a token compute->store",
        ),
        (
            [token(LOAD, Deps.PUSH_NEXT), token(COMPUTE, Deps.POP_PREV | Deps.POP_NEXT), END],
            "compute waits at instruction 1 for a token store->compute$",
        ),
    ],
)
def test_deadlocks_are_named(program: list[Instruction], message: str) -> None:
    with pytest.raises(DeadlockError, match=message):
        start(program)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ([token(LOAD, Deps.POP_PREV), END], r"instruction \[0\]: load cannot pop_prev or push_prev"),
        ([END, token(LOAD, Deps.PUSH_PREV)], "load cannot"),
        ([token(STORE, Deps.POP_NEXT), END], "store cannot pop_next or push_next"),
        ([token(STORE, Deps.PUSH_NEXT), END], "store cannot"),
        ([token(STORE)], "FINISH must be the last instruction"),
        ([END, token(STORE)], "FINISH must be the last instruction"),
        ([END, END], "FINISH must be the last instruction"),
        ([Instruction(Finish(), Deps.POP_PREV)], "FINISH: cannot wait for a token"),
        ([Instruction(Load(Memory.OUT, 0, 0x400, 1, 1, 1)), END], r"instruction \[0\]: OUT cannot be loaded"),
        ([Instruction(Load(Memory.UOP, 0, 0x400, 1, 1, 1, y_pad_1=1)), END], "micro-ops has no padding"),
        (
            [Instruction(Load(Memory.INP, 2047, 0x100, 1, 2, 2)), END],
            "instruction 0: the elements end at 2049, INP has",
        ),
        ([Instruction(Load(Memory.INP, 2047, 0x100, 1, 1, 1, x_pad_1=1)), END], "end at 2049, INP has 2048"),
        ([Instruction(Load(Memory.INP, 2047, 0x100, 1, 1, 1, y_pad_1=1)), END], "end at 2049, INP has 2048"),
        ([Instruction(Load(Memory.ACC_8BIT, 2047, 0x100, 2, 1, 1)), END], "ACC_8BIT has 2048"),
        ([Instruction(Store(2000, 0x100, 7, 7, 7)), END], "the elements end at 2049, OUT has 2048"),
        ([Instruction(Store(0, 0x100, 2, 1, 300)), END], "DRAM: no buffer holds bytes"),
        ([Instruction(Load(Memory.WGT, 0, 0, 1, 1, 1)), END], r"DRAM: no buffer holds bytes \[0x0, 0x100\)"),
    ],
)
def test_what_no_program_may_do(program: list[Instruction], message: str) -> None:
    device = Device()
    device.dram.alloc(256)
    with pytest.raises(MachineError, match=message):
        start(program, device)
    assert not device.sram.acc.any() and not device.sram.inp.any()


def test_uop_range_and_empty_launch() -> None:
    with pytest.raises(MachineError, match=r"instruction \[0\]: the micro-ops end past UOP, which has 8192"):
        start([Instruction(Gemm(8191, 8193)), END])
    with pytest.raises(MachineError, match="a program needs at least one instruction"):
        Device().launch(0x1000, 0)


@examples(40)
@given(st.integers(0, 2**32))
def test_orders_respect_modules_and_tokens(seed: int) -> None:
    rng, config = np.random.default_rng(seed), CONFIGS["block 4"]
    _, base = fill_dram(rng, config)
    program = Stream(rng, config, base).program(40)
    c = columns(config, encode(config, program))
    needs = waits(c)
    times = []
    for _ in range(3):
        found = order(c, needs, rng)
        assert sorted(found) == list(range(len(program))) and found[-1] == len(program) - 1
        place = np.argsort(found)
        for module in Module:
            assert (np.diff(place[c.module == module]) > 0).all()
        for i, before in enumerate(needs.before.tolist()):
            assert NEVER not in before and all(place[b] < place[i] for b in before if b >= 0)
        times.append(timing(c, needs, found))
    assert all((t.start == times[0].start).all() for t in times), "the clock does not depend on the order"


def test_a_program_with_all_its_tokens_has_one_result() -> None:
    layer, tiles = Layer(8, 32, 64, 3, 1, 1), tiles_of(4, 8, 1, 2, 2, 1)
    for seed in range(6):
        program = ConvProgram(Device(), layer, tiles)
        expected = program.fill(np.random.default_rng(0))
        program.run(np.random.default_rng(seed))
        np.testing.assert_array_equal(program.result(), expected)


def test_a_lost_token_is_seen_by_a_random_order() -> None:
    """Without the tokens that guard the inputs, some order overwrites them too early."""
    layer, tiles = Layer(8, 32, 64, 3, 1, 1), tiles_of(4, 8, 1, 2, 2, 1)
    program = ConvProgram(Device(), layer, tiles)
    expected = program.fill(np.random.default_rng(0))
    launch = program.run()
    words = launch.columns.words.copy()
    words[launch.columns.module == LOAD, 0] &= ~np.uint64(1 << 4)  # loads wait for nobody
    code = buffer_of(program.device, words)
    wrong = 0
    for seed in range(8):
        program.poison()
        program.device.launch(code.address, len(words), np.random.default_rng(seed))
        wrong += not np.array_equal(program.result(), expected)
    assert wrong > 0


def test_the_clock_of_a_small_program() -> None:
    """Two loads, one of them hidden behind a computation; figures by hand."""
    dep = Deps.PUSH_NEXT
    program = [
        Instruction(Load(Memory.INP, 0, 0x100, 2, 4, 8), dep),
        Instruction(Load(Memory.WGT, 0, 0x10, 3, 1, 1)),
        token(COMPUTE, Deps.POP_PREV | Deps.PUSH_NEXT),
        Instruction(Store(0, 0x100, 2, 4, 4), Deps.POP_PREV),
        END,
    ]
    c = columns(Config(), encode(Config(), program))
    needs = waits(c)
    found = timing(c, needs, order(c, needs))
    first = 100 + 2 * 30 + 8 * 16 / 8
    second = 100 + 30 + 3 * 256 / 3.6
    store = 100 + 30 + 8 * 16 / 8
    np.testing.assert_allclose(found.start - 10_000, [0, first, first, first + 5, first + 5])
    np.testing.assert_allclose(found.end - 10_000, [first, first + second, first + 5, first + 5 + store, first + 10])
    assert found.cycles == pytest.approx(10_000 + first + second) and found.ms == pytest.approx(found.cycles / 1e5)
    with_host = timing(c, needs, order(c, needs), replace(PYNQ, host_ns_per_output=47.0))
    assert with_host.ms - found.ms == pytest.approx(8 * 16 * 47e-6)
    busy = found.busy(c)
    assert busy[LOAD] == pytest.approx((first + second) / found.cycles) and busy[STORE] < busy[LOAD]
