"""A GPU that runs nothing: launches take the seconds that a test says, events tell the time of the device."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from codegen_cuda.driver.device import DeviceProgram
from codegen_cuda.driver.timing import Stopwatch
from tests.ansor.fake_clock import FakeClock

LAUNCH_SECONDS = 5e-6


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.at = 0.0

    def record(self) -> None:
        self.gpu.host.passed += LAUNCH_SECONDS
        self.at = self.gpu.busy_until()

    def synchronize(self) -> None:
        self.gpu.host.passed = max(self.gpu.host.passed, self.at)

    def time_till(self, other: FakeEvent) -> float:
        return (other.at - self.at) * 1e3


class FakeFunction:
    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self.gpu, self.name = gpu, name

    def prepare(self, types: str) -> None: ...

    def prepared_async_call(self, *_: Any, shared_size: int = 0) -> None:
        if self.name == "spin":
            self.gpu.held = True
            return
        self.gpu.host.passed += LAUNCH_SECONDS + next(self.gpu.stalls, 0.0)
        self.gpu.done = self.gpu.busy_until() + next(self.gpu.seconds)
        self.gpu.calls += 1


class FakeGpu:
    """What of `pycuda.driver` a program and its stopwatch use; `seconds` are those of each launch of a kernel.

    `stalls` are the seconds in which the host is away at each launch.
    """

    host_alloc_flags = SimpleNamespace(DEVICEMAP=0)

    def __init__(self, host: FakeClock, seconds: Iterator[float], stalls: Iterator[float]) -> None:
        self.host, self.seconds, self.stalls = host, seconds, stalls
        self.done, self.calls, self.held = 0.0, 0, False

    def busy_until(self) -> float:
        """When the device has done all that is queued; behind the spinning kernel it does not wait for the host."""
        return self.done if self.held else max(self.done, self.host.passed)

    def module_from_buffer(self, cubin: bytes) -> Any:
        return SimpleNamespace(get_function=lambda name: FakeFunction(self, name))

    def pagelocked_zeros(self, *_: Any, **__: Any) -> Any:
        gpu = self

        class Flag:
            base = SimpleNamespace(get_device_pointer=lambda: 0)

            def __setitem__(self, k: int, value: int) -> None:
                gpu.held = gpu.held and value == 0

        return Flag()

    def Event(self) -> FakeEvent:
        return FakeEvent(self)

    def mem_alloc(self, nbytes: int) -> int:
        return 0

    def memset_d32_async(self, *_: Any) -> None: ...


def fake_program(gpu: FakeGpu) -> DeviceProgram:
    """A program of one kernel without arguments."""
    device: Any = SimpleNamespace(cuda=gpu, stopwatch=Stopwatch(gpu, b""))
    kernel = {"name": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "arguments": [], "dynamic_bytes": 0}
    return DeviceProgram(device, [b""], {"arguments": 0, "scratch_bytes": [], "kernels": [kernel]})


def jittering(rng: np.random.Generator, seconds: float, spread: float, cold: float = 0.0) -> Iterator[float]:
    """Times of launches around `seconds`, the first one `cold` seconds longer."""
    yield seconds * (1 + spread * float(rng.uniform(-1, 1))) + cold
    while True:
        yield seconds * (1 + spread * float(rng.uniform(-1, 1)))
