"""Micro-kernels and packed columns: which shapes and panels they have, and what they compute on awkward extents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch.generate import extra_sketches
from ansor_ext.axes.steps import Reindex
from ansor_ext.cpu_kernels import long_products
from ansor_ext.cpu_kernels.micro_kernel import in_parts, shapes
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.state import ATTACHED, ROOT
from tests.ansor.sketch_cases import HARDWARE, matmul
from tests.ansor_ext.test_extra_rules import check_decided, compiled, rule_sketches
from tests.conv_layer import conv2d_layer
from tests.nonempty import nonempty
from tests.oracle import Oracle


def test_columns_that_are_read_along_are_packed() -> None:
    """Of weights [out, reduction], whatever their size, with the lanes last; not where they are stored as read."""
    a, b = te.placeholder((2, 9, 14), name="A"), te.placeholder((2, 20, 14), name="B")
    k = te.reduce_axis((0, 14), name="k")
    free = {"layout_free_placeholders": [b]}
    batch = te.compute((2, 9, 20), lambda n, i, j: te.sum(a[n, i, k] * b[n, j, k], axis=k), name="C", attrs=free)
    for tensors, order in ((benchmarks.dense(9, 96, 36), (1, 0)), ([a, b, batch], (0, 2, 1))):
        dag = ComputeDAG(tensors)
        for rule in ("packed_read", "micro_kernel"):
            sketches = rule_sketches(dag, "c", rule)
            panels = [(s.op.name, s.storage_order) for sketch in sketches for s in sketch.stages if s.storage_order]
            assert len(panels) == len(sketches) > 0 and {order for _, order in panels} == {order}
            left = extra_sketches(dag, "c", HARDWARE["c"], rules=[rule], stored_as_read=True)
            assert not any(s.storage_order for sketch in left for s in sketch.stages)
            assert len(left) == (len(sketches) if rule == "micro_kernel" else 0)


MICRO: dict[str, Callable[[], list[Tensor]]] = {
    "primes": lambda: benchmarks.dense(13, 23, 29),
    "one row": lambda: matmul(1, 40, 7),
    "one column": lambda: matmul(17, 1, 5),
    "one term": lambda: benchmarks.dense(11, 1, 37),
    "many columns": lambda: matmul(29, 197, 3),
    "nhwc": lambda: benchmarks.conv2d(1, 7, 5, 3, 19, 3, 2, 1),
    "nchw": lambda: conv2d_layer(1, 5, 13, 6, 4, 3, 1, 1),
    "padded vectors": lambda: benchmarks.conv2d(1, 7, 5, 16, 19, 3, 2, 1),
    "channels in lanes": lambda: conv2d_layer(2, 7, 5, 19, 16, 3, 2, 1),
}


@pytest.mark.parametrize("name", MICRO)
@pytest.mark.one_in(2)
def test_micro_kernels_of_awkward_shapes(name: str) -> None:
    """Accumulators fit the registers of the machine, and nothing but unrolling and parallel loops is left to decide."""
    dag = ComputeDAG(MICRO[name]())
    sketches = rule_sketches(dag, "c", "micro_kernel")
    assert bool(sketches) == (name not in ("one column",))
    check_decided(dag, sketches, 8)


def test_micro_kernels_fill_the_registers() -> None:
    hardware = HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)
    state = ComputeDAG(benchmarks.dense(197, 768, 3072)).init_state
    (k,) = [k for k, s in enumerate(state.stages) if s.op.reduce_axis]
    found = shapes(state, k, hardware)
    assert len(found) == 3 and all(16 <= s.rows * -(-s.columns // 16) <= 28 for s in found)
    assert all(-197 % s.rows <= 197 // 20 and s.lane == 1 for s in found)


def test_vectors_of_a_panel_stay_in_registers() -> None:
    """Beside the sums, an element for all lanes and the vectors of a row: else they are read again for each row."""
    for bytes_, registers in ((32, 16), (64, 32)):
        state = ComputeDAG(matmul(512, 512, 512)).init_state
        for s in nonempty(shapes(state, 2, HardwareParams(2, bytes_, 64, 0, 0, 0, 0, 0))):
            vectors = s.columns // (bytes_ // 4)
            assert s.rows * vectors + vectors + 1 <= registers


def test_channels_are_lanes_where_images_are_small() -> None:
    """Weights [out, in, ...] are packed with the channels last, once for all pixels of a block; sums lie likewise."""
    dag = ComputeDAG(conv2d_layer(1, 7, 7, 64, 64, 3, 1, 1))
    for vectors in (32, 64):
        hardware = HardwareParams(2, vectors, 64, 0, 0, 0, 0, 0)
        state = dag.init_state
        (k,) = [k for k, s in enumerate(state.stages) if s.op.reduce_axis]
        assert all(s.lane == 1 and s.row == 3 for s in shapes(state, k, hardware))
        sketches = extra_sketches(dag, "c", hardware, rules=["micro_kernel"])
        orders = [{s.op.name: s.storage_order for s in sketch.stages if s.storage_order} for sketch in sketches]
        assert orders and all(o == {"kernel.local": (1, 2, 3, 0), "conv2d_nchw": (0, 2, 3, 1)} for o in orders)
    wide = ComputeDAG(conv2d_layer(1, 56, 56, 64, 16, 1, 1, 0)).init_state
    (k,) = [k for k, s in enumerate(wide.stages) if s.op.reduce_axis]
    assert all(s.lane == 3 for s in shapes(wide, k, HardwareParams(2, 32, 64, 0, 0, 0, 0, 0)))


def test_a_panel_serves_all_pixels_that_fit_a_cache() -> None:
    """Of an image 14 x 14, rows of pixels too, as long as there are tasks for all cores; of a batch, its own alone."""
    state = ComputeDAG(benchmarks.conv2d(1, 14, 14, 256, 256, 1, 1, 0)).init_state
    (k,) = [k for k, s in enumerate(state.stages) if s.op.reduce_axis]
    assert all(s.blocks[1] == 14 for s in nonempty(shapes(state, k, HardwareParams(1, 32, 64, 0, 0, 0, 0, 0))))
    assert all(s.blocks[1] < 14 for s in nonempty(shapes(state, k, HardwareParams(64, 32, 64, 0, 0, 0, 0, 0))))
    batch = ComputeDAG(benchmarks.batch_matmul(4, 64, 64, 32)).init_state
    (k,) = [k for k, s in enumerate(batch.stages) if s.op.reduce_axis]
    assert all(s.blocks[0] == 1 for s in nonempty(shapes(batch, k, HardwareParams(1, 32, 64, 0, 0, 0, 0, 0))))


def test_tasks_are_equal_for_all_cores() -> None:
    """Parts of the rows of an image, each for all of its columns; in a product what a cache holds, for few packings."""
    state = ComputeDAG(benchmarks.conv2d(1, 56, 56, 64, 64, 3, 1, 1)).init_state
    (k,) = [k for k, s in enumerate(state.stages) if s.op.reduce_axis]
    for cores in (2, 4, 7, 8, 16):
        for s in nonempty(shapes(state, k, HardwareParams(cores, 32, 64, 0, 0, 0, 0, 0), by_rows=True)):
            tiles = -(-56 // s.rows)
            tasks = -(-56 // s.blocks[1]) * -(-tiles // s.blocks[2])
            assert -(-tasks // cores) * cores * s.blocks[1] * s.blocks[2] <= 1.15 * 56 * tiles
    for n, least, most in ((512, 1, 1), (2048, 4, 8)):
        state = ComputeDAG(matmul(n, n, n)).init_state
        for s in nonempty(shapes(state, 2, HardwareParams(2, 32, 64, 0, 0, 0, 0, 0))):
            assert least <= -(-n // (s.rows * s.blocks[0])) <= most


def test_rows_are_packed_in_the_order_in_which_tiles_read_them() -> None:
    """For parts of rows and columns that are the same for all cores, where packing both takes little of the time."""
    dag = ComputeDAG(matmul(300, 320, 256))
    hardware = HardwareParams(2, 32, 64, 0, 0, 0, 0, 0)
    sketches = extra_sketches(dag, "c", hardware, rules=["micro_kernel"])
    packed = [s for s in sketches if any(isinstance(step, Reindex) for step in s.steps)]
    assert len(packed) == len(sketches) - len(packed) == 3
    copies = [next(s for s in sketch.stages if s.op.name == "A.local") for sketch in packed]
    tiles = [s.op.shape[-1] for s in copies]
    assert all(s.op.shape == (-(-300 // r), 256, r) for s, r in zip(copies, tiles, strict=True))
    assert Oracle(dag, np.random.default_rng(3)).mismatch(te.lower(packed[0]), compiled) is None
    for small in (matmul(30, 32, 25), benchmarks.conv2d(1, 14, 14, 256, 256, 3, 1, 1)):
        found = extra_sketches(ComputeDAG(small), "c", hardware, rules=["micro_kernel"])
        assert not any(isinstance(step, Reindex) for sketch in found for step in sketch.steps)
    for cores in (2, 16):
        large = ComputeDAG(matmul(2048, 2048, 2048)).init_state
        many = HardwareParams(cores, 32, 64, 0, 0, 0, 0, 0)
        for shape in [in_parts(large, 2, s, many) for s in shapes(large, 2, many)]:
            assert shape is not None
            rows, columns = shape.rows * shape.blocks[0], shape.columns * shape.panels
            count = -(-2048 // rows) * -(-2048 // columns)
            assert -(-count // cores) * cores * rows * columns <= 1.15 * 2048**2 and min(rows, columns) >= 200


def test_long_sums_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a panel of all terms is too long: rows are copied for each cut, and columns for each panel of it."""
    a, b, c = matmul(300, 320, 50)
    dag, hardware = ComputeDAG([a, b, topi.nn.relu(c)]), HardwareParams(2, 32, 64, 0, 0, 0, 0, 0)
    before = extra_sketches(dag, "c", hardware, rules=["micro_kernel"])
    monkeypatch.setattr(long_products, "TERMS", 16)
    monkeypatch.setattr(long_products, "LONGEST_PANEL", 1000)
    cut = extra_sketches(dag, "c", hardware, rules=["micro_kernel"])[len(before) :]
    assert len(cut) == 3
    for sketch in cut:
        copies = {s.op.name: s for s in sketch.stages if s.op.name in ("A.local", "B.local")}
        loops = [
            sketch.stages[s.attach.stage].vars[s.attach.iter].name for s in copies.values() if s.attach is not None
        ]
        assert loops == ["k.0", "j.0"]
    assert Oracle(dag, np.random.default_rng(3)).mismatch(te.lower(cut[0]), compiled) is None


