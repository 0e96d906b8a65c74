"""What programs of `mini_ansor` compute: as C, as CUDA on the block emulator, and by its own definition in NumPy."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from ansor.sketch import generate_sketches as engine_sketches
from codegen_cuda.emulation import emulator
from exercises.core.mini import product_and_relu
from mini_ansor import c, steps
from mini_ansor.__main__ import compute, matmul, placeholder
from mini_ansor.c import Measurer, difference
from mini_ansor.cuda import kernels
from mini_ansor.expr import Axis, Op, Reduce, binary, evaluate
from mini_ansor.lower import lower
from mini_ansor.population import program, random_genes
from mini_ansor.program import State, initial, ordered
from mini_ansor.sketch import generate_sketches
from te_lite import ComputeDAG
from te_lite.meaning.reference import evaluate as engine_values
from te_lite.meaning.reference import random_inputs
from tests import workloads
from tests.amount import some
from tests.drawn_programs import drawn_program

from .compared import HARDWARE, MACHINES, replayed
from .drawn import drawn_dag
from .translate import mini_args

SMALL = {
    "matmul": lambda: workloads.matmul(12, 18, 20),
    "matmul_relu": lambda: workloads.matmul_relu(16, 24, 8),
    "double_matmul": lambda: workloads.double_matmul(9),
    "conv2d_nchw": lambda: workloads.conv2d_nchw(1, 7, 8, 6, 3, 1, 1),
    "conv2d_nhwc": lambda: workloads.conv2d_nhwc(2, 6, 4, 8, 3, 2, 1, 1),
    "depthwise": lambda: workloads.depthwise(1, 7, 4),
    "softmax": lambda: workloads.softmax(12, 40),
    "row_stats": lambda: workloads.row_stats(6, 30),
    "max_pool": lambda: workloads.max_pool(1, 9, 4),
}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the programs")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled soon and run briefly."""
    monkeypatch.setattr(c, "FLAGS", ("-O1", "-fopenmp"))
    monkeypatch.setattr(c, "REPEAT_SECONDS", 0.0)


@pytest.mark.parametrize("seed", range(some(100, 25)))
def test_the_definitions_agree(seed: int) -> None:
    dag = drawn_dag(seed)
    inputs = random_inputs(dag.tensors, np.random.default_rng(seed))
    args = mini_args(dag)
    want = engine_values(dag.tensors, inputs, dtype="float64")[dag.tensors[-1]]
    got = evaluate(ordered(args), {t.name: a for t, a in inputs.items()})[args[-1].key]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def drawn_states(dag: ComputeDAG, args: list[Op], target: str, seed: int) -> list[State]:
    """A program of each sketch as the engine draws it, and one as `mini_ansor` does."""
    rng = np.random.default_rng(seed)
    found = [drawn_program(s, target, HARDWARE[target], rng) for s in engine_sketches(dag, target, HARDWARE[target])]
    states = [replayed(args, state) for state in found if state is not None]
    for sketch in generate_sketches(args, MACHINES[target]):
        tries = (program(random_genes(sketch, rng), MACHINES[target]) for _ in range(50))
        states += [state for state in [next((s for s in tries if s is not None), None)] if state is not None]
    return states


@needs_gcc
@pytest.mark.parametrize("name", SMALL)
def test_c_programs_compute_the_definition(name: str) -> None:
    dag = ComputeDAG(SMALL[name]())
    args = mini_args(dag)
    measurer, states = Measurer(args, np.random.default_rng(0)), drawn_states(dag, args, "c", 1)
    assert len(states) >= 2
    for state in states[:: some(1, 3)]:
        result = measurer.measure(state)
        assert (result.error_no, result.message) == (0, ""), str(state)
        assert len(result.costs) == c.REPEATS and all(cost > 0 for cost in result.costs)


@needs_gcc
@pytest.mark.parametrize("seed", range(1000, some(1060, 1008)))
def test_random_c_programs_compute_the_definition(seed: int) -> None:
    dag = drawn_dag(seed)
    args = mini_args(dag)
    states = drawn_states(dag, args, "c", seed)
    state = states[seed % len(states)]
    result = Measurer(args, np.random.default_rng(seed)).measure(state)
    assert (result.error_no, result.message) == (0, ""), str(state)


