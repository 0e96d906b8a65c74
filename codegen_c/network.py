"""Networks on the processor: one shared library whose driver calls the kernels in order, no Python in between."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from ansor.core.device.nd import ALIGNMENT
from ansor.core.device.network_backend import Array, CompiledNetwork
from ansor.core.device.network_memory import HostMemory
from ansor.core.device.network_plan import ExecutionPlan, KernelCode
from ansor.core.errors import GraphError
from ansor.core.files.kernel_store import KernelStore
from ansor.core.values.recurrence import Recurrence
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.loops.stmt import LoweredFunc

from .compile import OBJECT_FLAGS, compiler_facts, object_code, store_path
from .emit import emit, refuse_threads
from .errors import CompileError
from .library import RUN, SECONDS, driver_source, hoist_scratch, library_file, link
from .openmp import open_library
from .processor import check_machine, flags_for, host_options, machine_facts, options_for

DRIVER, BINARY = "network.c", "network.so"


class CExecutor(HostMemory):
    """A network in the memory of this machine (see `Executor`); `run` returns when the run is done."""

    def __init__(self, network: CompiledNetwork) -> None:
        self._run, self._seconds = _functions(network.binaries.get(BINARY, b""))
        steps: list[Any] = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        self._run.restype, self._run.argtypes = None, steps
        self._seconds.restype, self._seconds.argtypes = ctypes.c_double, [ctypes.c_int64, *steps]
        self._pointers = (ctypes.c_void_p * max(network.plan.externals, 1))()
        super().__init__(network)
        self._arena = self.arena.ctypes.data

    def use(self, storage: int, memory: Array) -> None:
        super().use(storage, memory)
        self._pointers[storage] = memory.ctypes.data

    def point(self, storage: int, address: int) -> None:
        """As of HostMemory, and nothing more: the arrays of `array` are those of the memory that was used before."""
        self._pointers[storage] = address

    def point_arena(self, address: int) -> None:
        super().point_arena(address)
        self._arena = address

    def run(self, stream: int | None = None) -> None:
        self._run(0, len(self.plan.steps), self._arena, self._pointers)

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        end = len(self.plan.steps) if last is None else last
        return float(self._seconds(number, first, end, self.arena.ctypes.data, self._pointers))


def _functions(code: bytes) -> tuple[Any, Any]:
    """The entries of a network's library."""
    try:
        binary = open_library(library_file(code))
        return binary[RUN], binary[SECONDS]
    except (OSError, AttributeError) as error:
        raise GraphError(f"network: {BINARY} is no library of a network ({type(error).__name__})") from error


class CNetworkBackend:
    """Target kind `c` (see `NetworkBackend`)."""

    device_type = "cpu"
    alignment = ALIGNMENT
    slack = 0
    suffix = ".c"

    def accept(self, func: LoweredFunc, target: str) -> None:
        refuse_threads(func)

    def store(self) -> KernelStore:
        return KernelStore(store_path(), [*compiler_facts(), *OBJECT_FLAGS, repr(host_options())], CompileError)

    def code(self, func: LoweredFunc, target: str) -> KernelCode:
        whole, scratch = hoist_scratch(func, options_for(target))
        written = emit(whole, func.name, options_for(target))
        return KernelCode(func.name, written, tuple([b.size * BYTES[b.dtype] for b in scratch]))

    def recurrence(self, loop: Recurrence, target: str) -> None:
        return None

    def asked(self, target: str) -> str:
        return target

    def compile(self, func: LoweredFunc | None, code: KernelCode, target: str) -> bytes:
        return object_code(code.source, code.name, flags_for(target, OBJECT_FLAGS))

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        driver = driver_source(plan)
        return {DRIVER: driver}, {BINARY: link({**compiled, "network": object_code(driver, "network")})}

    def machine(self, target: str) -> dict[str, Any]:
        return machine_facts()

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        require(index == 0, GraphError, "network", "the only processor is number 0", device=index)
        check_machine("network", facts)

    def open(self, network: CompiledNetwork, index: int) -> CExecutor:
        return CExecutor(network)
