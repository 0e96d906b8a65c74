"""The fast simulator does to every memory what the naive one does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.vta_sim.conv import buffer_of
from tests.vta_sim.streams import CONFIGS, Stream, fill_dram
from vta_sim import Config, Device, MachineError
from vta_sim.core.kinds import AluOp, Memory
from vta_sim.isa import Alu, Finish, Gemm, Instruction, Load, Operation, encode, pack_uops
from vta_sim.sim import Counters, Dram, Launch
from vta_sim.sim.naive import NaiveMachine

GOLDEN = Path(__file__).parent.parent / "golden" / "vta"


class Pair:
    """Both machines with equal memories."""

    def __init__(self, config: Config, rng: np.random.Generator, seed: int = 0) -> None:
        self.config = config
        self.fast = Device(config)
        self.fast.dram, self.base = fill_dram(np.random.default_rng(seed), config)
        dram, _ = fill_dram(np.random.default_rng(seed), config)
        self.naive = NaiveMachine(config, dram)
        for memory in (Memory.INP, Memory.WGT):
            self.write(memory, rng.integers(-128, 128, self.naive.sram[memory].shape, dtype=np.int8))
        acc = rng.integers(-(1 << 31), 1 << 31, self.naive.sram[Memory.ACC].shape)
        self.write(Memory.ACC, acc)

    def write(self, memory: Memory, values: Any) -> None:
        self.naive.sram[memory][: len(values)] = values
        getattr(self.fast.sram, memory.name.lower())[: len(values)] = values

    def run(self, program: list[Instruction], rng: np.random.Generator | None = None) -> Launch:
        words = encode(self.config, program)
        code = buffer_of(self.fast, words)
        launch = self.fast.launch(code.address, len(program), rng)
        self.fast.dram.free(code)
        self.naive.execute(program, launch.order)
        return launch

    def check(self) -> None:
        fast, naive = self.fast.sram, self.naive.sram
        for memory, found in ((Memory.UOP, fast.uop), (Memory.INP, fast.inp), (Memory.WGT, fast.wgt)):
            np.testing.assert_array_equal(found, naive[memory], err_msg=memory.name)
        np.testing.assert_array_equal(fast.acc, naive[Memory.ACC], err_msg="ACC")
        for memory, base in self.base.items():
            start = base * self.config.elem_bytes(memory)
            mine, theirs = (d.find(start, 1)[0] for d in (self.fast.dram, self.naive.dram))
            np.testing.assert_array_equal(mine.data, theirs.data, err_msg=f"DRAM of {memory.name}")


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(sorted(set(CONFIGS) - {"default"})))
def test_random_programs(seed: int, name: str) -> None:
    rng, config = np.random.default_rng(seed), CONFIGS[name]
    pair = Pair(config, rng)
    stream = Stream(rng, config, pair.base)
    for _ in range(2):
        pair.run(stream.program(25), rng)
        pair.check()


def test_random_programs_of_the_default_machine() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pair = Pair(Config(), rng)
        pair.run(Stream(rng, Config(), pair.base).program(25), rng)
        pair.check()


def run_one(pair: Pair, operation: Operation) -> None:
    pair.run([Instruction(operation), Instruction(Finish())])
    pair.check()


@pytest.mark.parametrize("use_imm", [True, False], ids=["imm", "register"])
@pytest.mark.parametrize("op", AluOp)
def test_hazards_of_the_alu(op: AluOp, use_imm: bool) -> None:
    """Chains, swaps and repeated registers inside one instruction."""
    config, rng = CONFIGS["block 4"], np.random.default_rng(3)
    for dst, src in (
        ([0, 1, 2, 3], [1, 2, 3, 0]),
        ([1, 2, 3], [0, 1, 2]),
        ([5, 5, 5], [5, 4, 5]),
        ([2, 3, 2], [3, 2, 3]),
    ):
        for factors in ((0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 2, 0), (1, 1, 1, 1)):
            pair = Pair(config, rng)
            pair.write(Memory.UOP, pack_uops(config, dst, src, 0))
            run_one(pair, Alu(op, 0, len(dst), 3, 2, *factors, use_imm=use_imm, imm=int(rng.integers(-40, 40))))


def test_sums_wrap_and_long_sums_are_exact() -> None:
    """One accumulator gathers more products than float32 can hold, all of them extreme."""
    config = CONFIGS["block 4"]
    pair = Pair(config, np.random.default_rng(5))
    pair.fast.sram.inp[...] = pair.naive.sram[Memory.INP][...] = -128
    pair.fast.sram.wgt[...] = pair.naive.sram[Memory.WGT][...] = -128
    for value in (127, -128):
        pair.write(Memory.INP, np.full((1, 1, 4), value, np.int8))
        pair.write(Memory.ACC, np.full((9, 1, 4), (1 << 31) - 5, np.int32))
        pair.write(Memory.UOP, pack_uops(config, [0, 1, 0], [0, 1, 2], [0, 1, 1]))
        run_one(pair, Gemm(0, 3, 41, 9, 0, 0, 0, 1, 1, 0))
        run_one(pair, Gemm(0, 1, 300, 3, 0, 1, 0, 0, 0, 0))


def test_a_sum_beyond_int32() -> None:
    config = CONFIGS["block 4"]
    pair = Pair(config, np.random.default_rng(5))
    pair.fast.sram.inp[...] = pair.fast.sram.wgt[...] = -128
    pair.fast.sram.acc[...] = 11
    words = encode(config, [Instruction(Gemm(0, 1, 400, 150)), Instruction(Finish())])
    pair.fast.launch(buffer_of(pair.fast, words).address, 2)
    expected = 60_000 * 4 * 128 * 128 + 11
    assert expected > 1 << 31 and pair.fast.sram.acc[0].tolist() == [[expected - (1 << 32)] * 4]


def test_equal_instructions_on_other_micro_ops() -> None:
    """What an instruction does depends on the micro-ops that it finds, and on each of its bits but those of tokens."""
    config = CONFIGS["block 4"]
    pair = Pair(config, np.random.default_rng(8))
    load = Load(Memory.UOP, 0, pair.base[Memory.UOP], 1, 3, 3)
    again = replace(load, dram_base=load.dram_base + 5)
    gemm, add = Gemm(0, 3, 2, 1, 1), Alu(AluOp.ADD, 0, 3, 2, 1, 1)
    operations = [load, gemm, add, again, gemm, add, load, replace(gemm, reset=True)]
    program = [Instruction(op) for op in [*operations, Finish()]]
    pair.run(program)
    pair.check()


def test_counters_of_accumulators() -> None:
    """Accumulators count the bytes that they fill, and padding counts nothing."""
    config = CONFIGS["batch 2"]
    pair = Pair(config, np.random.default_rng(9))
    loads = [Load(m, 0, pair.base[m], 2, 3, 4, 1, 1, 1, 1) for m in (Memory.ACC, Memory.ACC_8BIT)]
    launch = pair.run([Instruction(op) for op in (*loads, Finish())])
    pair.check()
    assert launch.counters == Counters(acc_load_nbytes=2 * 6 * 32)


def test_an_instruction_larger_than_one_layout() -> None:
    """More iterations than are laid out at once; every accumulator is clearly hit in several parts."""
    config = CONFIGS["block 4"]
    pair = Pair(config, np.random.default_rng(6))
    pair.write(Memory.UOP, pack_uops(config, [0, 1, 2], [0, 1, 2], 0))
    before = pair.fast.sram.acc.copy()
    total = 300 * 100 * 3
    assert total > 1 << 16
    words = encode(
        config,
        [
            Instruction(Gemm(0, 3, 300, 100)),
            Instruction(Alu(AluOp.ADD, 0, 3, 300, 100, use_imm=True, imm=7)),
            Instruction(Finish()),
        ],
    )
    pair.fast.launch(buffer_of(pair.fast, words).address, 3)
    inp, wgt = pair.fast.sram.inp[:3].astype(np.int64), pair.fast.sram.wgt[0].astype(np.int64)
    expected = before.astype(np.int64)
    expected[:3] += 30_000 * (inp @ wgt.T + 7)
    np.testing.assert_array_equal(pair.fast.sram.acc, expected.astype(np.int32))


def signed(text: str, bits: int) -> int:
    value = int(text, 16)
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda p: p.stem)
def test_published_gemm_vectors(path: Path) -> None:
    data = json.loads(path.read_text())
    inst = {key: int(value, 16) for key, value in data["inst"].items()}
    pair = Pair(Config(), np.random.default_rng(0))

    def rows(name: str, bits: int) -> list[list[int]]:
        assert [int(row["idx"], 16) for row in data[name]] == list(range(len(data[name])))
        return [[signed(x, bits) for x in row["vec"]] for row in data[name]]

    pair.write(Memory.INP, np.reshape(rows("inp", 8), (-1, 1, 16)))
    pair.write(Memory.WGT, np.reshape(rows("wgt", 8), (-1, 16, 16)))
    pair.write(Memory.ACC, np.reshape(rows("acc_i", 32), (-1, 1, 16)))
    pair.write(Memory.UOP, pack_uops(Config(), *np.array(rows("uop", 32)).T))
    factors = [inst[f"{name}_{k}"] for name in ("acc", "inp", "wgt") for k in (0, 1)]
    run_one(
        pair, Gemm(inst["uop_begin"], inst["uop_end"], inst["lp_0"], inst["lp_1"], *factors, reset=bool(inst["reset"]))
    )
    expected = np.reshape(rows("acc_o", 32), (-1, 1, 16))
    np.testing.assert_array_equal(pair.fast.sram.acc[: len(expected)], expected)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Gemm(0, 1, 2048, 2, dst_factor_out=1, dst_factor_in=1), "the index dst of a micro-op must stay below 2048"),
        (Gemm(0, 1, 2049, 1, src_factor_out=1), "the index src of a micro-op must stay below 2048, .* of INP"),
        (Gemm(0, 1, 1025, 1, wgt_factor_out=1), "the index wgt of a micro-op must stay below 1024"),
        (
            Alu(AluOp.ADD, 0, 1, 2049, 1, src_factor_out=1),
            "the index src of a micro-op must stay below 2048, .* of ACC",
        ),
    ],
)
def test_indices_past_a_memory(operation: Operation, message: str) -> None:
    pair = Pair(Config(), np.random.default_rng(0))
    program = [Instruction(operation), Instruction(Finish())]
    with pytest.raises(MachineError, match=message):
        pair.run(program)
    with pytest.raises(MachineError, match="the address must stay below"):
        pair.naive.execute(program, [0])


def test_a_reset_reads_neither_inputs_nor_weights() -> None:
    run_one(
        Pair(Config(), np.random.default_rng(0)),
        Gemm(0, 1, 3000, 1, src_factor_out=1, wgt_factor_out=1, reset=True),
    )


def test_addresses_of_dram() -> None:
    """The layout at the start, first fit, and what is refused."""
    dram = Dram()
    first, second, third = (dram.alloc(size) for size in (1 << 25, 1 << 25, 5))
    assert [b.address for b in (first, second, third)] == [0x1000, 0x02001000, 0x04001000]
    small, gap = dram.alloc(4097), dram.alloc(1)
    assert (small.address, gap.address) == (0x04002000, 0x04004000)
    dram.free(small)
    dram.free(third)
    assert dram.alloc(4096).address == 0x04001000 and dram.alloc(8192).address == 0x04002000
    for start, size in ((0, 1), (0xFFF, 2), (0x1000, (1 << 25) + 1), (0x04004001, 1), (1 << 40, 1)):
        with pytest.raises(MachineError, match="DRAM: no buffer holds bytes"):
            dram.find(start, size)
        with pytest.raises(MachineError, match="DRAM: no buffer holds bytes"):
            dram.locate(np.array([0x1000, start]), np.array([1, size]))
    for bad in (small, third):
        with pytest.raises(MachineError, match="only a living buffer can be freed"):
            dram.free(bad)
    with pytest.raises(MachineError, match="at least one byte"):
        dram.alloc(0)
    with pytest.raises(MachineError, match="the array must fit the buffer"):
        gap.write(np.zeros(2, np.int8))
    addresses = sorted(b.address for b in (first, second, gap))
    assert all(a < b for a, b in pairwise(addresses))
