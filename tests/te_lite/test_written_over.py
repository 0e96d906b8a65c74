"""What may be written over what it was computed from: both in one memory, programs run right and without a race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from te_lite import topi
from te_lite.expr.element import Buffer, BufferLoad
from te_lite.expr.expr import Expr, Var
from te_lite.expr.visit import children, rebuild
from te_lite.loops.stmt import For, ForKind, LoweredFunc, Store, map_exprs, seq
from te_lite.lowering.written_over import written_over
from te_lite.meaning.interp import run
from tests.oracle import Oracle
from tests.schedule_fuzz import Fuzzer

Made = list[te.Tensor]


def scaled() -> Made:
    x, z = te.placeholder((7, 12), name="x"), te.placeholder((1, 12), name="z")
    return [x, z, topi.nn.relu(x * z + x)]


def softmax() -> Made:
    x = te.placeholder((5, 24), name="x")
    k, n = te.reduce_axis((0, 24), name="k"), te.reduce_axis((0, 24), name="n")
    most = te.compute((5,), lambda i: te.max(x[i, k], axis=k), name="most")
    total = te.compute((5,), lambda i: te.sum(te.exp(x[i, n] - most[i]), axis=n), name="total")
    return [x, te.compute((5, 24), lambda i, j: te.exp(x[i, j] - most[i]) / total[i], name="y")]


def less_its_mean() -> Made:
    x, k = te.placeholder((6, 8), name="x"), te.reduce_axis((0, 8), name="k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    return [x, te.compute((6, 8), lambda i, j: x[i, j] - total[i] / 8, name="y")]


def reversed_rows() -> Made:
    x = te.placeholder((16,), name="x")
    return [x, te.compute((16,), lambda i: x[15 - i] + x[i], name="y")]


def turned() -> Made:
    x = te.placeholder((6, 6), name="x")
    return [x, te.compute((6, 6), lambda i, j: x[j, i], name="y")]


def beside_the_first() -> Made:
    x = te.placeholder((24,), name="x")
    return [x, te.compute((24,), lambda i: x[i] - x[0], name="y")]


def by_place() -> Made:
    x, at = te.placeholder((24,), name="x"), te.placeholder((24,), "int32", name="at")
    return [x, at, te.compute((24,), lambda i: x[at[i] % 24], name="y")]


def sums_before() -> Made:
    x = te.placeholder((24,), name="x")
    k = te.reduce_axis((0, 24), name="k")
    return [x, te.compute((24,), lambda i: te.sum(x[k] * te.if_then_else(k <= i, 1.0, 0.0), axis=k), name="y")]


SAFE: list[Callable[[], Made]] = [scaled, softmax, less_its_mean]
UNSAFE: list[Callable[[], Made]] = [reversed_rows, turned, beside_the_first, by_place, sums_before]


def together(func: LoweredFunc, result: int, argument: int) -> LoweredFunc:
    """The program with an argument where a result is, from a copy at its beginning on."""
    y, x = func.args[result], func.args[argument]

    def read(e: Expr) -> Expr:
        whole = rebuild(e, tuple(map(read, children(e))))
        return BufferLoad(y, whole.index) if isinstance(whole, BufferLoad) and whole.buffer is x else whole

    i = Var("copied")
    copy = For(i, y.size, ForKind.PARALLEL, Store(y, i, BufferLoad(x, i)))
    return replace(func, body=seq(copy, map_exprs(func.body, read)))


def drawn(make: Callable[[], Made], seed: int) -> tuple[te.ComputeDAG, LoweredFunc]:
    dag = te.ComputeDAG(make())
    return dag, Fuzzer(dag, np.random.default_rng([5, seed]), gpu=seed % 2 == 0).draw()[1]


@pytest.mark.parametrize("make", SAFE, ids=lambda f: f.__name__)
def test_random_schedules_in_one_memory(make: Callable[[], Made]) -> None:
    found = 0
    for seed in range(12):
        dag, func = drawn(make, seed)
        oracle = Oracle(dag, np.random.default_rng(seed))
        for result, argument in written_over(func):
            assert (dag.tensors[argument].name, result) == ("x", len(func.args) - 1)
            assert oracle.mismatch(together(func, result, argument), run) is None
            found += 1
    assert found >= 3


@pytest.mark.parametrize("make", UNSAFE, ids=lambda f: f.__name__)
def test_what_is_read_elsewhere_stays(make: Callable[[], Made]) -> None:
    for seed in range(6):
        assert written_over(drawn(make, seed)[1]) == ()


def one_nest(value: Callable[[Buffer, Var, Var], Expr], extents: tuple[int, int], size: int = 8) -> LoweredFunc:
    """`y[4 * i + j] = value(x, i, j)` by two loops."""
    x, y, i, j = Buffer("x", "float32", (size,)), Buffer("y", "float32", (size,)), Var("i"), Var("j")
    store = Store(y, i * 4 + j, value(x, i, j))
    nest = For(i, extents[0], ForKind.PARALLEL, For(j, extents[1], ForKind.SERIAL, store))
    return LoweredFunc("one", (x, y), nest)


def test_elements_that_are_stored_twice_stay() -> None:
    def read(x: Buffer, i: Var, j: Var) -> Expr:
        return BufferLoad(x, i * 4 + j) * 2.0

    assert written_over(one_nest(read, (2, 4))) == ((1, 0),)
    assert written_over(one_nest(read, (1, 8))) == ((1, 0),)
    assert written_over(one_nest(read, (2, 5), 9)) == ()  # element 4 twice: by i = 1 after it was doubled by i = 0


def test_a_nest_behind_that_reads_keeps_its_argument() -> None:
    first = one_nest(lambda x, i, j: BufferLoad(x, i * 4 + j), (2, 4))
    x, y = first.args
    z, k = Buffer("z", "float32", (8,)), Var("k")
    behind = For(k, 8, ForKind.SERIAL, Store(z, k, BufferLoad(x, k) + BufferLoad(y, k)))
    func = LoweredFunc("two", (x, y, z), seq(first.body, behind))
    assert written_over(func) == ((2, 0),)  # over x, of which z is the last reader; y is a result itself


def test_other_sizes_and_indices_of_indices_stay() -> None:
    x, y, i = Buffer("x", "float32", (8,)), Buffer("y", "float64", (8,)), Var("i")
    cast = Store(y, i, BufferLoad(x, i).astype("float64"))
    assert written_over(LoweredFunc("cast", (x, y), For(i, 8, ForKind.SERIAL, cast))) == ()
    at, z = Buffer("at", "int32", (8,)), Buffer("z", "int32", (8,))
    through = Store(z, i, BufferLoad(at, i) + BufferLoad(at, BufferLoad(at, i)))
    assert written_over(LoweredFunc("through", (at, z), For(i, 8, ForKind.SERIAL, through))) == ()
