"""Blocks with more than 48 KiB of shared memory: sampled, emitted, compiled, launched, and emulated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import GPUS, HardwareParams
from ansor.sketch import generate_sketches
from codegen_cuda import CudaProgram, LimitError, Limits, check_limits, compile_source, emit, require_limits
from codegen_cuda.backend import CudaBackend
from codegen_cuda.driver.device import DeviceProgram
from codegen_cuda.emission.limits import SHARED_ON_REQUEST
from codegen_cuda.emulation.emulator import run_program
from te_lite.loops.stmt import LoweredFunc
from tests.amount import some
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.drawn_programs import drawn_program
from tests.oracle import Oracle
from tests.workloads import matmul

DAG = te.ComputeDAG(matmul(128, 96, 128))
KIB = 1024


def large_program(seed: int, hardware: HardwareParams = GPUS["H200"]) -> tuple[LoweredFunc, CudaProgram]:
    """A sampled matrix product whose blocks need more than 48 KiB, of several threads."""
    (sketch,) = generate_sketches(DAG, "cuda", hardware)
    rng = np.random.default_rng(seed)
    while True:
        state = drawn_program(sketch, "cuda", hardware, rng)
        assert state is not None
        func = te.lower(state)
        program = emit(func)
        if program.kernels[0].shared_bytes > 48 * KIB and 64 <= program.kernels[0].threads <= 256:
            return func, program


def test_the_presets_are_what_their_architectures_grant() -> None:
    archs = {"V100": "sm_70", "T4": "sm_75", "A100": "sm_80", "H100": "sm_90", "H200": "sm_90", "RTX3090": "sm_86"}
    archs["RTX4090"] = "sm_89"
    assert {m: h.max_shared_memory_per_block for m, h in GPUS.items()} == {
        m: SHARED_ON_REQUEST[a] for m, a in archs.items()
    }


@pytest.mark.parametrize(
    ("arch", "kib"), [("sm_90", 227), ("sm_90a", 227), ("sm_80", 163), ("sm_75", 64), ("sm_1", 48)]
)
def test_limits_of_architectures(arch: str, kib: int) -> None:
    assert Limits.of_architecture(arch).shared_bytes == kib * KIB


def test_no_block_asks_for_more_than_the_hardware_allows() -> None:
    hardware = HardwareParams(target="cuda", max_shared_memory_per_block=56 * KIB)
    for seed in range(some(3, 1)):
        _, program = large_program(seed, hardware)
        assert 48 * KIB < program.kernels[0].dynamic_bytes <= 56 * KIB


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize("seed", range(2))
def test_large_blocks_compute_their_workload(seed: int) -> None:
    oracle = Oracle(DAG, np.random.default_rng(seed))
    _, program = large_program(seed)
    args = oracle.arguments()
    run_program(program, args)
    assert oracle.compare(args) is None


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_a_built_program_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEGEN_CUDA_CACHE", "off")
    func, program = large_program(0)
    CudaBackend().build(func, "cuda -arch=sm_90", str(tmp_path))
    facts = json.loads((tmp_path / "program.json").read_text())
    assert [k["dynamic_bytes"] for k in facts["kernels"]] == [program.kernels[0].shared_bytes]
    assert compile_source(program.source, "sm_90").resources[0].shared == 0


def test_what_an_architecture_lacks_is_refused_before_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An A100 refuses what an H200 takes, and no compiler is asked."""

    def compiler(*_: Any, **__: Any) -> None:
        raise AssertionError("the compiler was asked")

    monkeypatch.setattr("codegen_cuda.backend.compile_source", compiler)
    func, program = large_program(0)
    need = program.kernels[0].shared_bytes
    with pytest.raises(LimitError, match=rf"bytes of shared memory of a block: at most 65536, got {need}"):
        CudaBackend().build(func, "cuda -arch=sm_75", str(tmp_path))
    with pytest.raises(AssertionError, match="the compiler was asked"):
        CudaBackend().build(func, "cuda -arch=sm_90", str(tmp_path))
    assert list(tmp_path.iterdir()) == [] and check_limits(func, Limits.of_architecture("sm_90")) == []


def test_a_refusal_is_one_sentence_for_each_number() -> None:
    func, _ = large_program(1)
    with pytest.raises(LimitError) as caught:
        require_limits(func, Limits(threads_per_block=32, shared_bytes=KIB))
    text = str(caught.value)
    assert (
        "threads of a block: at most 32" in text and "; " in text and "shared memory of a block: at most 1024" in text
    )


class FakeFunction:
    """What `DeviceProgram` does with a kernel."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def prepare(self, types: str) -> None:
        self.calls.append(("prepare", types))

    def set_attribute(self, attribute: str, value: int) -> None:
        self.calls.append((attribute, value))

    def prepared_async_call(self, grid: Any, block: Any, stream: Any, *args: int, shared_size: int) -> None:
        self.calls.append(("launch", grid, block, args, shared_size))


def test_a_launch_asks_the_device_for_the_memory() -> None:
    kernel = FakeFunction()
    attributes = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic shared bytes")
    module = SimpleNamespace(get_function=lambda name: kernel)
    cuda = SimpleNamespace(module_from_buffer=lambda cubin: module, function_attribute=attributes)
    one = {"name": "k", "grid": [2, 1, 1], "block": [64, 1, 1], "arguments": [0], "dynamic_bytes": 70000}
    device: Any = SimpleNamespace(cuda=cuda, stopwatch=SimpleNamespace(first=lambda queue: queue()))
    program = DeviceProgram(device, [b""], {"arguments": 1, "scratch_bytes": [], "kernels": [one]})
    program.run([SimpleNamespace(pointer=16)])
    assert kernel.calls == [
        ("prepare", "P"), ("dynamic shared bytes", 70000), ("launch", (2, 1, 1), (64, 1, 1), (16,), 70000),
    ]  # fmt: skip
