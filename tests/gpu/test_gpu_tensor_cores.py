"""Tensor cores on a GPU: the maps of the table are those of the hardware, whatever the emulator takes them for."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor_ext.tensor_core.mma import SMALL, Mma
from tests.ansor_ext.tensor_core import test_split_ring
from tests.ansor_ext.tensor_core.mma_schedules import GROUPS, PAIRS, PROGRAMS, RINGS
from tests.ansor_ext.tensor_core.test_added_boxes import ONTO, assert_added
from tests.ansor_ext.tensor_core.test_floats_in_parts import errors, func_of, fused, product_of, product_of_groups
from tests.ansor_ext.tensor_core.test_ring import arrays_of
from tests.ansor_ext.tensor_core.test_ring_convolutions import ON_A_DEVICE
from tests.ansor_ext.tensor_core.test_ring_convolutions import assert_right as assert_right_convolution
from tests.ansor_ext.tensor_core.test_ring_convolutions import drawn as drawn_convolution
from tests.ansor_ext.tensor_core.test_ring_sketches import (
    CASES,
    HOSTILE,
    assert_as_exact_as_promised,
    assert_right,
    drawn,
)

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.module import CudaModule, open_device  # noqa: E402

GUARD = 16
"""How much more than one rounding a sum is off: tensor cores add with few guard bits, in an order of their own."""
SHORT = 2.0**12
"""The same of products of floats of 8 bits, of which they keep some 14 bits, and cut off the others."""


def guard(op: Mma) -> float:
    return SHORT if op.element in SMALL else GUARD


@pytest.mark.parametrize("name", [*PROGRAMS, *[f"groups: {name}" for name in GROUPS]])
def test_products(name: str) -> None:
    program = GROUPS[name.removeprefix("groups: ")] if name.startswith("groups") else PROGRAMS[name]
    tensors = program.tensors()
    module = CudaModule(te.lower(program.schedule(tensors), tensors), open_device().arch)
    for seed in range(3):
        a, b = program.inputs(np.random.default_rng(seed))
        out = np.full(program.sizes[:2], 99, program.op.sum.dtype)
        module(a, b, out)
        assert program.wrong(a, b, out, guard(program.op)) is None


@pytest.mark.parametrize("name", [*RINGS, *[f"pairs: {name}" for name in PAIRS]])
def test_rings(name: str) -> None:
    """Of tiles that the copy engine fetches, for one block or two, and rounds where they are of floats."""
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")
    program = PAIRS[name.removeprefix("pairs: ")] if name.startswith("pairs") else RINGS[name]
    tensors = program.tensors()
    arrays, exact, error = arrays_of(program, guard(program.op))
    CudaModule(te.lower(program.schedule(tensors), tensors), open_device().arch)(*arrays)
    assert (np.abs(arrays[-1].astype("float64") - exact) <= error).all()


@pytest.mark.parametrize("name", ONTO)
def test_rings_whose_results_are_added_to_arrays(name: str) -> None:
    """Fetched in boxes, several times in a row: what a run leaves in shared memory is not what the next one reads."""
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")
    tensors = ONTO[name].tensors()
    module = CudaModule(te.lower(ONTO[name].schedule(tensors), tensors), open_device().arch)
    for _ in range(3):
        assert_added(ONTO[name], ONTO[name].out, module)


@pytest.mark.parametrize("draw", range(4))
@pytest.mark.parametrize("name", [name for name in CASES if "tf32" in name or "fp32x3" in name])
def test_rings_of_copied_floats(name: str, draw: int) -> None:
    """Of kernels before the product, and of parts that are multiplied."""
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")
    rng = np.random.default_rng(draw)
    module = CudaModule(drawn(name, draw, rng), open_device().arch)
    assert_right(name, rng, module)
    if name == HOSTILE:
        assert_as_exact_as_promised(module)


@pytest.mark.parametrize("draw", range(4))
@pytest.mark.parametrize("name", test_split_ring.CASES)
def test_sums_that_clusters_add_up(name: str, draw: int) -> None:
    """Of more blocks than the emulator has threads for, too."""
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")
    rng = np.random.default_rng(draw)
    func, _ = test_split_ring.drawn(name, rng, 8 * 1024)
    arrays, out = test_split_ring.arrays_of(name, rng)
    CudaModule(func, open_device().arch)(*arrays, out)
    test_split_ring.assert_right(name, out, arrays)


@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize("name", ON_A_DEVICE)
def test_rings_of_convolutions(name: str, draw: int) -> None:
    """Whose windows the copy engine counts, but for one whose warps are not kept together by boxes of results."""
    if open_device().arch != "sm_90":
        pytest.skip("these instructions are those of sm_90")
    func, arrays, want = drawn_convolution(name, draw)
    CudaModule(func, open_device().arch)(*arrays)
    assert_right_convolution(arrays[-1], want, GUARD)


@pytest.mark.parametrize("groups, k", [(False, 32), (False, 256), (False, 4096), (True, 64), (True, 4096)])
def test_floats_in_parts_are_as_exact_as_float32(groups: bool, k: int) -> None:
    """Whatever the tensor cores cut off; what is infinite or NaN in float32 is so."""
    program = product_of_groups(k) if groups else product_of(k)
    given = program.inputs(np.random.default_rng(k))
    a, b = given[0], given[1].T if groups else given[1]
    module, out = CudaModule(func_of(program), open_device().arch), np.full(program.sizes[:2], 99, "float32")
    module(*given, out)
    assert (errors(out, a, b) <= 2 * errors(fused(a, b), a, b)).all()
    a[0, 3], a[1, 4], b[5, 7] = np.inf, np.nan, -np.inf
    module(*given, out)
    with np.errstate(all="ignore"):
        want = fused(a, b)
    special = ~np.isfinite(want)
    assert special.any() and np.array_equal(out[special], want[special], equal_nan=True)
    assert np.isfinite(out[~special]).all()
