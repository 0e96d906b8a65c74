"""The kernels of `benchmarks/copy_engine_ladder.py` on the block emulator, and faults planted in them: each is one edit
that makes a program race, hang or compute something else, and each is caught."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from benchmarks.copy_engine_ladder import Rung, emulated, rungs, source
from codegen_cuda.emulation.emulator_report import EmulatorError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
LAST = rungs()["stored by the copy engine"]
HALVES = 2e-3


@pytest.mark.parametrize("rung", rungs().values(), ids=rungs())
@pytest.mark.one_in(4)
def test_a_rung_computes_its_product(rung: Rung) -> None:
    error, _ = emulated(rung, 256, 512, 1)
    assert error <= HALVES


@pytest.mark.parametrize("check", [True, False])
def test_blocks_that_stay_share_the_parts(check: bool) -> None:
    error, _ = emulated(LAST, 512, 64, 3, check=check)
    assert error <= HALVES


ASK = "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;"
READ_WAIT = 'if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");\n'
LAST_WAIT = 'if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");'
FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
RELEASE = "if (lane == 0 && step >= GOING_ON) arrive(empty + 8 * ((turn - GOING_ON) % STAGES));"
FIRST = 'asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full));'
BYTES = '"r"((int)STAGE)'
IN_FLIGHT = "whose asynchronous copy was not waited for"
FAULTS = {
    "a consumer does not wait": ("await(full + 8 * s, turn / STAGES & 1);", "", IN_FLIGHT),
    "a wait is not repeated": (ASK, ASK.removeprefix("again: ").removesuffix(" @!p bra again;"), "once too often"),
    "the parity of a consumer": ("await(full + 8 * s, turn / STAGES & 1)", "await(full + 8 * s, 1)", IN_FLIGHT),
    "the parity of the producer": ("(turn / STAGES & 1) ^ 1", "turn / STAGES & 1", "deadlock: .*8 of 8 arrivals"),
    "the producer does not wait": ("await(empty + 8 * s, (turn / STAGES & 1) ^ 1);", "", "once too often"),
    "tiles over the barriers": ("tiles = full + 1024", "tiles = full", "where a barrier is in use"),
    "too many bytes": (BYTES, '"r"((int)STAGE + 16)', "deadlock: .*byte 0 .*lacks 0 of 1 arrivals and 16 bytes"),
    "too few bytes": (BYTES, '"r"((int)STAGE - 8192)', "expects 40960 bytes, and 49152 are on their way"),
    "a box is not fetched": ("COLUMNS / 64; ++j)\n          fetch", "3; ++j)\n          fetch", "and 8192 bytes"),
    "a warp too few": ("[%0], 8;", "[%0], 9;", "deadlock: .*lacks 1 of 9 arrivals"),
    "released while it is read": (RELEASE, "if (lane == 0) arrive(empty + 8 * (turn % STAGES));", IN_FLIGHT),
    "released by one warp for its group": (
        RELEASE, RELEASE.replace("lane == 0", "thread == 0").replace("arrive", "for (int w = 0; w < 4; ++w) arrive"),
        "which tensor cores read without a barrier between",
    ),
    "no wait for the last products": ('asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");', "", IN_FLIGHT),
    "barriers that no fence made known": ('asm volatile("fence.mbarrier_init.release.cluster;");', "", "without fence"),
    "barriers that others do not know": ("  __syncthreads();\n", "", "initialises without a barrier between"),
    "a barrier twice": ("s < STAGES; ++s) {\n", "s < STAGES; ++s) {\n" + FIRST, "barrier at byte 0 of .* again"),
    "no barrier": ('asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(empty + 8 * s));', "",
                   "at byte 64 of .*, where none was initialised"),
    "a box without the proxy fence": (FENCE, "", "without fence.proxy.async"),
    "a box that is overwritten": (READ_WAIT, "", "writes it before wait_group.read"),
    "a wait that lets two boxes be": ("wait_group.read 1", "wait_group.read 2", "writes it before wait_group.read"),
    "a wait that others do not hear of": (READ_WAIT + "      together(group);", READ_WAIT, "read without a barrier"),
    "a box that is not full": ("      together(group);\n      if", "      if", "wrote without a barrier between"),
    "a block that ends too early": (LAST_WAIT, "", "wait_group.read is missing"),
    "no fence for registers": ('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', "", "without wgmma.fence"),
    "registers": ("u32 40", "u32 44", "44 registers a thread"),
    "a tile at 64 bytes": ("full + 1024", "full + 1088", "misaligned"),
    "memory that is aligned by chance": ("__align__(1024)", "__align__(64)", "misaligned"),
}  # fmt: skip


def _spoilt(old: str, new: str) -> str:
    text = source()
    assert old in text
    return text.replace(old, new)


def test_products_that_begin_before_their_tile_has_come_are_reported() -> None:
    """They read it when it is there, as late as they may; they were begun by threads that did not know so."""
    wait, commit = "await(full + 8 * s, turn / STAGES & 1);", 'asm volatile("wgmma.commit_group'
    text = _spoilt(wait, "").replace(commit, f"{wait}\n{commit}")
    with pytest.raises(EmulatorError, match="which the copy engine wrote without a barrier between"):
        emulated(LAST, 256, 64, 1, text)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.one_in(12)
def test_a_fault_is_reported(name: str) -> None:
    old, new, message = FAULTS[name]
    with pytest.raises(EmulatorError, match=message):
        emulated(LAST, 256, 320, 1, _spoilt(old, new))


def test_sums_that_are_not_waited_for_are_no_numbers() -> None:
    wait = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'
    error, _ = emulated(LAST, 256, 128, 1, _spoilt(wait, f"float early = sums[0]; {wait} sums[0] = early;"))
    assert np.isnan(error)


def test_memory_may_be_aligned_by_hand() -> None:
    text = _spoilt("__align__(1024)", "__align__(16)").replace("full = at(room)", "full = at(room) + 1023 & ~1023u")
    error, _ = emulated(LAST, 256, 64, 1, f"#undef STAGES\n#define STAGES 3\n{text}")  # one less: room to round up
    assert error <= HALVES


WRONG = {
    "no swizzle where a box is written": ("((unit ^ y % 8) << 4)", "(unit << 4)"),
    "no swizzle where a tile is read": ("1ull << 62", "0ull << 62"),
    "groups of eight rows": ("64ull << 32", "32ull << 32"),
    "columns that are further": ("q * 2048, 8192)", "q * 2048, 4096)"),
    "a wrong step": ("+ 2 * q", "+ 4 * q"),
    "tiles at any 128 bytes": ("__align__(1024)", "__align__(128)"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.one_in(4)
def test_a_wrong_layout_is_seen(name: str) -> None:
    try:
        error, _ = emulated(LAST, 256, 128, 1, _spoilt(*WRONG[name]))
    except EmulatorError as found:
        assert "crash" in str(found)
    else:
        assert not error < 0.1
