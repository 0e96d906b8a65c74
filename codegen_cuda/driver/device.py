"""The GPU itself: context, memory, modules, launches.  The only file that imports PyCUDA, and only when opened.

Opening a device takes the primary context, which frameworks in the same process share.
"""

from __future__ import annotations

import atexit
import importlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.host.hints import install
from te_lite.errors import require
from te_lite.meaning.drawn import DRAWN

from ..overlap.prefetch import NOTHING, TYPES, Ahead
from ..program.errors import DeviceError
from ..program.facts import maps_of
from .array_checks import ARRAY_CHECKS, JUDGED, LARGE_CHECKS, ArrayChecks, LargeChecks
from .compile import compile_source
from .tensor_maps import MapKernel, encoded
from .timing import SPIN_SOURCE, FirstCall, Stopwatch, Wanted

Array = np.ndarray[Any, np.dtype[Any]]
NO_GPU = (
    f"target 'cuda' needs an NVIDIA GPU with its driver and PyCUDA ({install('cuda')}), or use target 'c'; without one,"
    " a target with an architecture, 'cuda -arch=sm_90', has its programs chosen (--trials 0), compiled and exported,"
    " and programs can be searched by estimates and run in an emulator (docs/measuring.md)"
)


def driver() -> Any:
    """PyCUDA's driver module, initialised.  Raises DeviceError in one sentence when there is none."""
    try:
        module = importlib.import_module("pycuda.driver")
    except ImportError as error:
        raise DeviceError(f"{NO_GPU}: {str(error).splitlines()[0]}") from error
    try:
        module.init()
    except module.Error as error:
        raise DeviceError(f"{NO_GPU}: {error}") from error
    return module


def device_count() -> int:
    """How many devices the driver shows, at least one.  Raises DeviceError."""
    count = int(driver().Device.count())
    require(count > 0, DeviceError, NO_GPU, "the driver shows no device")
    return count


def architecture(index: int = 0) -> str:
    """The architecture of device `index`, like `sm_90`; makes no context."""
    cuda = driver()
    count = cuda.Device.count()
    require(index < count, DeviceError, "target 'cuda'", f"there are {count} devices", device=index)
    major, minor = cuda.Device(index).compute_capability()
    return f"sm_{major}{minor}"


ATTRIBUTES = (
    "MULTIPROCESSOR_COUNT", "MAX_SHARED_MEMORY_PER_BLOCK", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MAX_REGISTERS_PER_BLOCK", "MAX_THREADS_PER_BLOCK", "WARP_SIZE", "L2_CACHE_SIZE", "CLOCK_RATE", "MEMORY_CLOCK_RATE",
)  # fmt: skip
"""Of a device, in the order of `DeviceNumbers`."""


@dataclass(frozen=True)
class DeviceNumbers:
    """What the driver says of a device: bytes of shared memory of a block (without and with asking for it), of L2 and
    of memory, registers of a block, clocks in kHz.
    """

    name: str
    arch: str
    multiprocessors: int
    shared_bytes: int
    shared_optin_bytes: int
    registers: int
    threads_per_block: int
    warp_size: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bytes: int

    def summary(self) -> str:
        """What tells devices apart: architecture, multiprocessors, memory."""
        return f"{self.arch}, {self.multiprocessors} SMs, {self.memory_bytes / 2**30:.0f} GiB"

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.name}, {self.arch}, {self.multiprocessors} SMs at {self.clock_khz // 1000} MHz, shared memory "
            f"{self.shared_bytes >> 10} KiB a block ({self.shared_optin_bytes >> 10} KiB on request), "
            f"{self.registers} registers, L2 {self.l2_bytes >> 20} MiB, memory at {self.memory_clock_khz // 1000} MHz"
        )


def device_numbers(index: int = 0) -> DeviceNumbers:
    """The numbers of device `index`; makes no context.  Raises DeviceError."""
    arch, cuda = architecture(index), driver()
    device = cuda.Device(index)
    numbers = [int(device.get_attribute(getattr(cuda.device_attribute, name))) for name in ATTRIBUTES]
    return DeviceNumbers(device.name(), arch, *[*numbers, int(device.total_memory())])


@dataclass(frozen=True)
class DeviceArray:
    """Memory on a device with the shape and dtype of an array."""

    allocation: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def pointer(self) -> int:
        return int(self.allocation)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "version": 3}


