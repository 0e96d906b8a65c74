"""Blocks that a multiprocessor holds: the scarcest of its resources decides, whichever that is."""

from __future__ import annotations

from dataclasses import replace

import pytest

import te_lite as te
from ansor.analytical import GPUS, seconds
from ansor.features.gpu_kernel import MULTIPROCESSOR, Multiprocessor
from ansor.space.programs import Programs
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.loop_steps import Annotate, Fuse, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite
from te_lite.schedule.state import State
from te_lite.schedule.step import Step
from tests.ansor.feature_values import rows_of
from tests.workloads import matmul

N = 256


def product(ti: int, tj: int, vi: int = 1, tk: int = 1) -> State:
    """A matrix product by blocks of ti * tj threads, `vi` sums a thread in local memory; tiles of A in shared memory.

    A block needs ti * vi * tk elements of shared memory and one register a sum.
    """
    steps: list[Step] = [
        CacheWrite(2, "local"), Split(3, 0, N, (ti, vi)), Split(3, 3, N, (tj,)), Reorder(3, (0, 3, 1, 4, 2)),
        Fuse(3, (0, 1)), Annotate(3, 0, "blockIdx.x"), Fuse(3, (1, 2)), Annotate(3, 1, "threadIdx.x"),
        ComputeAt(2, 3, 1), Split(2, 2, N, (tk,)), Reorder(2, (2, 3, 0, 1)),
        CacheRead(0, "shared", (2,)), ComputeAt(1, 3, 0),
    ]  # fmt: skip
    return replay(te.ComputeDAG(matmul(N, N, N)), steps)


def plain(threads: int) -> State:
    """An element-wise kernel: no shared memory, no sums."""
    a = te.placeholder((100 * threads,), name="A")
    steps: list[Step] = [
        Split(1, 0, 100 * threads, (threads,)),
        Annotate(1, 0, "blockIdx.x"),
        Annotate(1, 1, "threadIdx.x"),
    ]
    return replay(te.ComputeDAG([a, te.compute(a.shape, lambda i: a[i] * 2.0, name="B")]), steps)


CASES: dict[str, tuple[State, int, int, int]] = {
    "threads": (plain(480), 480, 0, 0),
    "blocks": (plain(32), 32, 0, 0),
    "registers": (product(8, 16, vi=16), 128, 4 * 8 * 16, 16),
    "shared": (product(8, 16, vi=16, tk=64), 128, 4 * 8 * 16 * 64, 16),
}
"""What is scarce: a state, the threads of a block, its bytes of shared memory, and the sums of a thread."""


@pytest.mark.parametrize("scarce", CASES)
def test_the_scarcest_resource_decides_the_occupancy(scarce: str) -> None:
    state, threads, shared, sums = CASES[scarce]
    m = MULTIPROCESSOR
    held = {
        "threads": m.threads // threads, "blocks": m.blocks, "shared": m.shared_bytes // (shared + m.reserved_bytes),
        "registers": m.registers // (8 * -(-(24 + sums) // 8) * threads),
    }  # fmt: skip
    least = held.pop(scarce)
    assert least < min(held.values())
    row = list(rows_of(state, "cuda").values())[-1]
    assert row["occupancy"] == pytest.approx(least * threads / m.threads)
    assert row["waves"] == pytest.approx(row["blocks"] / (least * m.count), rel=1e-4)
    for name, value in {**held, scarce: least}.items():
        assert name == "blocks" or row[f"blocks_by_{name}"] == pytest.approx(value, rel=1e-4)


def test_what_a_multiprocessor_shares_is_what_vendors_say() -> None:
    """Compute capability 9.0, CUDA C++ programming guide."""
    assert Multiprocessor(132, 2048, 32, 233472, 1024, 65536) == MULTIPROCESSOR


AMPLE = replace(
    GPUS["H200"], multiprocessors=1, threads=1 << 20, registers=1 << 26, shared=1 << 28, l1=1 << 32, blocks=1 << 10
)
"""A machine with room for all blocks of a small program at once."""
ONE_BLOCK = {"threads": 128, "registers": 128 * (24 + 16), "shared": 4 * 8 * 16 * 4 + 1024, "blocks": 1}


def estimate(**changes: int) -> float:
    bounds = infer_bounds(product(8, 16, vi=16, tk=4))
    return float(seconds(Programs(bounds), replace(AMPLE, **changes))[0])


@pytest.mark.parametrize("scarce", ONE_BLOCK)
def test_the_scarcest_resource_decides_the_estimate(scarce: str) -> None:
    """One resource that suffices for one block alone makes as slow as all four do; two blocks need twice as much."""
    alone = estimate(**ONE_BLOCK)
    for enough in (ONE_BLOCK[scarce], 2 * ONE_BLOCK[scarce] - 1):
        assert estimate(**{scarce: enough}) == pytest.approx(alone, rel=1e-9)
    assert alone > estimate(**{scarce: 2 * ONE_BLOCK[scarce]}) > estimate()
