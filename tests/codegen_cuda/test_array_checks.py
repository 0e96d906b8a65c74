"""Checks on the device say what those on the host say: their kernels, emulated, against `mismatch` and NumPy."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ansor.measure.array_checks import same_bits
from ansor.measure.check import mismatch, poison_value
from codegen_cuda.driver.array_checks import ARRAY_CHECKS, JUDGED, ArrayChecks
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.emulation.emulator import Launch, Memory, run_launches
from te_lite.expr.dtype import DTYPES
from tests.codegen_cuda.bound_cases import one_case
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
SCALARS = {"q": np.int64, "Q": np.uint64}
Array = np.ndarray


class RecordedCuda:
    """Takes launches down, to be emulated together; addresses are numbers of arrays."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.memories: list[Memory] = []
        self.launches: list[Launch] = []
        self.places: dict[int, int] = {}

    def mem_alloc(self, nbytes: int) -> int:
        return self.address(np.zeros(nbytes // 4, np.int32))

    def address(self, array: Array) -> int:
        self.places[len(self.arrays)] = self.memory(array)
        self.arrays.append(array)
        return len(self.arrays) - 1

    def memory(self, value: Any) -> int:
        self.memories.append(Memory(f"m{len(self.memories)}", value, True))
        return len(self.memories) - 1

    def memset_d32(self, pointer: int, value: int, count: int) -> None:
        """The array gets a new memory, so that each question has an answer of its own."""
        self.places[pointer] = self.memory(np.full(count, value, np.int32))

    def memcpy_dtoh(self, *_: Any) -> None: ...

    def module_from_buffer(self, cubin: bytes) -> Any:
        return SimpleNamespace(get_function=lambda name: RecordedFunction(self, name))

    def run(self) -> None:
        run_launches(ARRAY_CHECKS, self.launches, self.memories, check=True, timeout=120)

    def answer(self, launch: int) -> bool:
        """Whether a launch found nothing."""
        return not self.memories[self.launches[launch].arguments[-1]].value[0]


class RecordedFunction:
    def __init__(self, cuda: RecordedCuda, name: str) -> None:
        self.cuda, self.name, self.types = cuda, name, ""

    def prepare(self, types: str) -> None:
        self.types = types

    def prepared_async_call(self, grid: Any, block: Any, stream: Any, *given: int) -> None:
        places = [
            self.cuda.places[x] if kind == "P" else self.cuda.memory(SCALARS[kind](x))
            for kind, x in zip(self.types, given, strict=True)
        ]
        self.cuda.launches.append(Launch(self.name, (*grid, 1), block, tuple(places), 0))


def test_the_device_judges_as_the_host_does() -> None:
    cuda, rng = RecordedCuda(), np.random.default_rng(0)
    checks = ArrayChecks(cuda, b"")
    expected: list[bool] = []
    with np.errstate(all="ignore"):
        for dtype in sorted(JUDGED):
            for _ in range(12):
                got, right = one_case(rng, dtype)
                nan = np.zeros(0, bool) if right.nan is None else right.nan
                pointers = [cuda.address(a) for a in (got, right.low, right.high, nan)]
                checks.within(dtype, pointers, nan.nbytes, got.size)
                expected.append(mismatch(got, right) == "")
    for _ in range(40):
        a = rng.integers(0, 256, int(rng.integers(1, rng.choice([20, 5000])))).astype(np.uint8)
        b = a.copy()
        b[rng.integers(a.size)] ^= rng.integers(2) << rng.integers(8)
        checks.same(cuda.address(a), cuda.address(b), a.nbytes)
        expected.append(same_bits(a, b))
    filled = []
    for dtype in DTYPES:
        for size in (1, 7, 301):
            array = np.zeros(size, dtype)
            checks.fill(cuda.address(array), array.nbytes, poison_value(dtype))
            filled.append((array, np.full(size, poison_value(dtype))))
    cuda.run()
    assert [cuda.answer(k) for k in range(len(expected))] == expected
    assert 0.2 < np.mean(expected) < 0.8
    assert all(same_bits(a, b) for a, b in filled)


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_the_kernels_compile() -> None:
    made = compile_source(ARRAY_CHECKS, "sm_80")
    names = {k.name for k in made.resources}
    assert names == {"fill", "differ", *[f"outside_{dtype}" for dtype in JUDGED]}
