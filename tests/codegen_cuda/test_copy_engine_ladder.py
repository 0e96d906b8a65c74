"""The kernels of `benchmarks/copy_engine_ladder.py` compile, and nothing of them is put one after the other."""

from __future__ import annotations

import re

import pytest

from benchmarks.copy_engine_ladder import Rung, rungs, source
from codegen_cuda.driver.compile import available_compilers, compile_source

pytestmark = pytest.mark.skipif(not available_compilers(), reason="NVRTC is not installed")
MOST_SHARED, REGISTERS = 232_448, 65_536 // 384 // 8 * 8


@pytest.mark.parametrize("rung", rungs().values(), ids=rungs())
def test_a_rung_compiles_as_it_is_written(rung: Rung) -> None:
    found = compile_source(source(), "sm_90", rung.options)
    (kernel,) = found.resources
    assert kernel.registers == REGISTERS and kernel.spill_stores == kernel.stack == 0
    assert re.findall(r"C75\d\d", found.log) == []
    assert rung.shared_bytes <= MOST_SHARED
