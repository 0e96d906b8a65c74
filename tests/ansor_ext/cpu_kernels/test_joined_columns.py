"""Columns that run on from one line of an image to the next: where they are worth a sketch, and what they compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch.generate import extra_sketches
from ansor_ext.axes.steps import JoinAxes
from ansor_ext.cpu_kernels.joined_rows import first_column
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG, Tensor
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from tests.ansor.sketch_cases import matmul
from tests.ansor_ext.test_extra_rules import check_decided
from tests.conv_layer import conv2d_layer

AVX2, AVX512 = (HardwareParams(2, n, 64, 0, 0, 0, 0, 0) for n in (32, 64))


def product(*shape: int, backwards: bool = False) -> list[Tensor]:
    """Sums over k of A[m, k] * B[k, ...], the axes behind k from `shape`, the last one read backwards if asked for."""
    m, terms, *columns = shape
    a, b = te.placeholder((m, terms), name="A"), te.placeholder((terms, *columns), name="B")
    k = te.reduce_axis((0, terms), name="k")

    def value(i: te.expr.expr.Expr, *at: te.expr.expr.Expr) -> te.expr.expr.Expr:
        last = columns[-1] - 1 - at[-1] if backwards else at[-1]
        return te.sum(a[i, k] * b[tuple([k, *at[:-1], last])], axis=k)

    return [a, b, te.compute((m, *columns), value, name="C")]


def gathered() -> list[Tensor]:
    """Sums over k of A[m, k] * B[k, C[y, x]]."""
    a, b, c = te.placeholder((4, 5)), te.placeholder((5, 42)), te.placeholder((6, 7), "int32")
    k = te.reduce_axis((0, 5))
    return [a, b, c, te.compute((4, 6, 7), lambda i, y, x: te.sum(a[i, k] * b[k, c[y, x]], axis=k))]


def diagonal() -> list[Tensor]:
    """Sums over k of A[m, k] * B[k + y, y, x]."""
    a, b = te.placeholder((4, 5)), te.placeholder((10, 6, 7))
    k = te.reduce_axis((0, 5))
    return [a, b, te.compute((4, 6, 7), lambda i, y, x: te.sum(a[i, k] * b[k + y, y, x], axis=k))]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "lines of 14": lambda: conv2d_layer(1, 14, 14, 19, 37, 1, 1, 0),
    "two images of lines of 6": lambda: conv2d_layer(2, 4, 6, 13, 5, 1, 1, 0),
    "three axes": lambda: product(11, 17, 2, 3, 10),
    "many pixels": lambda: conv2d_layer(1, 20, 12, 9, 31, 1, 1, 0),
}


def joined(dag: ComputeDAG, hardware: HardwareParams) -> list[State]:
    return extra_sketches(dag, "c", hardware, rules=["joined_columns"])


@pytest.mark.parametrize("hardware", [AVX2, AVX512], ids=["8 lanes", "16 lanes"])
@pytest.mark.parametrize("name", CASES)
def test_joined_columns_of_awkward_shapes(name: str, hardware: HardwareParams) -> None:
    dag = ComputeDAG(CASES[name]())
    sketches = joined(dag, hardware)
    assert sketches and all(any(isinstance(step, JoinAxes) for step in sketch.steps) for sketch in sketches)
    check_decided(dag, sketches, 8)


def test_tiles_leave_no_pixel_over() -> None:
    widths = []
    for sketch in joined(ComputeDAG(conv2d_layer(1, 14, 14, 64, 64, 1, 1, 0)), AVX512):
        widths += [x.lengths[-1] for x in sketch.steps if isinstance(x, Split) and x.extent == 196]
    assert widths[0] == 28 and all(isinstance(w, int) and 196 % w == 0 and w >= 16 for w in widths)


def conv(dag: ComputeDAG) -> tuple[State, int]:
    (k,) = [n for n, stage in enumerate(dag.init_state.stages) if stage.op.reduce_axis]
    return dag.init_state, k


@pytest.mark.parametrize(("made", "first"), [
    (lambda: conv2d_layer(1, 14, 14, 8, 8, 1, 1, 0), 2),
    (lambda: conv2d_layer(1, 14, 14, 8, 8, 3, 1, 1), 3),
    (lambda: conv2d_layer(1, 14, 14, 8, 8, 1, 2, 0), 3),
    (lambda: benchmarks.conv2d(1, 14, 14, 8, 8, 1, 1, 0), 3),
    (lambda: matmul(9, 9, 9), 1),
    (lambda: product(4, 5, 6, 7), 1),
    (lambda: product(4, 5, 6, 7, backwards=True), 2),
    (lambda: gathered(), 2),
    (lambda: diagonal(), 2),
])  # fmt: skip
def test_which_axes_move_through_memory_as_one(made: Callable[[], list[Tensor]], first: int) -> None:
    """Not those of padded or strided lines, of channels that the other operand has, read backwards or anywhere."""
    assert first_column(*conv(ComputeDAG(made()))) == first


def test_where_one_line_fills_vectors_columns_are_not_joined() -> None:
    for lines, worth in ((14, True), (24, True), (32, False), (64, False)):
        dag = ComputeDAG(conv2d_layer(1, lines, lines, 64, 64, 1, 1, 0))
        assert bool(joined(dag, AVX512)) == worth, lines
    assert not joined(ComputeDAG(conv2d_layer(1, 14, 14, 64, 64, 3, 1, 1)), AVX512)
    assert not joined(ComputeDAG(benchmarks.conv2d(1, 14, 14, 64, 64, 1, 1, 0)), AVX512)
