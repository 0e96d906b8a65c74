"""Instructions: published encodings, round trips, and what has no encoding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.vta_sim.streams import CONFIGS
from vta_sim import Config, IsaError
from vta_sim.core.kinds import AluOp, Memory, Module
from vta_sim.isa import (
    Alu,
    Deps,
    Finish,
    Gemm,
    Instruction,
    Load,
    Operation,
    Store,
    columns,
    decode,
    disassemble,
    encode,
    nop,
    pack_uops,
    unpack_uops,
)
from vta_sim.isa.fields import formats

VECTORS = [  # instruction, low word, high word, text
    (
        Instruction(Load(Memory.INP, 0x51, 0x400123, 8, 14, 28, y_pad_0=1, x_pad_1=1), Deps.POP_NEXT | Deps.PUSH_NEXT),
        0x000100048C014550,
        0x1001001C000E0008,
        "LOAD INP y8 x14/28 sram=0x51 dram=0x400123 pad=1,0,0,1 pop_next push_next",
    ),
    (
        Instruction(Store(98, 0x40012, 4, 98, 196), Deps.POP_PREV | Deps.PUSH_PREV),
        0x0000100048018A29,
        0x000000C400620004,
        "STORE OUT y4 x98/196 sram=0x62 dram=0x40012 pop_prev push_prev",
    ),
    (
        Instruction(
            Gemm(14, 56, 7, 3, dst_factor_out=1, src_factor_out=1, src_factor_in=1, wgt_factor_in=1),
            Deps.POP_PREV | Deps.PUSH_PREV,
        ),
        0x0006003807000E2A,
        0x0040000200400001,
        "GEMM uops[14,56) 7(dst+1 src+1) x 3(src+1 wgt+1) pop_prev push_prev",
    ),
    (
        Instruction(Gemm(0, 7, 7, 2, dst_factor_out=1, dst_factor_in=49, reset=True), Deps.PUSH_PREV),
        0x0004003800E000A2,
        0x0000000000018801,
        "GEMM reset uops[0,7) 7(dst+1) x 2(dst+49) push_prev",
    ),
    (
        Instruction(
            Alu(AluOp.SHR, 8191, 8192, 1, 98, dst_factor_in=1, src_factor_in=1, use_imm=True, imm=8),
            Deps.PUSH_NEXT,
        ),
        0x00C4000C001FFF44,
        0x0008B00200000800,
        "ALU shr imm 8 uops[8191,8192) 1 x 98(dst+1 src+1) push_next",
    ),
    (
        Instruction(Alu(AluOp.SHR, 0, 1, 1, 98, dst_factor_in=1, src_factor_in=1, use_imm=True, imm=-4)),
        0x00C4000800200004,
        0xFFFCB00200000800,
        "ALU shr imm -4 uops[0,1) 1 x 98(dst+1 src+1)",
    ),
    (Instruction(Finish()), 3, 0, "FINISH"),
]


@pytest.mark.parametrize(("instruction", "low", "high", "text"), VECTORS, ids=lambda v: v if isinstance(v, str) else "")
def test_published_encodings(instruction: Instruction, low: int, high: int, text: str) -> None:
    words = encode(Config(), [instruction])
    assert words.tolist() == [[low, high]]
    assert decode(Config(), words) == [instruction]
    assert disassemble([instruction]).split() == ["0", *text.split()]


def test_published_micro_ops() -> None:
    uops = pack_uops(Config(), [7, 2047], [9, 1], [3, 1023])
    assert uops.tolist() == [0x00C04807, 0xFFC00FFF]


def random_operation(rng: np.random.Generator, config: Config) -> Operation:
    """Any numbers that fit, the extremes often."""
    form = formats(config)

    def values(fields: tuple, *without: str) -> dict[str, int]:  # type: ignore[type-arg]
        chosen = {}
        for f in fields:
            if f.name not in without:
                low, high = f.range
                chosen[f.name] = int(rng.choice([low, high, int(rng.integers(low, high + 1))]))
        return chosen

    match int(rng.integers(5)):
        case 0:
            return Load(Memory(int(rng.integers(6))), **values(form.mem, "memory"))
        case 1:
            return Store(**values(form.mem[:6], "memory"))
        case 2:
            return Gemm(**values(form.gemm, "reset"), reset=bool(rng.integers(2)))
        case 3:
            fields = values(form.alu, "reset", "alu_opcode", "use_imm")
            flags = {"use_imm": bool(rng.integers(2)), "reset": bool(rng.integers(2))}
            return Alu(AluOp(int(rng.integers(5))), **fields, **flags)  # type: ignore[arg-type]
        case _:
            return Finish()


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(sorted(CONFIGS)))
def test_encode_then_decode(seed: int, name: str) -> None:
    rng, config = np.random.default_rng(seed), CONFIGS[name]
    program = [Instruction(random_operation(rng, config), Deps(int(rng.integers(16)))) for _ in range(20)]
    words = encode(config, program)
    assert decode(config, words) == program
    assert encode(config, decode(config, words)).tolist() == words.tolist()
    limits = [f.range[1] + 1 for f in formats(config).uop]
    indices = [rng.integers(0, limit, 50) for limit in limits]
    for before, after in zip(indices, unpack_uops(config, pack_uops(config, *indices)), strict=True):
        assert before.tolist() == after.tolist()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_fields_are_disjoint(config: Config) -> None:
    form = formats(config)
    assert sum(f.width for f in form.uop) == 32
    for fields in (form.mem, form.gemm, form.alu):
        used = [bit for f in (*form.header, *fields) for bit in range(f.low, f.low + f.width)]
        assert len(used) == len(set(used)) and max(used) < 128
        assert all(f.low // 64 == (f.low + f.width - 1) // 64 for f in fields)


GEMM, ALU, LOAD = Gemm(0, 1), Alu(AluOp.ADD, 0, 1), Load(Memory.INP, 0, 0, 1, 1, 1)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (replace(GEMM, uop_bgn=8192), r"GEMM: uop_bgn must lie in 0..8191, its field has 13 bits, got found=8192"),
        (replace(GEMM, iter_in=1 << 14), r"GEMM: iter_in must lie in 0..16383"),
        (replace(GEMM, wgt_factor_in=1024), r"GEMM: wgt_factor_in must lie in 0..1023"),
        (replace(ALU, imm=1 << 15), r"ALU: imm must lie in -32768..32767"),
        (replace(ALU, src_factor_out=2048), r"ALU: src_factor_out must lie in 0..2047"),
        (replace(LOAD, y_pad_0=16), r"LOAD: y_pad_0 must lie in 0..15"),
        (replace(LOAD, sram_base=-1), r"LOAD: sram_base must lie in 0..65535"),
        (Store(0, 1 << 32, 1, 1, 1), r"STORE: dram_base must lie in 0..4294967295"),
        (Store(0, 0, 1, 65536, 1), r"STORE: x_size must lie in 0..65535"),
    ],
)
def test_numbers_that_do_not_fit(operation: Operation, message: str) -> None:
    with pytest.raises(IsaError, match=message):
        encode(Config(), [Instruction(nop(Module.LOAD)), Instruction(operation)])


def test_indices_that_do_not_fit() -> None:
    with pytest.raises(IsaError, match=r"micro-op: the index wgt must lie in 0..1023, got found=\[1024\]"):
        pack_uops(Config(), [0, 0], [0, 0], [3, 1024])
    with pytest.raises(IsaError, match="the index dst"):
        pack_uops(Config(), [-1], [0], [0])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (5, r"instruction \[1\]: there is no such opcode, got found=\[5\]"),
        (6 << 7, "there is no such memory"),
        (7 << 7 | 1, "there is no such memory"),
    ],
)
def test_bits_that_are_no_instruction(word: int, message: str) -> None:
    words = np.array([[3, 0], [word, 0]], np.uint64)
    with pytest.raises(IsaError, match=message):
        columns(Config(), words)
    with pytest.raises(IsaError, match="no such ALU operation"):
        columns(Config(), np.array([[4, 5 << 44]], np.uint64))
    with pytest.raises(IsaError, match="a store reads the memory OUT and has no padding"):
        decode(Config(), np.array([[1, 0]], np.uint64))


def test_nops_in_a_listing() -> None:
    assert [disassemble([Instruction(nop(m))]).split()[1] for m in Module] == [
        "NOP-LOAD-STAGE",
        "NOP-COMPUTE-STAGE",
        "NOP-STORE-STAGE",
    ]
