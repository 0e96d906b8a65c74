"""The backend of target `cuda` (see `ansor.core.device.backend.Backend`).

A built program is a directory with `program.cu`, `program.json` (launch shapes and arguments) and a cubin for each
kernel: of the programs of a search, three in four kernels are those of programs before, and are compiled once.
The architecture is the target's `-arch`, or that of the first device.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansor.core.device.backend import Backend
from ansor.core.host.hints import install
from ansor.core.target.hardware import HardwareParams
from ansor.core.tasks.measure_values import DeviceInfo
from te_lite.extensions import required_part
from te_lite.loops.stmt import LoweredFunc

from .driver import nvrtc
from .driver.architecture import target_architecture
from .driver.compile import available_compilers, compile_source, compiler_name
from .driver.device import CudaDevice, architecture, cubin_file, device_count, device_numbers, driver
from .driver.export import CudaExporter
from .driver.module import CudaModule, emitted_program, open_device
from .driver.toolkit import sanitizer_path
from .emission.emit import emit
from .networks.network import CudaNetworkBackend
from .program.errors import CompileError, DeviceError
from .program.facts import program_facts

SMALLEST = 'extern "C" __global__ void zero(float *x) { x[threadIdx.x] = 0; }'


def _nvrtc() -> tuple[str, bool, str]:
    """The compiler, if it compiles: one that does not find what it opens by itself only says so then."""
    if not available_compilers():
        return "nvrtc", False, "is not found"
    try:
        compile_source(SMALLEST, nvrtc.architectures()[-1], use_cache=False)
    except CompileError as error:
        return "nvrtc", False, str(error)
    return "nvrtc", True, compiler_name()


def _pycuda() -> tuple[str, bool, str]:
    try:
        return "PyCUDA", True, importlib.metadata.version("pycuda")
    except importlib.metadata.PackageNotFoundError:
        return "PyCUDA", False, f"is not installed ({install('cuda')})"


class CudaBackend(Backend):
    """Target `cuda`."""

    kind = "cuda"
    shares_host = False
    exports = CudaExporter()
    networks = CudaNetworkBackend()

    def check(self, target: str) -> None:
        """Raises DeviceError without a GPU, CompileError without a compiler."""
        architecture()
        compiler_name()

    def check_portable(self, target: str) -> None:
        """Raises CompileError without a compiler, DeviceError when no architecture is known."""
        compiler_name()
        target_architecture(target)

    def source(self, func: LoweredFunc, target: str) -> str:
        """The CUDA C++ text; needs no device.  Raises EmitError."""
        return emit(func).source

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Compile into `directory`; programs beyond the limits of the architecture are refused before.

        Raises LimitError, EmitError, CompileError, or DeviceError when no architecture is known.
        """
        arch, place = target_architecture(target), Path(directory)
        program = emitted_program(func, arch)
        for k, cubin in enumerate([compile_source(unit, arch).cubin for unit in program.units]):
            (place / cubin_file(k)).write_bytes(cubin)
        (place / "program.cu").write_text(program.source)
        (place / "program.json").write_text(json.dumps(program_facts(program)))

    def open(self, index: int) -> CudaDevice:
        """Device number `index`.  Raises DeviceError."""
        return open_device(index)

    def devices(self) -> list[DeviceInfo]:
        """The GPUs that the driver shows.  Raises DeviceError, one sentence, when there are none."""
        numbers = [device_numbers(k) for k in range(device_count())]
        return [DeviceInfo(self.kind, k, found.name, found.summary()) for k, found in enumerate(numbers)]

    def report(self) -> list[tuple[str, bool, str]]:
        """The compiler, the sanitizer, the driver, and the numbers of the devices."""
        rows, sanitizer = [_nvrtc(), _pycuda()], sanitizer_path()
        rows.append(("sanitizer", sanitizer is not None, sanitizer or "compute-sanitizer is not found"))
        try:
            cuda = driver()
            major, minor = divmod(cuda.get_driver_version(), 1000)
            rows.append(("CUDA driver", True, f"{major}.{minor // 10}"))
            rows += [(f"GPU {k}", True, device_numbers(k).text()) for k in range(cuda.Device.count())]
        except DeviceError as error:
            rows.append(("GPU", False, str(error)))
        return rows

    def hardware(self, target: str) -> HardwareParams:
        """What the first device allows, shared memory on request included.  Raises DeviceError without one."""
        found = device_numbers()
        return replace(
            HardwareParams.for_target(target),
            max_shared_memory_per_block=found.shared_optin_bytes,
            max_threads_per_block=found.threads_per_block,
            warp_size=found.warp_size,
        )

    def described(self, target: str) -> str:
        """With the architecture of the first device, where neither that nor a model is said."""
        said = any(word.startswith(("-arch=", "-model=")) for word in target.split())
        return target if said else f"{target} -arch={architecture()}"

    def described_device(self, target: str, index: int = 0) -> str:
        """The model, the architecture that programs are compiled for, multiprocessors and memory."""
        found = replace(device_numbers(index), arch=target_architecture(target))
        return f"{found.name}, {found.summary()}"

    def described_compiler(self, target: str) -> str:
        """The compiler and its version.  Raises CompileError when there is none."""
        return compiler_name()

    def module(self, func: LoweredFunc, target: str) -> Callable[..., Any]:
        """A function of NumPy arrays and device arrays, see `CudaModule`."""
        made: Callable[..., CudaModule] = required_part("open_cuda_module") if func.sizes else CudaModule
        return made(func, target_architecture(target))


BACKEND = CudaBackend()
