"""Results of rank 0: `fuse()` gives a loop of extent 1, which can be split, bound and marked like any other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.policy.default_schedule import default_states
from te_lite import topi
from te_lite.extensions import using
from te_lite.loops.stmt import LoweredFunc
from te_lite.meaning.interp import run
from te_lite.meaning.reference import evaluate
from tests.nonempty import nonempty

MARKS = ("parallel", "vectorize", "unroll", "threadIdx.x", "blockIdx.x", "vthread", "nothing")


def total(then: bool) -> tuple[te.Tensor, ...]:
    data = te.placeholder((4, 6), name="data")
    i, j = te.reduce_axis((0, 4), "i"), te.reduce_axis((0, 6), "j")
    out = te.compute((), lambda: te.sum(data[i, j], axis=[i, j]), "out")
    return (data, te.compute((), lambda: out() * 2.0, "twice")) if then else (data, out)


def assert_right(func: LoweredFunc, want: float) -> None:
    x = np.arange(24, dtype="float32").reshape(4, 6)
    got = np.array(np.nan, "float32")
    run(func, [x, got])
    assert got == want


def mark(stage: Any, loop: Any, how: str) -> None:
    if how in ("parallel", "vectorize", "unroll"):
        getattr(stage, how)(loop)
    elif how != "nothing":
        stage.bind(loop, te.thread_axis(how))


@pytest.mark.parametrize("outer", MARKS)
@pytest.mark.parametrize("inner", MARKS)
@pytest.mark.parametrize("then", [False, True])
def test_the_loop_of_nothing_is_split_and_marked(then: bool, inner: str, outer: str) -> None:
    tensors = total(then)
    s = te.create_schedule(tensors[-1].op)
    stage = s[tensors[-1]]
    loops = stage.split(stage.fuse(), factor=2)
    mark(stage, loops[0], outer)
    mark(stage, loops[1], inner if inner != outer else "nothing")
    assert_right(te.lower(s, tensors), 552.0 if then else 276.0)


def test_a_loop_of_nothing_is_fused_and_split_thrice() -> None:
    tensors = total(True)
    s = te.create_schedule(tensors[-1].op)
    stage = s[tensors[-1]]
    a, b = stage.split(stage.fuse(), nparts=1)
    c = stage.fuse(a, b)
    d, e = stage.split(c, factor=4)
    f, g = stage.split(e, factor=3)
    stage.reorder(g, d, f)
    assert_right(te.lower(s, tensors), 552.0)


REDUCED: dict[str, Callable[[te.Tensor], te.Tensor]] = {
    "sum": topi.sum,
    "max": topi.max,
    "mean": lambda x: topi.divide(topi.sum(x), te.const(24.0, "float32")),
    "argmax": topi.argmax,
    "softmax of a sum": lambda x: topi.exp(topi.sum(topi.exp(x))),
    "of a scalar": lambda x: te.compute((), lambda: topi.max(x)() + 1.0),
}


@pytest.mark.parametrize("extensions", ["all", "none"])
@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", REDUCED)
def test_default_programs_of_scalars_are_right(name: str, target: str, extensions: str) -> None:
    rng = np.random.default_rng(1)
    for shape in ((4, 6), (40, 65)):
        data = te.placeholder(shape, name="data")
        tensors = (data, REDUCED[name](data))
        x = (rng.integers(-8, 8, shape) / 16).astype("float32")
        want = evaluate([tensors[-1]], {data: x}, "float64")[tensors[-1]]
        with using(extensions):
            task = ansor.SearchTask(compute_dag=te.ComputeDAG(tensors), target=target)
            states = list(default_states(task))
        for state in nonempty(states):
            got = np.array(np.nan if tensors[-1].dtype == "float32" else -77).astype(tensors[-1].dtype)
            run(te.lower(state, tensors), [x, got])
            np.testing.assert_allclose(got, want, rtol=1e-5)
