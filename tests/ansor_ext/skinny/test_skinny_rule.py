"""The rule for reductions with little reuse: matrix-vector and skinny products, row and column sums, pooling."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import te_lite as te
from ansor.analytical.machine import machine_of
from ansor.analytical.roofline import seconds
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_variant, space_of
from benchmarks import workloads as benchmarks
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import Tensor, topi
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.ansor.sketch_cases import HARDWARE
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle

TVM_TAGS = {"AN", "FU", "PR", "RE", "SP", "CA", "CI", "CHR", "SA", "RF"}


def dense(m: int, n: int, k: int, dtype: str = "float32") -> list[Tensor]:
    a, b = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((n, k), name="B", dtype=dtype)
    return [a, b, topi.nn.dense(a, b)]


def layer(m: int, n: int, k: int) -> list[Tensor]:
    """With bias and relu behind."""
    a, b, c = dense(m, n, k)
    bias = te.placeholder((n,), name="bias")
    return [a, b, bias, topi.nn.relu(topi.nn.bias_add(c, bias))]


def product(m: int, n: int, k: int) -> list[Tensor]:
    """Weights whose rows run along the outputs."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


def folded(shape: Sequence[int], axis: int | tuple[int, ...], fold: Callable[..., Tensor] = topi.sum) -> list[Tensor]:
    a = te.placeholder(tuple(shape), name="A")
    return [a, fold(a, axis=axis)]


def gathered(n: int, m: int, k: int) -> list[Tensor]:
    """Products of rows that are looked up with a vector: where a row is read is not known."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k,), name="B")
    row = te.placeholder((m,), name="row", dtype="int32")
    at, r = topi.take(a, row, axis=0, mode="clip"), te.reduce_axis((0, k), name="r")
    return [a, b, row, te.compute((m,), lambda i: te.sum(at[i, r] * b[r], axis=[r]), name="C")]


def scaled(m: int, n: int) -> list[Tensor]:
    """Row sums of what is multiplied by one number, a tensor without dimensions."""
    a, scale = te.placeholder((m, n), name="A"), te.placeholder((), name="scale")
    r = te.reduce_axis((0, n), name="r")
    return [a, scale, te.compute((m,), lambda i: te.sum(a[i, r] * scale[()], axis=[r]), name="C")]


def pooled(*shape: int) -> list[Tensor]:
    a = te.placeholder(shape, name="A")
    return [a, topi.nn.global_pool(a, "avg")]


HOSTILE: dict[str, Callable[[], list[Tensor]]] = {
    "vector": lambda: dense(1, 10, 128),
    "one_output": lambda: dense(1, 1, 1021),
    "prime": lambda: dense(3, 7, 67),
    "rows_16": lambda: dense(16, 12, 33),
    "rows_of_two": lambda: dense(2, 5, 130),
    "half": lambda: dense(1, 6, 264, "float16"),
    "layer": lambda: layer(1, 24, 132),
    "layer_5": lambda: layer(5, 18, 37),
    "layer_16": lambda: layer(16, 8, 64),
    "product": lambda: product(3, 20, 50),
    "row_sums": lambda: folded((3, 5, 130), 2),
    "column_sums": lambda: folded((37, 21), 0),
    "middle_sums": lambda: folded((3, 40, 64), 1),
    "argmax": lambda: folded((4, 201), 1, topi.argmax),
    "all_max": lambda: folded((2, 16, 16), (1, 2), topi.max),
    "long_rows": lambda: folded((2, 8192), 1),
    "long_layer": lambda: layer(2, 3, 8192),
    "long_columns": lambda: folded((256, 20), 0),
    "long_argmax": lambda: folded((1, 8192), 1, topi.argmax),
    "scaled": lambda: scaled(3, 132),
    "gathered": lambda: gathered(9, 6, 64),
    "gate": lambda: conv2d_layer(1, 1, 1, 8, 36, 1, 1, 0),
    "pool": lambda: pooled(2, 6, 7, 7),
    "pool_8": lambda: pooled(1, 6, 8, 8),
    "pool_nhwc": lambda: benchmarks.global_avg_pool(2, 7, 7, 20),
}


def sketches(tensors: list[Tensor]) -> list[State]:
    return extra_sketches(te.ComputeDAG(tensors), "cuda", HARDWARE["cuda"], rules=["skinny"])


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.one_in(5)
def test_programs_compute_the_workload(name: str) -> None:
    """Every sketch in the interpreter, one of them (drawn) in the emulator; all replay from their records."""
    dag = te.ComputeDAG(HOSTILE[name]())
    oracle, rng = Oracle(dag, np.random.default_rng(7)), np.random.default_rng([7, len(name)])
    found = extra_sketches(dag, "cuda", HARDWARE["cuda"], rules=["skinny"])
    assert found
    chosen = rng.integers(len(found))
    for n, sketch in enumerate(found):
        state = drawn_program(sketch, "cuda", HARDWARE["cuda"], rng)
        assert state is not None
        records = [to_json(step) for step in state.steps]
        assert {record[0] for record in records} <= TVM_TAGS
        assert replay(dag, [from_json(record) for record in records]) == state
        assert oracle.mismatch(te.lower(state), run) is None, records
        if n == chosen and shutil.which("g++"):
            assert oracle.mismatch(te.lower(state), emulated) is None, records


@pytest.mark.parametrize(
    "tensors",
    [
        lambda: dense(17, 64, 256),
        lambda: dense(1, 64, 31),
        lambda: benchmarks.relu(64, 64),
        lambda: product(64, 64, 64),
        lambda: conv2d_layer(2, 9, 9, 16, 12, 3, 2, 1),
    ],
)
def test_other_stages_are_left_alone(tensors: Callable[[], list[Tensor]]) -> None:
    assert sketches(tensors()) == []


def test_the_source_reads_vectors_into_registers() -> None:
    """A layer of one kernel: unrolled 16-byte loads of both inputs, sums in registers, shuffles, one store."""
    state = drawn_program(sketches(layer(1, 1000, 2048))[0], "cuda", HARDWARE["cuda"], np.random.default_rng(0))
    assert state is not None
    (kernel,) = emit(te.lower(state)).source.split("__global__")[1:]
    assert kernel.count("*(const float4 *)(A") == kernel.count("*(const float4 *)(B") == 1
    assert "__shfl_xor_sync" in kernel and "__syncthreads" not in kernel


def test_estimates_near_the_memory_limit() -> None:
    """64 MiB of weights take 14 us at the speed of the memory: no sketch is estimated below it, all below twice it."""
    target = Target.of("cuda -model=H200")
    hardware = HARDWARE["cuda"].completed(target)
    for sketch in nonempty(sketches(dense(1, 4096, 4096))):
        rng = np.random.default_rng(0)
        variant = random_variant(space_of(sketch, target, hardware), rng)
        rows = sample_rows(variant, 4, rng, target, hardware)
        times = seconds(programs(variant, rows, target, hardware), machine_of(target, hardware))
        assert np.all((times > 13e-6) & (times < 30e-6))
