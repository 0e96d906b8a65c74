"""Results with the same bits however many others are computed with them: programs of an invariant task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.target.target import Target
from ansor.policy.tuning_options import TuningOptions
from ansor_ext.open_sizes.same_bits import SAME_BITS, same_bits
from codegen_c.compile import FLAGS
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import topi
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty

Array = np.ndarray[Any, Any]
MOST = 64
SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63)
OFFSETS = (1, 3, 8, 13)


def gelu(n: Any) -> list[te.Tensor]:
    a, w = te.placeholder((n, 48), name="a"), te.placeholder((40, 48), name="w")
    d = topi.nn.dense(a, w)
    one = te.compute((n, 40), lambda i, j: te.tanh(d[i, j] * 0.79788 + d[i, j] * d[i, j] * d[i, j] * 0.0356) + 1.0)
    return [a, w, te.compute((n, 40), lambda i, j: d[i, j] * 0.5 * one[i, j], name="g")]


def softmax(n: Any) -> list[te.Tensor]:
    a = te.placeholder((n, 37), name="a")
    return [a, topi.nn.softmax(a)]


def convolution(n: Any) -> list[te.Tensor]:
    x, k = te.placeholder((n, 6, 9, 9), name="x"), te.placeholder((8, 6, 3, 3), name="k")
    return [x, k, topi.nn.conv2d_nchw(x, k, 1, 1, 1)]


def products(n: Any) -> list[te.Tensor]:
    x, y = te.placeholder((n, 7, 24), name="x"), te.placeholder((n, 9, 24), name="y")
    return [x, y, topi.nn.batch_matmul(x, y)]


def opened(made: Callable[[Any], list[te.Tensor]]) -> te.ComputeDAG:
    return te.ComputeDAG(made(te.size_var("n", 1, MOST)))


def assert_same_bits(dag: te.ComputeDAG, run: Callable[..., object], sizes: tuple[int, ...] = SIZES) -> None:
    """Rows of calls with fewer rows, and from another row on, beside those of one call with all of them."""
    rng, tensors = np.random.default_rng(1), dag.tensors

    def shape(t: te.Tensor, n: int) -> list[int]:
        return [d if isinstance(d, int) else n for d in t.shape]

    every = [rng.standard_normal(shape(t, MOST)).astype("float32") for t in tensors[:-1]]
    of_rows = [not isinstance(t.shape[0], int) for t in tensors[:-1]]

    def result(first: int, count: int) -> Array:
        given = [x[first : first + count].copy() if own else x for x, own in zip(every, of_rows, strict=True)]
        out = np.full(shape(tensors[-1], count), np.nan, "float32")
        run(*given, out)
        return out

    want = result(0, MOST)
    assert np.isfinite(want).all()
    for n in nonempty(sizes):
        np.testing.assert_array_equal(result(0, n), want[:n], str(n))
    for first in nonempty(OFFSETS):
        np.testing.assert_array_equal(result(first, 20), want[first : first + 20], f"from {first} on")


@pytest.mark.parametrize("made", [gelu, softmax, convolution, products])
def test_rows_have_the_same_bits_in_every_batch(made: Callable[[Any], list[te.Tensor]]) -> None:
    """Of programs drawn at random: in that of the fourth draw of `gelu` gcc 12 contracts sums of whole tiles alone."""
    dag, target = opened(made), Target("c")
    hardware = ansor.HardwareParams.for_target(target)
    sketches = ansor.sketch.generate_sketches(dag, target, hardware)
    for draw in nonempty(range(3, 5)):
        state = drawn_program(sketches[draw % len(sketches)], target, hardware, np.random.default_rng(draw))
        assert state is not None
        assert_same_bits(dag, same_bits(state, dag.tensors, target))


def test_kernels_give_rows_the_same_bits() -> None:
    dag, target = opened(gelu), Target("cuda")
    hardware = ansor.HardwareParams.for_target(target)
    sketch = ansor.sketch.generate_sketches(dag, target, hardware)[0]
    state = drawn_program(sketch, target, hardware, np.random.default_rng(2))
    assert state is not None
    made = emit(te.lower(state))
    assert_same_bits(dag, lambda *arrays: run_program(made, list(arrays)), (1, 7, 16, 33))


def invariant_task() -> Any:
    return ansor.SearchTask(gelu, (te.size_var("n", 1, MOST),), target="c", sizes={"n": [1, MOST]}, invariant=True)


def test_an_invariant_task_has_one_default_program() -> None:
    made = (task := invariant_task()).build_default()
    assert len(made.programs) == 1
    assert_same_bits(task.compute_dag, made)


@pytest.mark.long
def test_an_invariant_task_keeps_one_program(tmp_path: Path) -> None:
    task, log = invariant_task(), tmp_path / "log.json"
    task.tune(TuningOptions(12, measure_callbacks=[ansor.RecordToFile(log)], verbose=0))
    best = task.build_best(log)
    assert len(best.programs) == len(task.best_states(log)) == 1
    assert_same_bits(task.compute_dag, best)


def test_nothing_is_contracted_and_else_is_as_ever() -> None:
    assert [x for x, y in zip(SAME_BITS, FLAGS, strict=True) if x != y] == ["-ffp-contract=off"]
    with pytest.raises(ansor.TaskError, match=r"invariant: it must be True or False, got 1"):
        ansor.SearchTask(gelu, (te.size_var("n", 1, 4),), target="c", sizes={}, invariant=1)  # type: ignore[arg-type]
    with pytest.raises(ansor.TaskError, match=r"invariant: only a task for a range of sizes, sizes={...}, may be that"):
        ansor.SearchTask(gelu, (4,), target="c", invariant=True)