def transposed_product(n: int, m: int, k: int) -> list[Op]:
    """A [N, K] times B [M, K], and a relu."""
    a, b, r = placeholder((n, k), "A"), placeholder((m, k), "B"), Axis("k", k)
    c = compute((n, m), lambda i, j: Reduce("sum", a[i, r] * b[j, r], (r,)), "C")
    return [a, b, compute((n, m), lambda i, j: binary("max", c[i, j], 0), "D")]


@needs_gcc
@pytest.mark.parametrize(("make", "lanes"), [(product_and_relu, 8), (transposed_product, 7)])
def test_a_vector_loop_goes_on_in_the_padding_of_its_row(make: Callable[..., list[Op]], lanes: int) -> None:
    """But not where its reads would go far, as those down a column do."""
    args = make(6, 7, 5)
    k = next(k for k, op in enumerate(ordered(args)) if op.name == "C")
    state = steps.reorder(steps.compute_at(initial(args), k, k + 1, 0), k, (0, 2, 1))
    state = steps.annotate(state, k, 2, "vectorize")
    text = c.c_text(lower(state))
    assert f"float C_4[{8 + c.SLACK}]" in text
    found = re.search(r"j_1_7 < (\d); \+\+j_1_7\) \{\s+acc_6\[j_1_7\] = \(acc_6\[j_1_7\] \+ ", text)
    assert found is not None and found[1] == str(lanes), text
    result = Measurer(args, np.random.default_rng(0)).measure(state)
    assert (result.error_no, result.message) == (0, "")


@needs_gcc
def test_sums_of_a_tile_are_in_registers_while_a_part_of_the_reduction_is_computed() -> None:
    """Of 24 x 16 sums the 6 x 16 that are twelve vectors, and 8 of 48 terms: as many statements as are unrolled."""
    args = matmul(24, 16, 48)
    state = steps.reorder(steps.split(initial(args), 2, 1, 16, (8,), 1), 2, (3, 0, 1, 2))
    state = steps.annotate(state, 2, 3, "vectorize")
    text = c.c_text(lower(state))
    loops = re.findall(r"for \(int (\w+)_\d+ = 0; \w+ < (\d+)|float (acc)_\d+\[(\d+)\]", text)
    tile = [("i_1", "6"), ("j_0_1", "2"), ("j_1_1", "8")]
    assert [("".join(found[::2]), "".join(found[1::2])) for found in loops] == [
        *[("init_i", "24"), ("init_j_0", "2"), ("init_j_1", "8"), ("i_0", "4"), ("k_0", "6")],
        *[("acc", str(96 + c.SLACK)), *tile, ("k_1", "8"), *tile, *tile],
    ]
    assert text.count("#pragma GCC unroll") == 7, text  # all loops inside, but those of lanes
    result = Measurer(args, np.random.default_rng(0)).measure(state)
    assert (result.error_no, result.message) == (0, "")


def emulated(args: list[Op], state: State, rng: np.random.Generator) -> str:
    """What is wrong with the results of the kernels of a program; "" if nothing is."""
    inputs = {op.name: rng.uniform(-1, 1, op.shape).astype(np.float32) for op in args if op.body is None}
    memory: dict[str, np.ndarray] = {}
    for kernel in kernels(lower(state)):
        for b in kernel.buffers:
            ready = inputs[b.name].ravel() if b.name in inputs else np.full(b.shape, np.nan, np.float32)
            memory.setdefault(b.key, ready)
        arrays = [memory[b.key] for b in kernel.buffers]
        emulator.run(kernel.source, kernel.name, kernel.blocks, kernel.threads, arrays)
    want = evaluate(ordered(args), inputs)
    return "".join(difference(memory[op.key].reshape(op.shape), want[op.key]) for op in args if op.body is not None)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the emulator")
@pytest.mark.parametrize("name", SMALL)
def test_cuda_kernels_compute_the_definition(name: str) -> None:
    dag = ComputeDAG(SMALL[name]())
    args, rng = mini_args(dag), np.random.default_rng(3)
    states = drawn_states(dag, args, "cuda", 2)
    assert states
    for state in states[:: some(1, 2)]:
        assert emulated(args, state, rng) == "", str(state)


def test_a_wrong_element_is_found() -> None:
    want = np.linspace(-1, 1, 100)
    got = want.astype(np.float32)
    assert difference(got, want) == ""
    got[17] += 1e-3
    assert "at (17,)" in difference(got, want)
    got[17] = np.nan
    assert "1 elements are wrong" in difference(got, want)
