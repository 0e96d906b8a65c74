"""Networks on an NVIDIA GPU: all kernels of a run are recorded once as a CUDA graph, and a run is one launch of it.

A recording has the addresses of its tensors.  Where a run has others, those of the kernels that touch them are
exchanged; a few recordings are kept, since memory that comes and goes comes back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from weakref import proxy

import numpy as np

from ansor.core.device.nd import DeviceId, DeviceNDArray
from ansor.core.device.network_backend import Array, CompiledNetwork
from ansor.core.device.network_plan import ExecutionPlan, KernelCode
from ansor.core.errors import GraphError
from ansor.core.files.kernel_store import KernelStore
from ansor.core.values.recurrence import Recurrence
from te_lite.errors import require
from te_lite.loops.stmt import LoweredFunc
from te_lite.lowering.written_over import written_over

from ..driver.architecture import check_architecture, target_architecture, with_architecture
from ..driver.cache import kernel_store
from ..driver.compile import OPTIONS, compile_source, compiler_name
from ..driver.device import CudaDevice, DeviceArray, DeviceProgram
from ..driver.module import Pointer, open_device
from ..emission.emit import emit
from ..emission.limits import Limits, require_limits
from ..overlap.dependent_launch import is_short, may_wait
from ..overlap.prefetch import NOTHING, Ahead, laid_out
from ..program.errors import DeviceError
from ..program.facts import facts_from_json, program_facts
from .cuda_graph import Fork, LaunchGraph, RecordedKernel, wait
from .launch_ways import PLAIN, Way, fastest
from .parts import Recording
from .recurrence import recurrence_code
from .streams import dependencies, queues

ALIGNMENT = 256
MOST_QUEUED = 500
MOST_GRAPHS = 4
"""Recordings of a network that are kept."""
STREAMS = 4
"""Steps that do not need each other run on up to so many streams of the graph."""


class OnDevice(DeviceNDArray):
    """A view of device memory that somebody else owns."""

    def __init__(self, device: CudaDevice, handle: DeviceArray, where: DeviceId) -> None:
        self._device, self._handle, self.device = device, handle, where
        self.shape, self.dtype = handle.shape, str(handle.dtype)


class CudaExecutor:
    """A network in the memory of a GPU (see `Executor`); runs are queued on the default stream.

    Memory is taken when it is first needed: whoever says where tensors lie before that needs none.
    """

    def __init__(self, network: CompiledNetwork, index: int) -> None:
        self.plan = network.plan
        self.device, self._where = open_device(index), DeviceId("cuda", index)
        self._programs = {
            name: DeviceProgram(self.device, [_cubin(network, name)], facts_from_json(kernel.facts))
            for name, kernel in network.kernels.items()
        }
        lent = {p.storage: network.lent[p.name] for p in self.plan.params if p.name in network.lent}
        self._weights = laid_out(self.plan, ALIGNMENT, self.device.numbers.l2_bytes, lent)
        self._pool = self.device.empty((self._weights.nbytes,), np.uint8)
        self._memory: dict[int, Any] = {}
        self._pointed: dict[int, int] = dict(lent)
        self._arena: Any = None
        self._graphs: OrderedDict[tuple[int, ...], Recording] = OrderedDict()
        params = {place.storage for place in self.plan.params}
        self._open = [s for s in range(self.plan.externals) if s not in params]
        for place in self.plan.params:
            if place.storage not in lent:
                self.write(place.storage, network.values[place.name])
        self._flushed: DeviceArray | None = None

    def _held(self, storage: int) -> Any:
        """Memory of our own for a tensor outside the arena; parameters lie together."""
        if storage not in self._memory:
            nbytes, offset = self.plan.storages[storage].nbytes, self._weights.offsets.get(storage)
            self._memory[storage] = (
                self.device.empty((nbytes,), np.uint8)
                if offset is None
                else DeviceArray(_Held(self._pool, self._pool.pointer + offset), (nbytes,), np.dtype(np.uint8))
            )
        return self._memory[storage]

    def _address(self, storage: int) -> int:
        """Where a tensor outside the arena lies."""
        found = self._pointed.get(storage)
        return int(self._held(storage).pointer) if found is None else found

    def _arena_address(self) -> int:
        if self._arena is None:
            self._arena = self.device.empty((self.plan.arena_bytes,), np.uint8)
        return int(self._arena.pointer)

    def _pointer(self, storage: int) -> Pointer:
        whole, start = self.plan.place(storage)
        return Pointer((self._arena_address() if whole is None else self._address(whole)) + start)

    def _launches(self, step: int, way: Way = PLAIN) -> tuple[DeviceProgram, list[tuple[Any, ...]]]:
        found, weights = self.plan.steps[step], self._weights.fetched[step]
        base = self._pool.pointer if weights.storage is None else self._address(weights.storage)
        ahead = Ahead(int(base) + weights.start, weights.nbytes) if way.fetches else NOTHING
        program = self._programs[found.kernel]
        return program, program.launches([self._pointer(s) for s in found.storages], ahead)

    @cached_property
    def _needed(self) -> list[set[int]]:
        return dependencies(self.plan)

    def recorded(self, way: Way) -> Recording:
        """One run as graphs, one for each part without steps that go back; they keep no memory of the network."""
        return Recording(self.plan, partial(self._recorded, way), partial(CudaExecutor._goes_back, proxy(self)))

    def _goes_back(self, step: int, stream: int | None) -> bool:
        wait(stream)
        bools = [DeviceArray(self._pointer(s).pointer, (), np.dtype(bool)) for s in self.plan.steps[step].where]
        return all(map(self.device.get, bools))

    def _recorded(self, way: Way, part: range) -> LaunchGraph:
        calls = [self._launches(k, way) for k in part]
        needed = [{i - part.start for i in self._needed[k] if i in part} for k in part]

        def record(first: Any) -> list[RecordedKernel]:
            made, fork = [], Fork(self.device.cuda, first)
            for (program, launches), place in zip(calls, queues(needed, STREAMS), strict=True):
                with fork.step(place.stream, place.waits) as stream:
                    for launch in launches:
                        program.launch([launch], stream)
                        made.append(RecordedKernel(stream, program.ahead))
            fork.join()
            return made

        return LaunchGraph(self.device.cuda, record, way.early)

    @cached_property
    def way(self) -> Way:
        """How kernels follow each other; what the first run finds out where there are several."""
        several = len(self.plan.steps) > 1 and any(program.ahead for program in self._programs.values())
        return fastest(self.timed) if several else PLAIN

    def timed(self, way: Way) -> Callable[[int], float]:
        """What gives the seconds of so many runs in a way."""
        return partial(self.seconds_of, self.recorded(way).launch)

    @property
    def graph(self) -> Recording:
        """One run on the memory of now: a recording that was made for it, one more, or one whose addresses change."""
        key = (self._arena_address() if self.plan.arena_bytes else 0, *map(self._address, self._open))
        found = self._graphs.get(key)
        if found is None and len(self._graphs) < MOST_GRAPHS:
            found = self.recorded(self.way)
        elif found is None:
            before, found = self._graphs.popitem(last=False)
            self._exchange(found, before, key)
        self._graphs[key] = found
        self._graphs.move_to_end(key)
        return found

    def _exchange(self, graph: Recording, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Let a recording for the addresses `before` run on those of now, `after`."""
        moved: set[int | None] = {s for s, a, b in zip(self._open, before[1:], after[1:], strict=True) if a != b}
        moved |= {None} if before[0] != after[0] else set()
        first = 0
        for k, step in [(k, step) for k, step in enumerate(self.plan.steps) if step.kernel]:
            count = len(self._programs[step.kernel].kernels)
            if any(self.plan.place(s)[0] in moved for s in step.storages):
                for n, launch in enumerate(self._launches(k, self.way)[1]):
                    graph.exchange(first + n, launch[3])
            first += count

    def write(self, storage: int, array: Array) -> None:
        self.device.cuda.memcpy_htod(self._address(storage), np.ascontiguousarray(array))

    def array(self, storage: int, shape: Sequence[int], dtype: str) -> OnDevice:
        memory = self._memory.get(storage) if storage in self._pointed else self._held(storage)
        handle = DeviceArray(_Held(memory, self._address(storage)), tuple(shape), np.dtype(dtype))
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
        self.point(storage, address)

    def point(self, storage: int, address: int) -> None:
        if storage not in self._open and self._pointed.get(storage) != address:
            self._graphs.clear()
        self._pointed[storage] = address

    def point_arena(self, address: int) -> None:
        self._arena = Pointer(address)

    def run(self, stream: int | None = None) -> None:
        if self.plan.steps:
            self.graph.launch(stream)

    def synchronize(self) -> None:
        self.device.context.synchronize()

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        """By events on the stream.  Parts of a run are queued behind a kernel that waits, so launches cost nothing."""
        if first == 0 and last in (None, len(self.plan.steps)):
            return self.seconds_of(self.run, number)
        steps = range(first, len(self.plan.steps) if last is None else last)
        calls = [self._launches(k) for k in steps if self.plan.steps[k].kernel]

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
        waits = may_wait(target_architecture(target)) and is_short(func)
        program = emit(func, waits=waits)
        facts = program_facts(program)
        given = {**facts, "arguments": len(program.buffers), "scratch_bytes": [], "ahead": waits}
        return KernelCode(func.name, program.source, tuple(facts["scratch_bytes"]), given, written_over(func))

    def recurrence(self, loop: Recurrence, target: str) -> KernelCode | None:
        try:
            architecture = target_architecture(target)
        except DeviceError:  # tasks may be extracted for a device that is not here, and not named
            return None
        return recurrence_code(loop, architecture)

    def asked(self, target: str) -> str:
        return with_architecture(target)

    def compile(self, func: LoweredFunc | None, code: KernelCode, target: str) -> bytes:
        return compile_source(code.source, target_architecture(target)).cubin

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        return {}, {f"{name}.cubin": cubin for name, cubin in compiled.items()}

    def machine(self, target: str) -> dict[str, Any]:
        return {"architecture": target_architecture(target)}

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        check_architecture("network", facts, index)

    def open(self, network: CompiledNetwork, index: int) -> CudaExecutor:
        return CudaExecutor(network, index)