def test_columns_that_divide_go_first() -> None:
    """Where lanes may be over the edge elements are copied one by one: 8 columns rather than 24 of 1000, or the rows of
    A as columns, packed like any other panel."""
    hardware = HardwareParams(2, 32, 64, 0, 0, 0, 0, 0)
    state = ComputeDAG(matmul(512, 1000, 512)).init_state
    assert shapes(state, 2, hardware)[0].columns == 8
    sketches = extra_sketches(ComputeDAG(matmul(128, 500, 512)), "c", hardware, rules=["micro_kernel"])
    orders = [{s.op.name: s.storage_order for s in sketch.stages if s.storage_order} for sketch in sketches]
    assert orders and all(o["A.local"] == (1, 0) for o in orders)


@pytest.mark.parametrize("size", [512, 2048])
def test_rows_of_a_matrix_are_read_for_many_columns(size: int) -> None:
    """Rows lie apart and come from beyond the first cache, for each tile of columns once more; read down the columns
    of the other matrix each term would be another line."""
    found = shapes(ComputeDAG(matmul(size, size, size)).init_state, 2, HardwareParams(2, 64, 64, 0, 0, 0, 0, 0))
    assert (found[0].rows, found[0].columns) == (6, 64) and {shape.lane for shape in found} == {1}


