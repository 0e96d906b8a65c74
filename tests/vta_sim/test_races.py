"""Races are found, exactly those that all pairs of accesses have."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.vta_sim.conv import Layer, buffer_of, tiles_of
from tests.vta_sim.packed import ConvProgram
from tests.vta_sim.streams import CONFIGS, Stream, fill_dram
from vta_sim import Config, Device, MachineError
from vta_sim.core.kinds import Memory, Module
from vta_sim.isa import Alu, Columns, Gemm, Instruction, Load, Store, columns, encode
from vta_sim.isa.instruction import is_nop
from vta_sim.sim import Dram
from vta_sim.sim.naive import NaiveMachine
from vta_sim.sim.tokens import Waits, order, waits

SMALL = Layer(8, 32, 64, 3, 1, 1), tiles_of(4, 8, 1, 2, 2, 1)
Access = tuple[Memory, int, bool]


class Watching(NaiveMachine):
    """A machine that writes down what each instruction touches: (memory, element, whether it is written)."""

    def touched(self, op: object) -> set[Access]:
        self.log: set[Access] = set()
        if isinstance(op, Load) and not is_nop(op):
            target = Memory.ACC if op.memory is Memory.ACC_8BIT else op.memory
            size = (op.y_pad_0 + op.y_size + op.y_pad_1) * (op.x_pad_0 + op.x_size + op.x_pad_1)
            self.log |= {(target, op.sram_base + k, True) for k in range(size)}
        elif isinstance(op, Store):
            self.log |= {(Memory.ACC, op.sram_base + k, False) for k in range(op.y_size * op.x_size)}
        elif isinstance(op, Gemm | Alu):
            for d, s, w in self._iterations(op):
                self.log.add((Memory.ACC, d, True))
                if isinstance(op, Gemm) and not op.reset:
                    self.log |= {(Memory.INP, s, False), (Memory.WGT, w, False)}
        return self.log


def has_race(config: Config, dram: Dram, program: list[Instruction], c: Columns, needs: Waits, way: list[int]) -> bool:
    """All pairs: do two instructions of different modules conflict that no path of tokens connects?"""
    n = len(program)
    after = np.eye(n, dtype=bool)
    for module in Module:
        members = np.flatnonzero(c.module == module)
        after[members[1:], members[:-1]] = True
    for i, before in enumerate(needs.before.tolist()):
        for b in before:
            if b >= 0:
                after[i, b] = True
    for _ in range(8):
        after = after @ after
    machine, touched = Watching(config, dram), {}
    for i in way:
        touched[i] = machine.touched(program[i].op)
        machine.execute(program, [i])
    for a, b in combinations(range(n), 2):
        if c.module[a] != c.module[b] and not after[a, b] and not after[b, a]:
            for memory, element, writes in touched[a]:
                if (memory, element, True) in touched[b] or (writes and (memory, element, False) in touched[b]):
                    return True
    return False


@examples(60)
@given(st.integers(0, 2**32), st.integers(4, 24))
def test_random_programs(seed: int, length: int) -> None:
    rng, config = np.random.default_rng(seed), CONFIGS["block 4"]
    device = Device(config)
    device.dram, base = fill_dram(np.random.default_rng(seed), config)
    program = Stream(rng, config, base).program(length)
    words = encode(config, program)
    c = columns(config, words)
    needs = waits(c)
    way = order(c, needs, np.random.default_rng(seed))
    dram, _ = fill_dram(np.random.default_rng(seed), config)
    expected = has_race(config, dram, program, c, needs, way)
    device.finds_races = True
    code = buffer_of(device, words)
    race = r"race: instruction \d+ (reads|writes) elements of (INP|WGT|ACC) that"
    with pytest.raises(MachineError, match=race) if expected else nullcontext():
        device.launch(code.address, len(program), np.random.default_rng(seed))


def test_a_program_without_a_token_has_a_race_or_can_spare_it() -> None:
    """Take away one token of a convolution at a time."""
    program = ConvProgram(Device(), *SMALL)
    expected = program.fill(np.random.default_rng(0))
    launch = program.run()
    c, device = launch.columns, program.device
    races, spared = 0, 0
    for taker, before in enumerate(launch.waits.before.tolist()):
        for side, giver in enumerate(before):
            if giver < 0:
                continue
            words = c.words.copy()
            words[taker, 0] &= ~np.uint64(1 << 3 + side)
            words[giver, 0] &= ~np.uint64(1 << 6 - side)
            code = buffer_of(device, words)
            device.finds_races = True
            try:
                device.launch(code.address, len(words))
            except MachineError as error:
                assert str(error).startswith("race: ")
                races += 1
                continue
            device.finds_races = False
            spared += 1
            for seed in range(3):
                program.poison()
                device.launch(code.address, len(words), np.random.default_rng(seed))
                np.testing.assert_array_equal(program.result(), expected)
    assert races > spared > 0
