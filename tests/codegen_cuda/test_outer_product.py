"""Accumulations in the order of an outer product: sums stay the same to the last bit, operands are used twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from benchmarks import workloads as benchmarks
from codegen_cuda.passes.outer_product import in_outer_product_order
from te_lite.expr.expr import Binary, Expr, Var, const
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, LoweredFunc, Stmt, Store
from te_lite.meaning.interp import run
from tests.drawn_programs import drawn_program

CUDA = Target.of("cuda")
HARDWARE = HardwareParams(target=CUDA).completed(CUDA)
WORKLOADS = {
    "matmul": lambda: benchmarks.matmul(32, 48, 24),
    "batch_matmul": lambda: benchmarks.batch_matmul(2, 24, 16, 32),
    "conv2d": lambda: benchmarks.conv2d(1, 8, 8, 16, 32, 3, 1, 1),
    "depthwise": lambda: benchmarks.depthwise_conv2d(1, 8, 8, 16, 3, 1, 1),
}


def programs(name: str, count: int = 8) -> Iterator[LoweredFunc]:
    dag = te.ComputeDAG(WORKLOADS[name]())
    sketches = extra_sketches(dag, CUDA, HARDWARE, rules=["double_buffer", "transposed_shared_ahead"])
    for seed in range(count):
        state = drawn_program(sketches[seed % len(sketches)], CUDA, HARDWARE, np.random.default_rng([8, seed]))
        assert state is not None
        yield te.lower(state)


def result(func: LoweredFunc) -> np.ndarray:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(b.shape).astype(np.float32) for b in func.args]
    run(func, arrays)
    return arrays[-1]


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(3)
def test_sums_stay_the_same_to_the_last_bit(name: str) -> None:
    changed = 0
    for func in programs(name):
        body, sums = in_outer_product_order(func.body)
        other = replace(func, body=body)
        changed += str(other) != str(func)
        assert all(b.storage == "local" for b in sums) and bool(sums) >= (str(other) != str(func))
        assert result(other).tobytes() == result(func).tobytes()
    assert bool(changed) == (name != "depthwise"), "the products of a depthwise convolution have no two sides"


def points(s: Stmt, env: dict[Var, Expr]) -> Iterator[tuple[str, str]]:
    """The two operands of each multiply-add of nested loops, in order."""
    if isinstance(s, For):
        for n in range(s.extent):
            yield from points(s.body, {**env, s.var: const(n, s.var.dtype)})
    else:
        assert isinstance(s, Store) and isinstance(s.value, Binary) and isinstance(s.value.b, Binary)
        x, y = [str(Simplifier().simplify(substitute(e, env))) for e in (s.value.b.a, s.value.b.b)]
        yield x, y


def breaks(body: Stmt) -> int:
    """How many multiply-adds share no operand with the one before."""
    operands = list(points(body, {}))
    return sum(a[0] != b[0] and a[1] != b[1] for a, b in itertools.pairwise(operands))


@pytest.mark.parametrize("extents", [(4, 5, 3, 2), (3, 2, 7, 1), (2, 6, 6, 3), (1, 3, 2, 5)])
def test_only_a_step_of_the_reduction_begins_with_new_operands(extents: tuple[int, int, int, int]) -> None:
    """`acc[i, j, h] += a[i, k] * b[k, j, h]`, the loops in an order as schedules have it: i, j, k, h."""
    terms, rows, columns, threads = extents
    i, j, k, h = [Var(name) for name in "ijkh"]
    acc = Buffer("acc", "float32", (rows, columns, threads), "local")
    a = Buffer("a", "float32", (rows, terms), "shared")
    b = Buffer("b", "float32", (terms, columns, threads), "shared")
    place = (i * columns + j) * threads + h
    body: Stmt = Store(acc, place, acc[place] + a[i * terms + k] * b[(k * columns + j) * threads + h])
    for var, extent in ((h, threads), (k, terms), (j, columns), (i, rows)):
        body = For(var, extent, ForKind.UNROLLED, body)
    body = Alloc(acc, body)
    ordered, sums = in_outer_product_order(body)
    assert isinstance(body, Alloc) and isinstance(ordered, Alloc) and sums == {acc}
    assert sorted(points(ordered.body, {})) == sorted(points(body.body, {}))
    assert breaks(ordered.body) == terms - 1 <= breaks(body.body)
    longer = int(columns * threads > rows)
    operands = [pair[longer] for pair in points(ordered.body, {})]
    assert sum(x != y for x, y in itertools.pairwise(operands)) == terms * max(rows, columns * threads) - 1
