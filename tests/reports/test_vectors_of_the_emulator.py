"""Every vector type that kernels name is one that the block emulator has."""

import shutil

import numpy as np
import pytest

from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.text.vectors import _NATIVE
from tests.codegen_cuda.test_emit_vectors import BLOCKS, THREADS, copy_of

CASES = [(dtype, lanes, name) for dtype, kinds in _NATIVE.items() for lanes, name in kinds.items()]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize(("dtype", "lanes", "name"), CASES)
def test_vectors_are_copied(dtype: str, lanes: int, name: str) -> None:
    program = emit(copy_of(dtype, lanes))
    assert f"{name} *" in program.source or dtype in ("int8", "uint8", "int16", "uint16")  # these move as words
    x, got = [np.arange(BLOCKS * THREADS * lanes).astype(dtype) * k for k in (1, 0)]
    run_program(program, [x, got])
    np.testing.assert_array_equal(got, x)
