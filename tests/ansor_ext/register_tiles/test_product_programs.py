"""Large products in known tiles: which get one, that the multiprocessors decide about it, and that they are right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.analytical.machine import GPUS
from ansor.policy.default_schedule import default_states
from ansor_ext.analysis import known_tiles
from ansor_ext.register_tiles import product_programs
from ansor_ext.tensor_core import product_programs as tensor_core_programs
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from tests.oracle import Oracle
from tests.workloads import conv2d_nchw, matmul

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
WIDE, TALL, SQUARE, NARROW = (128, 256), (256, 128), (128, 128), (128, 64)


def task_of(tensors: Sequence[te.Tensor], target: str = "cuda -arch=sm_90") -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=list(tensors), target=target)


def turned(rows: int, columns: int, terms: int, both: bool = True, dtype: str = "float32") -> list[te.Tensor]:
    """A product whose second factor, and perhaps its first, has its terms side by side, and a ReLU of it."""
    a = te.placeholder((rows, terms) if both else (terms, rows), dtype, name="a")
    b, k = (
        te.placeholder((columns, terms) if both else (terms, columns), dtype, name="b"),
        te.reduce_axis((0, terms), "k"),
    )
    y = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k] * b[j, k] if both else a[k, i] * b[k, j], axis=k), name="y"
    )
    z = te.compute(y.shape, lambda i, j: te.maximum(y[i, j], te.const(0.0, dtype)), name="z")
    return [a, b, z]


def batched(batch: int, rows: int, columns: int, terms: int) -> list[te.Tensor]:
    a, b = te.placeholder((batch, rows, terms), name="a"), te.placeholder((batch, terms, columns), name="b")
    k = te.reduce_axis((0, terms), "k")
    y = te.compute((batch, rows, columns), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="y")
    return [a, b, y]


def _run(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


def states_of(task: ansor.SearchTask) -> list[ansor.State]:
    """The programs in known tiles, in float32 and in parts of it."""
    policy = ansor.SketchPolicy(task, seed=0, verbose=0)
    known = (product_programs.product_states, tensor_core_programs.product_states)
    return [s for of in known for s in of(task, lambda: [*policy.generate_sketches(), *policy.extra_sketches()])]


def tile_of(state: ansor.State) -> tuple[int, ...]:
    """Rows and columns of a block."""
    splits = [s.lengths for s in state.steps if isinstance(s, te.schedule.loop_steps.Split) and len(s.lengths) == 4]
    return tuple([int(np.prod(lengths)) for lengths in splits[-2:]])


@pytest.mark.parametrize(
    ("tensors", "tile"),
    [
        (matmul(4096, 4096, 4096), WIDE), (turned(2048, 4096, 8192, both=False), TALL),
        (turned(1024, 8192, 8192), WIDE), (turned(128, 16384, 16384), SQUARE), (batched(64, 512, 1024, 512), WIDE),
        (matmul(8205, 5921, 2949), NARROW), (matmul(128, 16384, 16384), SQUARE), (turned(8192, 8192, 96), NARROW),
        (matmul(2048, 2048, 2048), WIDE),
    ],
)  # fmt: skip
def test_large_products_get_the_tile_that_leaves_fewest_multiprocessors_idle(
    tensors: list[te.Tensor], tile: tuple[int, int]
) -> None:
    assert tile_of(next(default_states(task_of(tensors)))) == tile


@pytest.mark.parametrize(
    ("tensors", "target"),
    [
        (matmul(300, 700, 512), "cuda -arch=sm_90"),  # few blocks
        (matmul(8192, 8192, 64), "cuda -arch=sm_90"),  # mostly the writing of its result
        (turned(8192, 8192, 32), "cuda -arch=sm_90"), (turned(8192, 8192, 96), "cuda -arch=sm_90 -precision=fp32x3"),
        (matmul(4096, 4096, 4096), "cuda -arch=sm_90 -precision=tf32"),
        (turned(4096, 4096, 4096, dtype="float16"), "cuda -arch=sm_90"),
        (conv2d_nchw(64, 64, 56, 64, 3, 1, 1), "cuda -arch=sm_90"), (matmul(4096, 4096, 4096), "c"),
    ],
)  # fmt: skip
def test_others_do_not(tensors: list[te.Tensor], target: str) -> None:
    task = task_of(tensors, target)
    assert not states_of(task)


@needs_gxx
@pytest.mark.parametrize(
    "tensors",
    [matmul(131, 259, 257), turned(128, 128, 256), turned(130, 64, 263, both=False), batched(3, 128, 64, 256)],
    ids=["primes", "turned", "first turned", "batched"],
)
def test_programs_compute_the_product(tensors: list[te.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tiles, "machine_of", lambda *_: replace(GPUS["H200"], multiprocessors=1))
    monkeypatch.setattr(known_tiles, "LEAST_USE", 0.0)
    task = task_of(tensors)
    states = states_of(task)
    assert len(states) == len(product_programs.TILES)
    oracle = Oracle(task.compute_dag, np.random.default_rng(3))
    func = te.lower(states[0], task.compute_dag.tensors)
    assert oracle.mismatch(func, _run) is None


def finished(finish: Callable[[te.Expr], te.Expr]) -> list[te.Tensor]:
    """A product with a bias, and what becomes of it."""
    a, b, y = matmul(4096, 4096, 4096)
    bias = te.placeholder((4096,), name="bias")
    return [a, b, bias, te.compute(y.shape, lambda i, j: finish(y[i, j] + bias[j]), name="z")]


@pytest.mark.parametrize(
    ("finish", "apart"),
    [
        (lambda x: x, False), (lambda x: te.maximum(x, te.const(0.0, "float32")), True),
        (lambda x: x * te.erf(x) / 2.0, True), (lambda x: 1.0 / (1.0 + te.exp(-x)), False),
        (lambda x: x * te.sigmoid(x), False),
    ],
    ids=["bias", "relu", "gelu", "division", "swish"],
)  # fmt: skip
def test_sums_before_an_activation_are_written_from_registers_of_their_own(
    finish: Callable[[te.Expr], te.Expr], apart: bool
) -> None:
    task = task_of(finished(finish))
    source = emit(te.lower(next(default_states(task)), task.compute_dag.tensors)).source
    assert "make_float4(" in source and ("apart(" in source) is apart


@pytest.mark.parametrize(
    ("tensors", "ring"),
    [
        (matmul(4096, 4096, 4096), True), (turned(1024, 8192, 8192), True), (matmul(8205, 5921, 2949), False),
        (turned(2048, 4096, 8192, both=False), True),
    ],
)  # fmt: skip
def test_products_in_parts_get_tiles_of_warps(tensors: list[te.Tensor], ring: bool) -> None:
    task = task_of(tensors, "cuda -arch=sm_90 -precision=fp32x3")
    state = next(default_states(task))
    rows, columns = [
        s.lengths for s in state.steps if isinstance(s, te.schedule.loop_steps.Split) and len(s.lengths) == 2
    ]
    assert (16 * np.prod(rows), 8 * np.prod(columns)) == (128, 128)
    source = emit(te.lower(state, task.compute_dag.tensors)).source
    assert "wgmma" in source and ("ring_open" in source) is ring


@needs_gxx
@pytest.mark.parametrize(
    ("tensors", "count"),
    [(matmul(131, 67, 259), 3), (turned(136, 72, 256, both=False), 1), (turned(136, 132, 256, both=False), 2)],
    ids=["primes", "turned", "ring"],
)
@pytest.mark.one_in(3)
def test_tiles_of_warps_compute_the_product(
    tensors: list[te.Tensor], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_tiles, "machine_of", lambda *_: replace(GPUS["H200"], multiprocessors=1))
    monkeypatch.setattr(known_tiles, "LEAST_USE", 0.0)
    task = task_of(tensors, "cuda -arch=sm_90 -precision=fp32x3")
    states = states_of(task)
    assert len(states) == count
    oracle = Oracle(task.compute_dag, np.random.default_rng(3))
    for state in states:
        func = te.lower(state, task.compute_dag.tensors)
        assert oracle.mismatch(func, _run) is None
