"""A CUDA device in the block emulator, with a backend for workers in this process: what it "compiles" is the text.

A program whose folder has a file `fault` does what `FAULTS` says of that word after each run; so does the reference
program where `REFERENCE_FAULT` has a word.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from codegen_cuda.backend import CudaBackend
from codegen_cuda.driver.array_checks import ARRAY_CHECKS, LARGE_CHECKS, ArrayChecks, LargeChecks
from codegen_cuda.driver.device import CudaDevice, DeviceArray, DeviceProgram, cubin_file
from codegen_cuda.driver.timing import FirstCall
from codegen_cuda.emission.emit import emit
from codegen_cuda.emulation.emulated_maps import map_of
from codegen_cuda.emulation.emulator import Launch, Memory, run_launches
from codegen_cuda.program.cuda_program import TensorMap
from codegen_cuda.program.facts import program_facts
from te_lite.loops.stmt import LoweredFunc

SCALARS = {"i": np.int32, "q": np.int64, "Q": np.uint64, "I": np.uint32, "f": np.float32, "d": np.float64}
MAP = "m"
COUNTS: Counter[str] = Counter()
"""Launches by kernel, and bytes moved, since it was cleared."""
REFERENCE_FAULT: list[str] = []


class EmulatedCuda:
    """What of `pycuda.driver` checks and programs use; each launch is emulated at once."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}

    def mem_alloc(self, nbytes: int) -> int:
        address = 1 << 20 if not self.memory else max(self.memory) + (1 << 20)
        self.memory[address] = np.full(-(-nbytes // 16) * 16, 255, np.uint8)
        return address

    def memcpy_htod(self, pointer: int, array: np.ndarray) -> None:
        COUNTS["up"] += array.nbytes
        self.memory[pointer][: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def memcpy_dtoh(self, array: np.ndarray, pointer: int) -> None:
        COUNTS["down"] += array.nbytes
        array.reshape(-1).view(np.uint8)[...] = self.memory[pointer][: array.nbytes]

    def memset_d32(self, pointer: int, value: int, count: int) -> None:
        self.memory[pointer][: 4 * count].view(np.uint32)[...] = value

    def module_from_buffer(self, cubin: bytes) -> Any:
        return SimpleNamespace(get_function=lambda name: EmulatedFunction(self, cubin.decode(), name))


class EmulatedFunction:
    def __init__(self, cuda: EmulatedCuda, source: str, name: str) -> None:
        self.cuda, self.source, self.name, self.types = cuda, source, name, ""

    def prepare(self, types: str) -> None:
        self.types = types

    def prepared_async_call(self, grid: Any, block: Any, stream: Any, *given: Any, shared_size: int = 0) -> None:
        COUNTS[self.name.partition("_")[0]] += 1
        maps = [pickle.loads(x) if kind == MAP else None for kind, x in zip(self.types, given, strict=True)]
        pointers = [x for kind, x in zip(self.types, given, strict=True) if kind == "P"]
        arrays = list(dict.fromkeys([*pointers, *[m[1] for m in maps if m is not None]]))
        memories, arguments = [Memory(f"m{k}", self.cuda.memory[x], True) for k, x in enumerate(arrays)], list[int]()
        for kind, x, m in zip(self.types, given, maps, strict=True):
            arguments.append(arrays.index(x) if kind == "P" else len(memories))
            if kind != "P":
                value = SCALARS[kind](x) if m is None else map_of(m[0], arrays.index(m[1]))
                memories.append(Memory(f"m{len(memories)}", value, True))
        launch = Launch(self.name, (*grid, 1)[:3], block, tuple(arguments), shared_size)
        run_launches(self.source, [launch], memories, check=True, timeout=120)


class EmulatedMapKernel(EmulatedFunction):
    """What `MapKernel` is on a GPU: maps come as bytes, and integers that are no addresses are numbers."""

    def prepared_async_call(self, grid: Any, block: Any, stream: Any, *given: Any, shared_size: int = 0) -> None:
        kinds = [MAP if isinstance(x, bytes) else "P" if x in self.cuda.memory else "Q" for x in given]
        self.prepare("".join(kinds))
        super().prepared_async_call(grid, block, stream, *given, shared_size=shared_size)


class EmulatedDevice(CudaDevice):
    free = 1 << 40

    def map_kernel(self, cubin: bytes, name: str, dynamic_bytes: int) -> EmulatedMapKernel:
        return EmulatedMapKernel(self.cuda, cubin.decode(), name)

    @staticmethod
    def encoded(m: TensorMap, address: int) -> bytes:
        return pickle.dumps((m, address))

    def __init__(self) -> None:
        self.cuda, self.arch = EmulatedCuda(), "sm_80"
        self._checks = ArrayChecks(self.cuda, ARRAY_CHECKS.encode())
        self._large = LargeChecks(self.cuda, LARGE_CHECKS.encode())
        self.stopwatch = SimpleNamespace(first=self.first, measure=self.measure)

    def free_bytes(self) -> int:
        return self.free

    @staticmethod
    def first(queue: Callable[[], None]) -> FirstCall:
        queue()
        return FirstCall(1e-3, 0.0)

    @staticmethod
    def measure(queue: Callable[[], None], *_: Any) -> list[float]:
        queue()
        return [1e-3]

    def load(self, directory: str) -> Any:
        place = Path(directory)
        facts = json.loads((place / "program.json").read_text())
        cubins = [(place / cubin_file(k)).read_bytes() for k in range(len(facts["kernels"]))]
        word = (place / "fault").read_text() if (place / "fault").exists() else ""
        reference = "ansor-reference" in directory or "reference-" in place.name
        return FaultyProgram(self, cubins, facts, REFERENCE_FAULT[0] if reference and REFERENCE_FAULT else word)

    def values(self, handle: DeviceArray) -> np.ndarray:
        """The memory of an array."""
        return self.cuda.memory[handle.pointer][: handle.nbytes].view(handle.dtype).reshape(handle.shape)


class FaultyProgram(DeviceProgram):
    def __init__(self, device: EmulatedDevice, cubins: Sequence[bytes], facts: Any, fault: str) -> None:
        super().__init__(device, cubins, facts)
        self.fault, self.arrays, self.calls = fault, [], 0

    def launches(self, args: Sequence[Any], *ahead: Any) -> list[tuple[Any, ...]]:
        self.arrays = [self.device.values(a) for a in args]
        return super().launches(args, *ahead)

    def launch(self, calls: Sequence[tuple[Any, ...]], stream: Any = None) -> None:
        super().launch(calls, stream)
        word, _, when = self.fault.partition(" ")
        if word and (self.calls or when != "later"):
            FAULTS[word](self.arrays)
        self.calls += 1


def _unwritten(arrays: list[np.ndarray]) -> None:
    arrays[-1][len(arrays[-1]) // 2, ..., -3:] = np.nan


def _put(place: Callable[[np.ndarray], Any], value: Callable[[Any], Any]) -> Callable[[list[np.ndarray]], None]:
    def spoil(arrays: list[np.ndarray]) -> None:
        at = place(arrays[-1])
        arrays[-1].flat[at] = value(arrays[-1].flat[at])

    return spoil


FAULTS: dict[str, Callable[[list[np.ndarray]], None]] = {
    "corner": _put(lambda x: x.size - 1, lambda v: v * 1.01 + 1.5),
    "middle": _put(lambda x: x.size // 2 + 3, lambda v: v * 1.01 + 1.5),
    "nan": _put(lambda x: x.size // 3, lambda v: np.nan),
    "infinite": _put(lambda x: x.size // 3, lambda v: np.inf),
    "unwritten": _unwritten,
    "race": lambda arrays: arrays[-1].reshape(-1).__setitem__(77, arrays[-1].max()),
    "scribble": lambda arrays: arrays[0].reshape(-1).__setitem__(5, 0.25),
}


class EmulatedBackend(CudaBackend):
    device = EmulatedDevice()

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        program = emit(func)
        for k, unit in enumerate(program.units):
            (Path(directory) / cubin_file(k)).write_text(unit)
        (Path(directory) / "program.json").write_text(json.dumps(program_facts(program)))

    def open(self, index: int) -> CudaDevice:
        return self.device


BACKEND = EmulatedBackend()
