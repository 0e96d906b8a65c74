"""Large convolutions with channels first in decided tiles: which get one, and that their programs are right."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.policy.default_schedule import default_states
from ansor_ext.register_tiles import convolution_tiles
from ansor_ext.register_tiles.convolution_tiles import convolution_states
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from tests.oracle import Oracle
from tests.workloads import conv2d_nchw, depthwise, matmul

SEED = 3
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


def task_of(tensors: list[te.Tensor]) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=tensors, target="cuda -arch=sm_90")


def convolution(
    image: tuple[int, ...], filters: int, kernel: tuple[int, ...], stride: int = 1, padding: int = 0, dilation: int = 1
) -> list[te.Tensor]:
    """A convolution with channels first, with a bias for each filter, and the larger one of that and 0."""
    rank = len(image) - 2
    x, b = te.placeholder(image, name="x"), te.placeholder((filters,), name="b")
    w = te.placeholder((filters, image[1], *kernel), name="w")
    letters = "DHW"[3 - rank :]
    y = te.topi.nn.conv(x, w, stride, padding, dilation, 1, f"NC{letters}", f"OI{letters}")
    z = te.compute(y.shape, lambda *i: te.maximum(y[i] + b[i[1]], te.const(0.0)), name="z")
    return [x, w, b, z]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of any number of blocks, however much of these is empty."""
    monkeypatch.setattr(convolution_tiles, "LEAST_BLOCKS", 1)
    monkeypatch.setattr(convolution_tiles, "MOST_WASTE", 1e9)


CASES = {
    "line": convolution((1, 8, 150), 64, (3,)), "strided line": convolution((2, 4, 331), 70, (3,), 3, 0, 4),
    "padded line": convolution((1, 12, 61), 131, (5,), 1, 2),
    "strided and padded": convolution((1, 6, 97), 64, (4,), 2, 3),
    "picture": convolution((1, 4, 9, 62), 64, (3, 3), 1, 1), "tall windows": convolution((1, 16, 9, 37), 64, (3, 1)),
    "strided picture": convolution((2, 6, 11, 35), 64, (3, 3), 2, 1),
    "cubes": convolution((1, 4, 5, 4, 33), 64, (3, 3, 3)),
}  # fmt: skip


@needs_gxx
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", sorted(CASES))
def test_programs_compute_the_convolution(name: str) -> None:
    task = task_of(CASES[name])
    (state,) = convolution_states(task)
    oracle = Oracle(task.compute_dag, np.random.default_rng(SEED))
    assert oracle.mismatch(te.lower(state, task.compute_dag.tensors), emulated) is None


@pytest.mark.parametrize(
    ("tensors", "tile"),
    [
        (convolution((32, 64, 131072), 128, (3,)), [(1, 1, 1, 1), (1, 4, 16, 1), (2, 32, 4, 1), (8, 1), (3, 1)]),
        (
            convolution((64, 64, 524280), 128, (3,), 3, 0, 4),
            [(1, 1, 1, 1), (1, 16, 8, 1), (2, 8, 4, 1), (4, 1), (3, 1)],
        ),
        (convolution((64, 8, 131072), 64, (3,)), [(1, 1, 1, 1), (1, 8, 8, 1), (2, 32, 4, 1), (4, 1), (3, 1)]),
        (convolution((32, 64, 512), 48, (3,)), None),  # few filters
        (convolution((2, 64, 512), 128, (3,)), None),  # few blocks
        (convolution((32, 61, 4096), 128, (3,)), None),  # no iteration of an even number of terms
        (convolution((512, 64, 77, 30), 128, (3, 3)), None),  # tiles are half empty
        (conv2d_nchw(64, 16, 56, 64, 3, 2, 1), None),  # likewise
        (depthwise(8, 256, 64), None),
        (matmul(2048, 2048, 2048), None),
    ],
)
def test_large_convolutions_get_tiles(tensors: list[te.Tensor], tile: list[tuple[int, ...]] | None) -> None:
    task = task_of(tensors)
    found = [
        [s.lengths for s in state.steps if isinstance(s, te.schedule.loop_steps.Split)]
        for state in convolution_states(task)
    ]
    assert [lengths[: len(lengths) - 2] for lengths in found] == ([] if tile is None else [tile])
    if tile is not None:
        assert next(default_states(task)).steps == next(convolution_states(task)).steps


def test_lines_are_fetched_without_divisions() -> None:
    task = task_of(convolution((32, 64, 131072), 128, (3,)))
    text = emit(te.lower(next(convolution_states(task)), task.compute_dag.tensors)).source
    copies = [line for line in text.splitlines() if "copy_async<4>(&pad" in line]
    assert copies and not any("%" in line.partition(", &")[0] for line in copies)
