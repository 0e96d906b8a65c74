"""Shared panels: each operand is packed once, parts are the same for all cores, and programs compute the product."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch.generate import extra_sketches
from ansor_ext.cpu_kernels.micro_kernel import shapes
from ansor_ext.cpu_kernels.shared_panels import part_of_rows
from benchmarks import workloads as benchmarks
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.state import ATTACHED, ROOT, State
from tests.ansor.sketch_cases import matmul
from tests.ansor_ext.test_extra_rules import check_decided
from tests.conv_layer import conv2d_layer
from tests.nonempty import nonempty


def columns_first() -> list[Tensor]:
    """The operand that moves with the columns is the first input; what follows reads a third."""
    b, a, c = [te.placeholder(s, name=n) for s, n in (((23, 211), "B"), ((303, 23), "A"), ((211,), "bias"))]
    k = te.reduce_axis((0, 23), name="k")
    product = te.compute((303, 211), lambda i, j: te.sum(b[k, j] * a[i, k], axis=k), name="P")
    return [b, a, c, te.compute((303, 211), lambda i, j: topi.nn.relu(product)[i, j] + c[j], name="out")]


TWO_CORES = HardwareParams(2, 32, 64, 0, 0, 0, 0, 0)


def shared(dag: ComputeDAG, stored_as_read: bool = False) -> list[State]:
    return extra_sketches(dag, "c", TWO_CORES, rules=["shared_panels"], stored_as_read=stored_as_read)


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "product": lambda: matmul(305, 216, 17),
    "weights by rows": lambda: benchmarks.dense(310, 13, 218),
    "batch": lambda: benchmarks.batch_matmul(3, 310, 209, 11),
    "columns first": columns_first,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(2)
def test_each_operand_is_packed_once(name: str) -> None:
    """That of the columns before the product, in panels; that of the rows for its part, of all columns."""
    dag = ComputeDAG(CASES[name]())
    sketches = shared(dag)
    assert sketches
    for sketch in sketches:
        copies = [s for s in sketch.stages if s.op.name.endswith(".local") and not s.op.reduce_axis]
        assert sorted([s.where for s in copies]) == sorted([ATTACHED, ROOT])
    check_decided(dag, sketches, 4)


def test_parts_are_equal_for_all_cores() -> None:
    for n in (512, 1024, 2048):
        state = ComputeDAG(matmul(n, n, n)).init_state
        for cores in (1, 2, 6, 16):
            hardware = HardwareParams(cores, 32, 64, 0, 0, 0, 0, 0)
            for shape in nonempty(shapes(state, 2, hardware)):
                part = part_of_rows(state, 2, shape, hardware)
                assert part is None if n / cores < 64 else part is not None
                if part is None:
                    continue
                rows = part.rows * part.blocks[0]
                count = -(-n // rows)
                assert part.panels * part.columns >= n
                assert -(-count // cores) * cores * rows <= 1.35 * n


def test_what_is_not_packed_has_no_such_sketch() -> None:
    """Few rows, windows that overlap, and weights that are stored as they are read."""
    for tensors in (matmul(12, 300, 300), conv2d_layer(1, 14, 14, 32, 32, 3, 1, 1)):
        assert shared(ComputeDAG(tensors)) == []
    a, b = te.placeholder((200, 96), name="A"), te.placeholder((208, 96), name="B")
    k = te.reduce_axis((0, 96), name="k")
    free = {"layout_free_placeholders": [b]}
    product = te.compute((200, 208), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C", attrs=free)
    weights = ComputeDAG([a, b, product])
    assert shared(weights) and shared(weights, stored_as_read=True) == []
