"""Networks on an NVIDIA GPU: all kernels of a run are recorded once as a CUDA graph, and a run is one launch of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from ansor.core.backend import Array, CompiledNetwork
from ansor.core.errors import GraphError
from ansor.core.kernel_store import KernelStore
from ansor.core.nd import DeviceId, DeviceNDArray
from ansor.core.network_plan import ExecutionPlan, KernelCode
from te_lite.errors import require
from te_lite.stmt import LoweredFunc

from .architecture import check_architecture, target_architecture
from .cache import kernel_store
from .compile import OPTIONS, compile_source, compiler_name
from .cuda_graph import Fork, LaunchGraph, record_forked
from .device import CudaDevice, DeviceArray, DeviceProgram
from .early_launch import may_wait
from .emit import emit
from .facts import facts_from_json, program_facts
from .fetch_ahead import NOTHING, Ahead, laid_out
from .launch_ways import PLAIN, Way, fastest
from .limits import Limits, require_limits
from .module import Pointer, open_device
from .streams import dependencies, queues

ALIGNMENT = 256
MOST_QUEUED = 500
STREAMS = 4
"""Steps that do not need each other run on up to so many streams of the graph."""


class OnDevice(DeviceNDArray):
    """A view of device memory that somebody else owns."""

    def __init__(self, device: CudaDevice, handle: DeviceArray, where: DeviceId) -> None:
        self._device, self._handle, self.device = device, handle, where
        self.shape, self.dtype = handle.shape, str(handle.dtype)


class CudaExecutor:
    """A network in the memory of a GPU (see `Executor`); runs are queued on the default stream."""

    def __init__(self, network: CompiledNetwork, index: int) -> None:
        self.plan = network.plan
        self.device, self._where = open_device(index), DeviceId("cuda", index)
        self._programs = {
            name: DeviceProgram(self.device, [_cubin(network, name)], facts_from_json(kernel.facts))
            for name, kernel in network.kernels.items()
        }
        self._arena = self.device.empty((self.plan.arena_bytes,), np.uint8)
        self._weights = laid_out(self.plan, ALIGNMENT, self.device.numbers.l2_bytes)
        self._pool = self.device.empty((self._weights.nbytes,), np.uint8)
        self._memory: list[Any] = [self._external(k) for k in range(self.plan.externals)]
        for place in self.plan.params:
            self.write(place.storage, network.values[place.name])
        self._flushed: DeviceArray | None = None

    def _external(self, storage: int) -> Any:
        """Memory of a tensor outside the arena; parameters lie together."""
        nbytes, offset = self.plan.storages[storage].nbytes, self._weights.offsets.get(storage)
        if offset is None:
            return self.device.empty((nbytes,), np.uint8)
        return DeviceArray(_Held(self._pool, self._pool.pointer + offset), (nbytes,), np.dtype(np.uint8))

    def _pointer(self, storage: int) -> Pointer:
        if storage < self.plan.externals:
            return Pointer(self._memory[storage].pointer)
        return Pointer(self._arena.pointer + self.plan.storages[storage].offset)

    def _launches(self, step: int, way: Way = PLAIN) -> tuple[DeviceProgram, list[tuple[Any, ...]]]:
        found, weights = self.plan.steps[step], self._weights.fetched[step]
        ahead = Ahead(self._pool.pointer + weights.start, weights.nbytes) if way.fetches else NOTHING
        program = self._programs[found.kernel]
        return program, program.launches([self._pointer(s) for s in found.storages], ahead)

    def recorded(self, way: Way) -> LaunchGraph:
        """One run as a graph."""
        calls = [self._launches(k, way) for k in range(len(self.plan.steps))]
        queued = queues(dependencies(self.plan), STREAMS)

        def record(fork: Fork) -> None:
            for (program, launches), place in zip(calls, queued, strict=True):
                with fork.step(place.stream, place.waits) as stream:
                    program.launch(launches, stream)

        cuda = self.device.cuda
        return LaunchGraph(cuda, lambda stream: record_forked(cuda, stream, record), way.early)

    @cached_property
    def way(self) -> Way:
        """How kernels follow each other; what the first run finds out."""
        return fastest(self.timed) if all(program.ahead for program in self._programs.values()) else PLAIN

    def timed(self, way: Way) -> Callable[[int], float]:
        """What gives the seconds of so many runs in a way."""
        return partial(self.seconds_of, self.recorded(way).launch)

    @cached_property
    def graph(self) -> LaunchGraph:
        """One run; recorded at the first run, and again after memory was exchanged."""
        return self.recorded(self.way)

    def write(self, storage: int, array: Array) -> None:
        self.device.cuda.memcpy_htod(self._memory[storage].pointer, np.ascontiguousarray(array))

    def array(self, storage: int, shape: Sequence[int], dtype: str) -> OnDevice:
        memory = self._memory[storage]
        handle = DeviceArray(_Held(memory, memory.pointer), tuple(shape), np.dtype(dtype))
        return OnDevice(self.device, handle, self._where)

    def attach(self, storage: int, array: Any) -> None:
        interface = getattr(array, "__cuda_array_interface__", None)
        require(interface is not None, GraphError, "zero copy", "an array on the GPU is needed",
                type=type(array).__name__)  # fmt: skip
        assert interface is not None
        address = int(interface["data"][0])
        sound = interface.get("strides") is None and address % ALIGNMENT == 0
        law = f"the array must be contiguous and start at a multiple of {ALIGNMENT} bytes"
        require(sound, GraphError, "zero copy", law, address=hex(address), strides=interface.get("strides"))
        self._memory[storage] = DeviceArray(_Held(array, address), (1,), np.dtype(np.uint8))
        self.__dict__.pop("graph", None)

    def point(self, storage: int, address: int) -> None:
        self._memory[storage] = DeviceArray(_Held(None, address), (1,), np.dtype(np.uint8))
        self.__dict__.pop("graph", None)

    def run(self, stream: int | None = None) -> None:
        if self.plan.steps:
            self.graph.launch(stream)

    def synchronize(self) -> None:
        self.device.context.synchronize()

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        """By events on the stream.  Parts of a run are queued behind a kernel that waits, so launches cost nothing."""
        if first == 0 and last in (None, len(self.plan.steps)):
            return self.seconds_of(self.run, number)
        calls = [self._launches(k) for k in range(first, len(self.plan.steps) if last is None else last)]

        def queue() -> None:
            for program, launches in calls:
                program.launch(launches)

        count = max(1, min(number, MOST_QUEUED // max(len(calls), 1)))
        return self.device.stopwatch.batch(queue, count) * number

    def seconds_of(self, launch: Callable[[], None], number: int) -> float:
        """What `number` runs take that `launch` queues, one behind the other."""
        start, stop = self.device.cuda.Event(), self.device.cuda.Event()
        self.synchronize()
        start.record()
        for _ in range(number):
            launch()
        stop.record()
        stop.synchronize()
        return float(start.time_till(stop)) * 1e-3

    def flush(self, nbytes: int) -> None:
        if self._flushed is None or self._flushed.nbytes < nbytes:
            self._flushed = self.device.empty((nbytes,), np.uint8)
        self.device.cuda.memset_d8_async(self._flushed.pointer, 0, nbytes, None)


class _Held:
    """An address that keeps the memory there alive."""

    def __init__(self, array: Any, address: int) -> None:
        self._array, self._address = array, address

    def __int__(self) -> int:
        return self._address


def _cubin(network: CompiledNetwork, name: str) -> bytes:
    found = network.binaries.get(f"{name}.cubin")
    require(found, GraphError, f"kernel {name}", "its machine code is missing")
    assert found is not None
    return found


class CudaNetworkBackend:
    """Target kind `cuda` (see `NetworkBackend`)."""

    device_type = "cuda"
    alignment = ALIGNMENT
    slack = STREAMS
    suffix = ".cu"

    def accept(self, func: LoweredFunc, target: str) -> None:
        require_limits(func, Limits.of_architecture(target_architecture(target)))

    def store(self) -> KernelStore | None:
        return kernel_store([compiler_name(), *OPTIONS])

    def code(self, func: LoweredFunc, target: str) -> KernelCode:
        waits = may_wait(target_architecture(target))
        program = emit(func, waits=waits)
        facts = program_facts(program)
        scratch = tuple(facts["scratch_bytes"])
        given = {
            "arguments": len(program.buffers), "scratch_bytes": [], "kernels": facts["kernels"], "ahead": waits,
        }  # fmt: skip
        return KernelCode(func.name, program.source, scratch, given)

    def compile(self, func: LoweredFunc, code: KernelCode, target: str) -> bytes:
        return compile_source(code.source, target_architecture(target)).cubin

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        return {}, {f"{name}.cubin": cubin for name, cubin in compiled.items()}

    def machine(self, target: str) -> dict[str, Any]:
        return {"architecture": target_architecture(target)}

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        check_architecture("network", facts, index)

    def open(self, network: CompiledNetwork, index: int) -> CudaExecutor:
        return CudaExecutor(network, index)
