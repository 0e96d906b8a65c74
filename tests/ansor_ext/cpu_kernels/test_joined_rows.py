"""Rows that run on from one line of an image to the next: where they are worth a sketch, and what they compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch.generate import extra_sketches
from ansor_ext.axes.steps import JoinAxes
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG, Tensor
from te_lite.expr.expr import Expr, Var
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import State
from tests.ansor.sketch_cases import matmul
from tests.ansor_ext.test_extra_rules import check_decided, programs
from tests.conv_layer import conv2d_layer
from tests.nonempty import nonempty

AVX2 = HardwareParams(2, 32, 64, 0, 0, 0, 0, 0)

IMAGES: dict[str, Callable[[], list[Tensor]]] = {
    "nhwc": lambda: benchmarks.conv2d(1, 7, 7, 3, 19, 3, 1, 1),
    "two images": lambda: benchmarks.conv2d(2, 3, 3, 4, 8, 3, 1, 1),
    "padded vectors": lambda: benchmarks.conv2d(1, 7, 7, 16, 19, 3, 1, 1),
    "strides": lambda: benchmarks.conv2d(1, 13, 13, 16, 16, 3, 2, 1),
    "one pixel wide": lambda: benchmarks.conv2d(1, 7, 7, 5, 16, 1, 1, 0),
    "channels in lanes": lambda: conv2d_layer(2, 7, 7, 16, 64, 3, 1, 1),
}


def joined(dag: ComputeDAG) -> list[State]:
    return extra_sketches(dag, "c", AVX2, rules=["joined_rows"])


@pytest.mark.parametrize("name", IMAGES)
def test_joined_rows_of_awkward_shapes(name: str) -> None:
    """Nothing but unrolling and parallel loops is left to decide, and what is behind the last pixel is not written."""
    dag = ComputeDAG(IMAGES[name]())
    sketches = joined(dag)
    assert sketches and all(any(isinstance(step, JoinAxes) for step in sketch.steps) for sketch in sketches)
    check_decided(dag, sketches, 8)


def test_lines_that_fill_tiles_are_not_joined() -> None:
    """Lines of 7 and 13 pixels leave tiles half empty, those of 14 and 24 do not; a product has one axis of rows."""
    for size, worth in ((7, True), (13, True), (14, False), (24, False)):
        dag = ComputeDAG(benchmarks.conv2d(1, size, size, 64, 64, 3, 1, 1))
        assert bool(joined(dag)) == worth, size
    assert not joined(ComputeDAG(matmul(49, 64, 64)))


def test_tiles_are_of_pixels_and_channels() -> None:
    """Lanes are channels, wherever they lie in memory; the best tiles are ten of 5 pixels for 49, and of no others is
    more than a tenth over the edge."""
    nhwc, nchw = benchmarks.conv2d(1, 7, 7, 64, 64, 3, 1, 1), conv2d_layer(1, 7, 7, 64, 64, 3, 1, 1)
    for layer, order in ((nhwc, None), (nchw, (0, 2, 1))):
        rows = []
        for sketch in joined(ComputeDAG(layer)):
            (sums,) = [s for s in sketch.stages if s.op.reduce_axis]
            assert sums.storage_order == order and {it.annotation for it in sums.iters} >= {"unroll", "vectorize"}
            rows += [x.lengths[-1] for x in sketch.steps if isinstance(x, Split) and x.extent == 49 and x.lengths]
        assert rows[0] == 5 and all(isinstance(r, int) and -49 % r * 10 <= 50 for r in rows)


@pytest.mark.parametrize("size", [5, 7, 9, 13])
def test_no_tile_lies_behind_the_last_pixel(size: int) -> None:
    """So its copies may be made for each tile, wherever the search puts them: such programs are not refused."""
    dag = ComputeDAG(conv2d_layer(2, 2 * size - 1, 2 * size - 1, 16, 12, 3, 2, 1))
    for cores in (2, 4, 7):
        hardware = HardwareParams(cores, 64 if size == 5 else 32, 64, 0, 0, 0, 0, 0)
        for sketch in nonempty(extra_sketches(dag, "c", hardware, rules=["joined_rows"])):
            whole = 2 * size**2
            pixels = whole if any(isinstance(x, Split) and x.extent == whole for x in sketch.steps) else size**2
            (tiles, rows) = next(x.lengths for x in sketch.steps if isinstance(x, Split) and x.extent == pixels)
            assert isinstance(tiles, int) and isinstance(rows, int)
            assert -(-pixels // (tiles * rows)) * tiles == -(-pixels // rows)
            for state in programs(sketch, "c", 3):
                te.lower(state)


def test_what_cannot_be_joined_is_left_alone() -> None:
    """Results that the caller gets as well, reductions with several outputs, reductions of unknown extents."""
    conv = benchmarks.conv2d(1, 7, 7, 4, 16, 3, 1, 1)
    relu = te.compute(conv[-1].shape, lambda *i: te.maximum(conv[-1][i], 0.0), name="relu")
    a, b = te.placeholder((7, 7, 64), name="a"), te.placeholder((64, 64), name="b")
    k = te.reduce_axis((0, 64), name="k")
    both = te.compute((7, 7, 64), lambda y, x, c: te.argmax((k, a[y, x, k] * b[k, c]), axis=k), name="both")

    def part(y: Var, x: Var, c: Var) -> Expr:
        r = te.reduce_axis((0, x + 1), name="r")
        return te.sum(a[y, x, r] * b[r, c], axis=r)

    for tensors in ([*conv, relu], [a, b, *both], [a, b, te.compute((7, 7, 64), part, name="part")]):
        assert joined(ComputeDAG(tensors)) == []
