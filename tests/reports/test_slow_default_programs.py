"""Untuned networks that took up to 2.4 times as long as onnxruntime: what their kernels had in common.

Packed weights were estimated as they are declared, so that products with rows a power of two apart got tiles of eight
columns; functions behind a tile that is turned, or over the edge, were computed element by element.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import ansor
import codegen_c
import te_lite as te
from ansor.core.values.options import LayoutRewriteOption
from ansor.core.values.schedule_primitives import annotate, reorder, split
from ansor.cost_model.prior import AnalyticalModel
from ansor.policy.default_schedule import default_state
from ansor_ext.cpu_kernels.shape_costs import shape_costs
from te_lite import topi
from te_lite.schedule.state import State

PACKED = LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
HARDWARE = ansor.HardwareParams(num_cores=2, vector_unit_bytes=64, target="c")


def product(rows: int, columns: int, terms: int, declared: str) -> te.ComputeDAG:
    """A product whose weight is declared with its columns, or its terms, first."""
    a = te.placeholder((rows, terms), name="a")
    b = te.placeholder((columns, terms) if declared == "NK" else (terms, columns), name="b")
    k = te.reduce_axis((0, terms), name="k")
    attrs = {"layout_free_placeholders": [b]}

    def element(i: te.Var, j: te.Var) -> te.Expr:
        return te.sum(a[i, k] * (b[j, k] if declared == "NK" else b[k, j]), axis=k)

    return te.ComputeDAG([a, b, te.compute((rows, columns), element, name="c", attrs=attrs)])


def task_of(dag: te.ComputeDAG, option: LayoutRewriteOption) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=dag, target="c", hardware_params=HARDWARE, layout_rewrite_option=option)


def tiled(dag: te.ComputeDAG, rows: int, columns: int) -> State:
    """The product in tiles, the terms around them."""
    s = dag.init_state
    i, j, k = [it.uid for it in s.stages[2].iters]
    s, (i0, i1) = split(s, 2, i, [rows])
    s, (j0, j1) = split(s, 2, j, [columns])
    s = reorder(s, 2, [i0.uid, j0.uid, k, i1.uid, j1.uid])
    return annotate(annotate(s, 2, i1.uid, "unroll"), 2, j1.uid, "vectorize")


@pytest.mark.parametrize("tile", [(8, 32), (10, 16), (5, 64)], ids=str)
def test_packed_weights_are_estimated_in_the_order_of_reading(tile: tuple[int, int]) -> None:
    """However they are declared: what the loops read is the same memory."""
    seconds = {
        (declared, option): np.exp(-AnalyticalModel().predict(task_of(dag, option), [tiled(dag, *tile)])[0])
        for declared in ("NK", "KN")
        for dag in [product(40, 1024, 3072, declared)]
        for option in (PACKED, LayoutRewriteOption.NO_REWRITE)
    }
    assert seconds["NK", PACKED] == pytest.approx(seconds["KN", PACKED], rel=1e-9)
    assert seconds["NK", PACKED] * 3 < seconds["NK", LayoutRewriteOption.NO_REWRITE]


@pytest.mark.parametrize("shape", [(40, 1024, 3072), (20, 8210, 1024), (256, 512, 1024)], ids=str)
def test_products_with_packed_weights_have_whole_vectors_of_columns(shape: tuple[int, int, int]) -> None:
    state = default_state(task_of(product(*shape, "NK"), PACKED))
    assert state is not None
    lanes = [it.extent for it in state.stages[-1].iters if it.annotation == "vectorize"]
    assert lanes and lanes[-1] is not None and lanes[-1] % 16 == 0 and lanes[-1] >= 32


def convolution(function: str | None, pixels: int) -> te.ComputeDAG:
    data, weight = te.placeholder((1, 64, pixels + 2), name="data"), te.placeholder((64, 64, 3), name="weight")
    made = topi.nn.conv1d(data, weight)
    out = te.compute(made.shape, lambda *i: getattr(te, function)(made[i]) if function else made[i] + 1.0, name="out")
    return te.ComputeDAG([data, weight, out])


@pytest.mark.parametrize("pixels", [7500, 1000, 180])
def test_tiles_with_functions_behind_them_are_never_over_the_edge(pixels: int) -> None:
    dag = convolution("erf", pixels)
    (k,) = [k for k, stage in enumerate(dag.init_state.stages) if stage.op.reduce_axis]
    (way, rows, columns), *_ = shape_costs(dag.init_state, k, HARDWARE)
    turned = way.lane != 2
    assert (pixels % rows if turned else pixels % columns) == 0


def test_functions_of_what_lies_apart_are_vectors() -> None:
    """Else the compiler leaves them one by one: ten times as long."""
    x = te.placeholder((12, 32), name="x")
    out = te.compute((32, 12), lambda i, j: te.erf(x[j, i] * 0.5) + 1.0, name="out")
    plain = te.compute((32, 12), lambda i, j: x[j, i] * 0.5 + 1.0, name="plain")
    s = te.create_schedule([out.op, plain.op])
    for made in (out, plain):
        s[made].vectorize(s[made].op.axis[1])
    text = codegen_c.emit(te.lower(s, [x, out, plain]))
    assert re.search(r"erf_f32x\d+\(\(f32x\d+\)\{", text) and text.count("#pragma omp simd") == 1


def test_floats_become_bytes_by_way_of_words() -> None:
    """gcc takes apart vectors of floats that become bytes at once."""
    x = te.placeholder((16,), name="x")
    outs = [te.compute((16,), lambda i, d=d: te.cast(d, x[i]), name=d) for d in ("uint8", "int8", "int16")]
    s = te.create_schedule([out.op for out in outs])
    for out in outs:
        s[out].vectorize(s[out].op.axis[0])
    text = codegen_c.emit(te.lower(s, [x, *outs]))
    bodies = re.findall(r"static inline \w+ f32x(\d+)_to_(?:u8|i8|i16)x\d+\((.*)", text)
    assert len(bodies) == 3
    first = [(lanes, re.findall(r"__builtin_convertvector\(\(f32x\d+\).*?, (\w+)\)", body)) for lanes, body in bodies]
    assert first == [(lanes, [f"i32x{lanes}"]) for lanes, _ in bodies]
