"""Attention in one kernel on a GPU: every shape of it that the rule draws, beside float64."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from tests.ansor_ext.attention.test_attention import EVERY, check, sketches
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
