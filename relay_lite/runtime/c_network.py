"""Networks on the processor: one shared library whose driver calls the kernels in order, no Python in between."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ansor.core.nd import NDArray, aligned_empty, cpu
from codegen_c import emit
from codegen_c.emit import refuse_threads
from codegen_c.host import instruction_sets
from codegen_c.library import (
    RUN,
    SECONDS,
    KernelCall,
    Pointer,
    driver_source,
    hoist_scratch,
    library_file,
    link,
    object_code,
)
from te_lite.c_text import BYTES
from te_lite.errors import require
from te_lite.stmt import LoweredFunc

from ..ir.errors import GraphError
from ..ir.nodes import Array
from .compiled_network import CompiledNetwork, KernelCode
from .execution_plan import ExecutionPlan

ALIGNMENT = 64
DRIVER, BINARY = "network.c", "network.so"


class CExecutor:
    """A network in the memory of this machine (see `Executor`); `run` returns when the run is done."""

    def __init__(self, library: CompiledNetwork) -> None:
        self.plan: ExecutionPlan = library.plan
        binary = ctypes.CDLL(str(library_file(library.binaries[BINARY])))
        self._run, self._seconds = binary[RUN], binary[SECONDS]
        steps: list[Any] = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        self._run.restype, self._run.argtypes = None, steps
        self._seconds.restype, self._seconds.argtypes = ctypes.c_double, [ctypes.c_int64, *steps]
        self._arena = aligned_empty((max(self.plan.arena_bytes, 1),), np.uint8)
        self._memory = [aligned_empty((s.nbytes,), np.uint8) for s in self.plan.storages[: self.plan.externals]]
        for place in self.plan.params:
            self._memory[place.storage] = library.aligned_value(place.name).reshape(-1).view(np.uint8)
        self._pointers = (ctypes.c_void_p * max(len(self._memory), 1))(*[m.ctypes.data for m in self._memory])

    def _use(self, storage: int, memory: Array) -> None:
        self._memory[storage] = memory
        self._pointers[storage] = memory.ctypes.data

    def write(self, storage: int, array: Array) -> None:
        if not self._memory[storage].flags.writeable:
            self._use(storage, aligned_empty((self.plan.storages[storage].nbytes,), np.uint8))
        self._memory[storage].view(array.dtype)[...] = array.reshape(-1)

    def array(self, storage: int, shape: Sequence[int], dtype: str) -> NDArray:
        return NDArray(self._memory[storage].view(dtype).reshape(tuple(shape)), cpu())

    def attach(self, storage: int, array: Any) -> None:
        require(hasattr(array, "__array_interface__"), GraphError, "zero copy", "an array of this machine is needed",
                type=type(array).__name__)  # fmt: skip
        host = np.asarray(array)
        sound = host.flags.c_contiguous and host.ctypes.data % ALIGNMENT == 0
        law = f"the array must be contiguous and start at a multiple of {ALIGNMENT} bytes"
        require(sound, GraphError, "zero copy", law, address=hex(host.ctypes.data), strides=host.strides)
        written = any(storage in step.written for step in self.plan.steps)
        law = "the network writes to this tensor, so the array must be writeable"
        require(host.flags.writeable or not written, GraphError, "zero copy", law)
        self._use(storage, host.reshape(-1).view(np.uint8))

    def run(self) -> None:
        self._run(0, len(self.plan.steps), self._arena.ctypes.data, self._pointers)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        end = len(self.plan.steps) if last is None else last
        return float(self._seconds(number, first, end, self._arena.ctypes.data, self._pointers))

    def flush(self, nbytes: int) -> None:
        np.full(nbytes, 1, np.uint8)


class CNetworkBackend:
    """Target kind `c` (see `NetworkBackend`)."""

    device_type = "cpu"
    alignment = ALIGNMENT
    slack = 0
    suffix = ".c"

    def accept(self, func: LoweredFunc, target: str) -> None:
        refuse_threads(func)

    def code(self, func: LoweredFunc, target: str) -> KernelCode:
        whole, scratch = hoist_scratch(func)
        return KernelCode(func.name, emit(whole, func.name), tuple([b.size * BYTES[b.dtype] for b in scratch]))

    def compile(self, code: KernelCode, target: str) -> bytes:
        return object_code(code.source, code.name)

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        driver = driver_source([KernelCall(s.kernel, _pointers(plan, s.storages)) for s in plan.steps])
        return {DRIVER: driver}, {BINARY: link({**compiled, "network": object_code(driver, "network")})}

    def machine(self, target: str) -> dict[str, Any]:
        return {"system": platform.system(), "machine": platform.machine(), "instructions": instruction_sets()}

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        require(index == 0, GraphError, "network", "the only processor is number 0", device=index)
        here = self.machine("")
        for name in ("system", "machine"):
            law = f"was compiled for {facts.get(name)!r}; build it here"
            require(facts.get(name) == here[name], GraphError, "network", law, here=here[name])
        missing = sorted(set(facts.get("instructions", ())) - set(here["instructions"]))
        law = "was compiled for instructions that this processor lacks; build it here"
        require(not missing, GraphError, "network", law, missing=missing)

    def open(self, library: CompiledNetwork, index: int) -> CExecutor:
        return CExecutor(library)


def _pointers(plan: ExecutionPlan, storages: Sequence[int]) -> tuple[Pointer, ...]:
    first = plan.externals
    return tuple([Pointer(s >= first, plan.storages[s].offset if s >= first else s) for s in storages])


C_NETWORK = CNetworkBackend()