class CudaDevice:
    """Device number `index`; an `ansor.core.device.backend.Device` that checks and draws arrays itself
    (`DrawsArrays`)."""

    map_kernel: Callable[..., Any] = MapKernel
    encoded = staticmethod(encoded)
    """What kernels with tensor maps are made by, and their maps."""

    def __init__(self, index: int) -> None:
        self._index, self.cuda = index, driver()
        self.arch = architecture(index)
        self.context = self.cuda.Device(index).retain_primary_context()
        self.context.push()
        atexit.register(self.context.pop)

    def empty(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Uninitialised device memory."""
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        try:
            return DeviceArray(self.cuda.mem_alloc(max(nbytes, 1)), tuple(shape), kind)
        except self.cuda.MemoryError as error:
            free = self.free_bytes()
            raise DeviceError(f"memory of device {self._index}: {nbytes} bytes are needed, {free} are free") from error

    def put(self, array: Array) -> DeviceArray:
        """A device array with a copy of `array`."""
        handle = self.empty(array.shape, array.dtype)
        self.write(handle, array)
        return handle

    def write(self, handle: DeviceArray, array: Array) -> None:
        """Overwrite a device array."""
        if array.nbytes:
            self.cuda.memcpy_htod(handle.pointer, np.ascontiguousarray(array))

    def get(self, handle: DeviceArray) -> Array:
        """A host copy of a device array."""
        out = np.empty(handle.shape, handle.dtype)
        self.cuda.memcpy_dtoh(out, handle.pointer)
        return out

    def free_bytes(self) -> int:
        """Memory that nobody has taken."""
        return int(self.cuda.mem_get_info()[0])

    def fill(self, handle: DeviceArray, value: Array) -> None:
        """Give every element the one of `value`, bit by bit; done when later work on the device begins."""
        self._checks.fill(handle.pointer, handle.nbytes, value)

    def same(self, handle: DeviceArray, other: DeviceArray) -> bool:
        """Whether two arrays of a size hold the same bits."""
        return self._checks.same(handle.pointer, other.pointer, handle.nbytes)

    def judges(self, dtype: str) -> bool:
        """Whether `within` can be asked of arrays of `dtype`."""
        return dtype in JUDGED

    def within(self, handle: DeviceArray, low: DeviceArray, high: DeviceArray, nan: DeviceArray) -> bool:
        """Whether each element lies between those of `low` and `high`, or is NaN where `nan` says so."""
        pointers = [a.pointer for a in (handle, low, high, nan)]
        return self._checks.within(str(handle.dtype), pointers, nan.nbytes, handle.size)

    def draws(self, dtype: str) -> bool:
        """Whether `draw` makes arrays of `dtype`."""
        return dtype in DRAWN

    def draw(self, handle: DeviceArray, key: tuple[int, int]) -> None:
        """Make the elements those of `te_lite.meaning.drawn.DrawnArray`; done when later work on the device begins."""
        self._large.draw(str(handle.dtype), handle.pointer, handle.size, key)

    def drawn(self, handle: DeviceArray, key: tuple[int, int]) -> bool:
        """Whether the elements are those that `draw` makes, bit by bit."""
        return self._large.drawn(str(handle.dtype), handle.pointer, handle.size, key)

    def astray(
        self, handle: DeviceArray, other: DeviceArray, slope: float, floor: float, most: int
    ) -> tuple[int, Array]:
        """How many elements are off those of `other`, and flat indices of some; see `LargeChecks.astray`."""
        pointers = (handle.pointer, other.pointer)
        return self._large.astray(str(handle.dtype), pointers, handle.size, slope, floor, most)

    def pick(self, handle: DeviceArray, places: DeviceArray) -> Array:
        """A host copy of the elements at flat indices, an array of int64 on the device."""
        return self._large.pick(handle.pointer, places.pointer, places.size, handle.dtype)

    @cached_property
    def _checks(self) -> ArrayChecks:
        return ArrayChecks(self.cuda, compile_source(ARRAY_CHECKS, self.arch).cubin)

    @cached_property
    def _large(self) -> LargeChecks:
        return LargeChecks(self.cuda, compile_source(LARGE_CHECKS, self.arch).cubin)

    def load(self, directory: str) -> DeviceProgram:
        """Load what `CudaBackend.build` left in `directory`."""
        place = Path(directory)
        facts = json.loads((place / "program.json").read_text())
        cubins = [(place / cubin_file(k)).read_bytes() for k in range(len(facts["kernels"]))]
        return DeviceProgram(self, cubins, facts)

    @cached_property
    def numbers(self) -> DeviceNumbers:
        """What the driver says of it."""
        return device_numbers(self._index)

    @cached_property
    def stopwatch(self) -> Stopwatch:
        """Times launches on this device."""
        return Stopwatch(self.cuda, compile_source(SPIN_SOURCE, self.arch).cubin)


def cubin_file(kernel: int) -> str:
    """The name of the file with the machine code of a kernel, in the directory of a built program."""
    return f"kernel{kernel}.cubin"


class DeviceProgram:
    """Loaded kernels with their scratch memory; `facts` is the JSON that `facts.program_facts` makes.

    `cubins`: one that has all kernels, or one for each.  `ahead`: the kernels wait for those before them
    (`dependent_launch.py`), and take what they fetch for later ones.  All take the `sizes` behind their pointers.
    """

    def __init__(self, device: CudaDevice, cubins: Sequence[bytes], facts: dict[str, Any]) -> None:
        self.device = device
        self._load = cache(device.cuda.module_from_buffer)
        self._scratch = [device.cuda.mem_alloc(max(int(n), 1)) for n in facts["scratch_bytes"]]
        self._arguments = int(facts["arguments"])
        self.ahead, self.sizes = bool(facts.get("ahead")), list(facts.get("sizes", ()))
        self.kernels: list[tuple[Any, dict[str, Any]]] = []
        count = len(facts["kernels"]) if len(cubins) == 1 else 1
        for k, cubin in zip(facts["kernels"], [*cubins] * count, strict=True):
            maps = maps_of(k)
            function = device.map_kernel(cubin, k["name"], int(k["dynamic_bytes"])) if maps else self._plain(cubin, k)
            self.kernels.append((function, {**k, "maps": maps}))
        self._first: FirstCall | None = None

    def _plain(self, cubin: bytes, k: dict[str, Any]) -> Any:
        function = self._load(cubin).get_function(k["name"])
        function.prepare("P" * len(k["arguments"]) + "i" * len(self.sizes) + (TYPES if self.ahead else ""))
        if k["dynamic_bytes"]:
            attribute = self.device.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(attribute, int(k["dynamic_bytes"]))
        return function

    def launches(self, args: Sequence[Any], ahead: Ahead = NOTHING) -> list[tuple[Any, ...]]:
        """What each kernel is called with: `(function, grid, block, arguments, dynamic bytes)`.

        The first kernel fetches what `ahead` says, if they take it.
        """
        law = f"{self._arguments} arrays are needed"
        require(len(args) == self._arguments, DeviceError, "launch", law, got=len(args))
        pointers, calls = [a.pointer for a in args] + [int(s) for s in self._scratch], []
        for n, (f, k) in enumerate(self.kernels):
            maps = [self.device.encoded(m, pointers[m.argument]) for m in k["maps"]]
            values = maps + [pointers[a] for a in k["arguments"]] + self.sizes
            if self.ahead:
                here = ahead if n == 0 else NOTHING
                values += here.arguments(math.prod(k["grid"]), self.device.numbers.multiprocessors)
            calls.append((f, tuple(k["grid"]), tuple(k["block"]), values, int(k["dynamic_bytes"])))
        return calls

    def launch(self, calls: Sequence[tuple[Any, ...]], stream: Any = None) -> None:
        """Queue every kernel once."""
        for function, grid, block, arguments, dynamic in calls:
            function.prepared_async_call(grid, block, stream, *arguments, shared_size=dynamic)

    def run(self, args: Sequence[Any]) -> None:
        """Run once, and wait for the end."""
        calls = self.launches(args)
        self._first = self.device.stopwatch.first(lambda: self.launch(calls))

    def time(
        self, args: Sequence[Any], number: int, repeat: int, min_repeat_ms: int, flush: bool, best: float
    ) -> list[float]:
        """Seconds per call, `repeat` timings, see `timing.py`; slower programs than `best` may be called less often.

        What the last run took counts as a first call, once.
        """
        calls, first, self._first = self.launches(args), self._first, None
        wanted = Wanted(number, repeat, min_repeat_ms * 1e-3, flush, best)
        return self.device.stopwatch.measure(lambda: self.launch(calls), len(calls), wanted, first)
