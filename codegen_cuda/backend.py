"""What the search needs of target `cuda` (see `ansor.measure.api.Backend`).

A built program is a directory with `program.cu`, `program.cubin` and `program.json` (launch shapes and arguments).
The architecture is the target's `-arch`, or that of the first device.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from te_lite.stmt import LoweredFunc

from .compile import available_compilers, compile_source, compiler_name
from .device import CudaDevice, architecture, driver
from .emit import emit
from .errors import CompileError, DeviceError
from .facts import program_facts
from .module import CudaModule, open_device


@lru_cache(maxsize=1)
def _device_architecture() -> str:
    return architecture()


def target_architecture(target: str) -> str:
    """The architecture to compile for: `-arch=sm_90` of the target's text, else the first device's."""
    for word in target.split():
        if word.startswith("-arch="):
            return word.removeprefix("-arch=")
    return _device_architecture()


class CudaBackend:
    """Target `cuda`."""

    kind = "cuda"
    shares_host = False

    def check(self, target: str) -> None:
        """Raises DeviceError without a GPU, CompileError without a compiler."""
        architecture()
        compiler_name()

    def source(self, func: LoweredFunc, target: str) -> str:
        """The CUDA C++ text; needs no device.  Raises EmitError."""
        return emit(func).source

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Compile into `directory`.  Raises EmitError, CompileError, or DeviceError when no architecture is known."""
        program = emit(func)
        compiled = compile_source(program.source, target_architecture(target))
        place = Path(directory)
        (place / "program.cu").write_text(program.source)
        (place / "program.cubin").write_bytes(compiled.cubin)
        (place / "program.json").write_text(json.dumps(program_facts(program)))

    def open(self, index: int) -> CudaDevice:
        """Device number `index`.  Raises DeviceError."""
        return open_device(index)

    def report(self) -> list[tuple[str, bool, str]]:
        """The compilers and the devices."""
        names = available_compilers()
        rows = [
            ("CUDA compiler", bool(names), ", ".join(map(compiler_name, names)) or "neither NVRTC nor nvcc is found")
        ]
        try:
            cuda = driver()
            major, minor = divmod(cuda.get_driver_version(), 1000)
            rows.append(("CUDA driver", True, f"{major}.{minor // 10}"))
            for k in range(cuda.Device.count()):
                rows.append((f"GPU {k}", True, f"{cuda.Device(k).name()}, {architecture(k)}"))
        except (DeviceError, CompileError) as error:
            rows.append(("GPU", False, str(error)))
        return rows

    def module(self, func: LoweredFunc, target: str) -> Callable[..., Any]:
        """A function of NumPy arrays and device arrays, see `CudaModule`."""
        return CudaModule(func, target_architecture(target))


BACKEND = CudaBackend()
