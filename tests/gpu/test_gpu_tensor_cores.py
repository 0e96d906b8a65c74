"""Tensor cores on a GPU: the maps of the table are those of the hardware, whatever the emulator takes them for."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from tests.mma_schedules import PROGRAMS

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.module import CudaModule, open_device  # noqa: E402

GUARD = 16
"""How much more than one rounding a sum is off: tensor cores add with few guard bits, in an order of their own."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_products(name: str) -> None:
    program = PROGRAMS[name]
    tensors = program.tensors()
    module = CudaModule(te.lower(program.schedule(tensors), tensors), open_device().arch)
    for seed in range(3):
        a, b = program.inputs(np.random.default_rng(seed))
        out = np.full(program.sizes[:2], 99, program.op.sum.dtype)
        module(a, b, out)
        assert program.wrong(a, b, out, GUARD) is None
