"""Checks on the device say what those on the host say: their kernels, emulated, against `mismatch` and NumPy."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from ansor.measure.array_checks import same_bits
from ansor.measure.check import mismatch, poison_value
from codegen_cuda.driver.array_checks import ARRAY_CHECKS, JUDGED
from codegen_cuda.driver.compile import compile_source
from te_lite.expr.dtype import DTYPES
from tests.codegen_cuda.bound_cases import one_case
from tests.codegen_cuda.emulated_device import EmulatedDevice
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


@emulated
def test_the_device_judges_as_the_host_does(device: EmulatedDevice) -> None:
    rng, found = np.random.default_rng(0), []
    for dtype in sorted(JUDGED):
        for _ in range(6):
            with np.errstate(all="ignore"):
                got, right = one_case(rng, dtype)
                expected = mismatch(got, right) == ""
            nan = np.zeros(0, bool) if right.nan is None else right.nan
            assert device.within(*map(device.put, (got, right.low, right.high, nan))) == expected
            found.append(expected)
    assert 0.2 < np.mean(found) < 0.8


@emulated
def test_equal_arrays_are_told_from_others(device: EmulatedDevice) -> None:
    rng, found = np.random.default_rng(1), []
    for _ in range(40):
        a = rng.integers(0, 256, int(rng.integers(1, rng.choice([20, 5000])))).astype(np.uint8)
        b = a.copy()
        b[rng.integers(a.size)] ^= rng.integers(2) << rng.integers(8)
        found.append(same_bits(a, b))
        assert device.same(device.put(a), device.put(b)) == found[-1]
    assert 0.2 < np.mean(found) < 0.8


@emulated
@pytest.mark.parametrize("size", [1, 7, 301])
def test_arrays_are_filled(device: EmulatedDevice, size: int) -> None:
    for dtype in DTYPES:
        handle = device.put(np.zeros(size, dtype))
        device.fill(handle, poison_value(dtype))
        assert same_bits(device.get(handle), np.full(size, poison_value(dtype)))


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_the_kernels_compile() -> None:
    made = compile_source(ARRAY_CHECKS, "sm_80")
    names = {k.name for k in made.resources}
    assert names == {"fill", "differ", *[f"outside_{dtype}" for dtype in JUDGED]}