def test_terms_that_are_looked_up_have_shapes() -> None:
    """Which element of a row is read for a term is not known before the program runs."""
    a, b, which = te.placeholder((64, 128)), te.placeholder((64, 64)), te.placeholder((64,), dtype="int32")
    k = te.reduce_axis((0, 64), name="k")
    out = te.compute((64, 64), lambda i, j: te.sum(a[i, which[k]] * b[k, j], axis=k))
    dag = ComputeDAG([a, b, which, out])
    assert shapes(dag.init_state, len(dag.ops) - 1, HardwareParams(2, 64, 64, 0, 0, 0, 0, 0))


def test_padding_is_computed_in_vectors_before_the_product_or_for_each_part() -> None:
    """Where its last axis is not padded; a stage of the sketch has marked loops, so the search leaves it in place."""
    sketches = rule_sketches(ComputeDAG(benchmarks.conv2d(1, 8, 8, 48, 32, 3, 1, 1)), "c", "micro_kernel")
    pads = [next(s for s in sketch.stages if "pad" in s.op.name.lower()) for sketch in sketches]
    assert [s.where for s in pads] == [ATTACHED, ROOT] * 3
    assert all(s.iters[-1].annotation == "vectorize" for s in pads)
    for tensors in (benchmarks.conv2d(1, 8, 8, 3, 32, 3, 1, 1), conv2d_layer(1, 8, 8, 16, 16, 3, 1, 1)):
        for sketch in rule_sketches(ComputeDAG(tensors), "c", "micro_kernel"):
            assert all(it.annotation == "none" for s in sketch.stages if "pad" in s.op.name.lower() for it in s.iters)
