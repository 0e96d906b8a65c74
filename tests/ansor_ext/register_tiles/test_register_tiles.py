"""Products in register tiles that are decided: which forms they have, and what they compute where tiles run over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor_ext.register_tiles.register_tiles import FORMS, best_forms
from ansor_ext.register_tiles.tile_cost import Product
from benchmarks import workloads as benchmarks
from codegen_cuda import emit
from te_lite import ComputeDAG, Tensor
from tests.ansor.sketch_cases import matmul
from tests.ansor_ext.tensor_core.test_tensor_core_rule import matmul as product_of
from tests.ansor_ext.test_extra_rules import emulated, programs, rule_sketches
from tests.drawn_programs import drawn_program
from tests.oracle import Oracle


def biased(m: int, n: int, k: int) -> list[Tensor]:
    """A product with a bias and a relu after it."""
    a, b, c = matmul(m, n, k)
    bias = te.placeholder((n,), name="bias")
    return [a, b, bias, te.compute((m, n), lambda i, j: te.max(c[i, j] + bias[j], 0.0), name="D")]


PRODUCTS: dict[str, tuple[Callable[[], list[Tensor]], int]] = {
    "whole tiles": (lambda: matmul(64, 128, 64), 1),
    "tiles that run over": (lambda: matmul(63, 125, 53), 1),
    "weights by rows": (lambda: benchmarks.dense(61, 48, 125), 1),
    "batches": (lambda: benchmarks.batch_matmul(2, 64, 64, 37), 1),
    "an epilogue": (lambda: biased(60, 64, 33), 1),
    "one row": (lambda: matmul(1, 256, 64), 0),
    "few terms": (lambda: matmul(64, 64, 15), 0),
    "much waste": (lambda: matmul(80, 80, 64), 0),
    "a convolution": (lambda: benchmarks.conv2d(1, 8, 8, 64, 64, 3, 1, 1), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.one_in(2)
def test_products(name: str) -> None:
    """Where a form fits, what it computes on the emulator; where none does, there is no sketch."""
    make, least = PRODUCTS[name]
    dag = ComputeDAG(make())
    sketches = rule_sketches(dag, "cuda", "register_tiles")
    assert bool(sketches) == bool(least)
    oracle = Oracle(dag, np.random.default_rng(3))
    for sketch in sketches[-1:]:
        (state,) = programs(sketch, "cuda", 1)
        assert oracle.mismatch(te.lower(state), emulated) is None


@pytest.mark.parametrize(
    ("model", "size", "best", "steps"),
    [
        ("unknown", 4096, [0, 1, 2], [8, 8, 16]), ("h200", 4096, [0, 1, 2], [16] * 3),
        ("h200", 2048, [0, 1, 2], [16] * 3), ("unknown", 1024, [5, 6, 7], [16] * 3),
    ],
)  # fmt: skip
def test_large_products_have_the_best_forms_and_read_their_operands_ahead(
    model: str, size: int, best: list[int], steps: list[int]
) -> None:
    """Smaller tiles for smaller products, in as many steps as there is shared memory for."""
    target = Target.of(f"cuda -model={model}" if model != "unknown" else "cuda")
    hardware = HardwareParams(target=target).completed(target)
    dag = ComputeDAG(matmul(size, size, size))
    sketches = extra_sketches(dag, target, hardware, rules=["register_tiles"])
    assert best_forms(Product(1, size, size, size)) == [FORMS[k] for k in best]
    for form, sketch, count in zip(best_forms(Product(1, size, size, size)), sketches, steps, strict=True):
        state = drawn_program(sketch, target, hardware, np.random.default_rng(2))
        assert state is not None
        program = emit(te.lower(state))
        (kernel,) = program.kernels
        assert kernel.threads == form.rows * form.columns // (form.sums[0] * form.sums[1])
        whole, padded = [2 * count * 4 * (form.rows + form.columns + pad) for pad in (0, 4)]
        assert whole < kernel.shared_bytes < padded
        assert "A_shared_operands" in program.source and "B_shared_operands" in program.source


def test_products_for_tensor_cores_have_none() -> None:
    """Of halves, and of floats where TF32 is asked for."""
    for dtype, target in (("float16", "cuda"), ("float32", "cuda -precision=tf32")):
        dag = ComputeDAG(product_of(256, 256, 256, dtype))
        assert extra_sketches(dag, target, HardwareParams(target=target), rules=["tensor_core"])
        assert not extra_sketches(dag, target, HardwareParams(target=target), rules=["register_tiles"])


def test_tiles_that_run_over_on_both_sides_are_proven() -> None:
    """The first piece of a thread is inside whatever its block, and has no condition; the others have."""
    for sketch in rule_sketches(ComputeDAG(matmul(1000, 1000, 1000)), "cuda", "register_tiles"):
        (state,) = programs(sketch, "cuda", 1)
        te.lower(state)
