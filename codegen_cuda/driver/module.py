"""A compiled program as a function of arrays: NumPy's, PyCUDA's, torch's, or anything on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ansor.core.device.exported_program import Argument, arguments_of
from te_lite.errors import require
from te_lite.loops.stmt import LoweredFunc
from te_lite.timing import Timing

from ..emission.emit import emit
from ..emission.limits import Limits, require_limits
from ..program.cuda_program import CudaProgram
from ..program.errors import DeviceError
from ..program.facts import program_facts
from .compile import CompiledModule, compile_source
from .device import CudaDevice, DeviceProgram

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Pointer:
    """Somebody else's device memory."""

    pointer: int


@lru_cache(maxsize=8)
def open_device(index: int = 0) -> CudaDevice:
    """A device of this process; one object for each of the first eight."""
    return CudaDevice(index)


class CudaFunction:
    """`function(*arrays)` runs kernels; outputs that are NumPy arrays are copied back.

    `arguments` are the arrays in order, `source` is the CUDA C++ text; `facts` are what `program_facts` makes.  The
    kernels are loaded when they are first run.
    """

    def __init__(
        self, arguments: Sequence[Argument], source: str, entry_name: str, cubin: bytes, facts: dict[str, Any]
    ) -> None:
        self.arguments = tuple(arguments)
        self.source = source
        self.entry_name = entry_name
        self._cubin, self._facts = cubin, facts
        self._loaded: DeviceProgram | None = None

    def _load(self) -> DeviceProgram:
        if self._loaded is None:
            self._loaded = DeviceProgram(open_device(), [self._cubin], self._facts)
        return self._loaded

    def _arguments(self, arrays: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, Array]]]:
        """Device arrays, and those that are copies of NumPy arrays."""
        want = self.arguments
        law = f"{len(want)} arrays are needed"
        require(len(arrays) == len(want), DeviceError, self.entry_name, law, got=len(arrays))
        found = [_handle(argument, array) for argument, array in zip(want, arrays, strict=True)]
        return [handle for handle, _ in found], [(handle, host) for handle, host in found if host is not None]

    def __call__(self, *arrays: Any) -> None:
        """Run once and wait.  Raises DeviceError for a wrong number, shape, dtype or layout of arrays."""
        program = self._load()
        handles, copies = self._arguments(arrays)
        program.run(handles)
        for handle, host in copies:
            host[...] = open_device().get(handle)

    def time(self, *arrays: Any, number: int = 3, repeat: int = 1, min_repeat_ms: int = 100) -> Timing:
        """Seconds per call, see `timing.py`."""
        program = self._load()
        handles, _ = self._arguments(arrays)
        return Timing(tuple(program.time(handles, number, repeat, min_repeat_ms, flush=False, best=math.inf)))

    def time_evaluator(
        self, name: str, dev: Any = None, number: int = 10, repeat: int = 1, min_repeat_ms: int = 0
    ) -> Callable[..., Timing]:
        """A function of arrays that gives a `Timing`, as TVM's modules have it."""
        require(name == self.entry_name, DeviceError, name, f"the entry is {self.entry_name}")
        return lambda *arrays: self.time(*arrays, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)


def emitted_program(func: LoweredFunc, arch: str) -> CudaProgram:
    """The source of a program within the limits of an architecture.  Raises LimitError or EmitError."""
    require_limits(func, Limits.of_architecture(arch))
    return emit(func)


def compiled_program(func: LoweredFunc, arch: str) -> tuple[CudaProgram, CompiledModule]:
    """Source and machine code; a program beyond the limits of the architecture is refused before it is compiled.

    Raises LimitError, EmitError or CompileError.
    """
    program = emitted_program(func, arch)
    return program, compile_source(program.source, arch)


class CudaModule(CudaFunction):
    """A lowered program, compiled.  Raises LimitError, EmitError or CompileError when it is made."""

    def __init__(self, func: LoweredFunc, arch: str) -> None:
        self.program, self._compiled = compiled_program(func, arch)
        facts, cubin = program_facts(self.program), self._compiled.cubin
        super().__init__(arguments_of(func), self.program.source, func.name, cubin, facts)

    @property
    def resources(self) -> Any:
        """Registers, spills and shared memory of each kernel, as the compiler reports them."""
        return self._compiled.resources


def _handle(argument: Argument, array: Any) -> tuple[Any, Array | None]:
    """A device array for an argument, and the NumPy array that it is copied to (None: it is on the device, or read)."""
    law = f"an array of {list(argument.shape)} {argument.dtype} is needed"
    require(not isinstance(array, list | tuple | float | None), DeviceError, argument.name, law, got=array)
    shape, dtype = tuple(array.shape), np.dtype(str(array.dtype).removeprefix("torch."))
    ok = shape == argument.shape and dtype == np.dtype(argument.dtype)
    require(ok, DeviceError, argument.name, law, shape=list(shape), dtype=str(dtype))
    if (interface := getattr(array, "__cuda_array_interface__", None)) is not None:
        contiguous = (strides := interface.get("strides")) in (None, np.empty(shape, dtype).strides)
        require(contiguous, DeviceError, argument.name, "the array must be contiguous", strides=strides)
        return Pointer(int(interface["data"][0])), None
    host, written = np.asarray(array), argument.written
    require(host.flags.writeable or not written, DeviceError, argument.name, "is written, it must not be read-only")
    return open_device().put(host), host if written else None
