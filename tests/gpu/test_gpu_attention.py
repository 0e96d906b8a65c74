"""Attention in one kernel on a GPU: every shape of it that the rule draws, beside float64."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor_ext.attention.grains import Grain
from tests.ansor_ext.attention.test_attention import EVERY, Case, Scores, causal, check, scaled, sketches
from tests.ansor_ext.attention.test_attention_in_groups import CASES, lowered
from tests.ansor_ext.attention.test_attention_in_parts import CASES as PARTS
from tests.ansor_ext.attention.test_attention_in_parts import lowered as lowered_in_parts
from tests.oracle import poisoned

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.module import CudaModule, open_device  # noqa: E402
from tests.nonempty import nonempty  # noqa: E402


@pytest.mark.parametrize("name", EVERY)
def test_kernels_compute_attention(name: str) -> None:
    case = EVERY[name]
    tensors, arrays = case.tensors(), case.inputs(np.random.default_rng(6))
    for state in nonempty(sketches(tensors)[::3]):
        out = poisoned(case.wanted(arrays).shape, case.out)
        CudaModule(te.lower(state, tensors), open_device().arch)(*arrays, out)
        check(case, out, arrays)


@pytest.mark.parametrize("name", CASES)
def test_groups_of_warps_compute_attention(name: str) -> None:
    case, grain = CASES[name]
    arrays, out = case.inputs(np.random.default_rng(6)), poisoned((*case.sizes[:2], case.sizes[3]), case.out)
    CudaModule(lowered(case, grain), open_device().arch)(*arrays, out)
    check(case, out, arrays)


@pytest.mark.parametrize("scores", [scaled, causal])
def test_more_parts_than_multiprocessors(scores: Scores) -> None:
    """Of odd numbers of iterations."""
    case = Case((40, 600, 333, 64), scores)
    arrays, out = case.inputs(np.random.default_rng(9)), poisoned((40, 600, 64), case.out)
    CudaModule(lowered(case, Grain(8, 1, 128, 2, True)), open_device().arch)(*arrays, out)
    check(case, out, arrays)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_keys_add_up(name: str) -> None:
    case, grain = PARTS[name]
    arrays, out = case.inputs(np.random.default_rng(6)), poisoned((*case.sizes[:2], case.sizes[3]), case.out)
    CudaModule(lowered_in_parts(case, grain), open_device().arch)(*arrays, out)
    check(case, out, arrays)
