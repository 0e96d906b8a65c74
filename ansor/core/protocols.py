"""The protocols of measurement: devices enter through `Backend`; `Builder` and `Runner` say how to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from te_lite.stmt import LoweredFunc

from .hardware import HardwareParams
from .measure_values import BuildResult, DeviceInfo, DeviceUse, MeasureInput, MeasureResult
from .task import SearchTask

Array = np.ndarray[Any, np.dtype[Any]]


class Program(Protocol):
    """A built program, loaded on a device."""

    def run(self, args: Sequence[Any]) -> None:
        """Run once on device arrays, and wait for the end."""

    def time(self, args: Sequence[Any], number: int, repeat: int, min_repeat_ms: int, flush: bool) -> list[float]:
        """Seconds per call, `repeat` figures: each the mean of at least `number` calls lasting `min_repeat_ms`.

        With `flush` the caches are emptied before each figure.
        """


class Device(Protocol):
    """A device inside the runner's worker process."""

    def put(self, array: Array) -> Any:
        """A device array with a copy of `array`."""

    def write(self, handle: Any, array: Array) -> None:
        """Overwrite a device array."""

    def get(self, handle: Any) -> Array:
        """A host copy of a device array."""

    def load(self, directory: str) -> Program:
        """Load what `Backend.build` left in `directory`."""


class Backend(Protocol):
    """What a device package supplies; found by target kind through `ansor.core.registry`.

    `shares_host` says that programs run on the processor that compiles them, so nothing may be built while
    something is measured.
    """

    kind: str
    shares_host: bool

    def check(self, target: str) -> None:
        """Raise the backend's error, one sentence, when nothing can be built and run here."""

    def source(self, func: LoweredFunc, target: str) -> str:
        """The target's source text of a lowered program."""

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Compile a lowered program; the result, whatever it is, goes into `directory`."""

    def open(self, index: int) -> Device:
        """Device number `index` of this kind."""

    def report(self) -> list[tuple[str, bool, str]]:
        """What `ansor doctor` prints: name, whether it is in order, detail."""

    def module(self, func: LoweredFunc, target: str) -> Callable[..., Any]:
        """The program as a function of arrays, in this process; it has `source`, `entry_name` and `time(...)`."""


class ReportsHardware(Protocol):
    """What a backend may have besides: the numbers of its device, see `HardwareParams.from_device`."""

    def hardware(self, target: str) -> HardwareParams:
        """The numbers of the first device of `target`.  Raises the backend's error when there is none."""


class ListsDevices(Protocol):
    """What a backend may have besides: its devices, see `ansor.measure.devices`."""

    def devices(self) -> list[DeviceInfo]:
        """The devices of this machine.  Raises the backend's error, one sentence, when there are none."""


class Portable(Protocol):
    """What a backend may have besides, when a built program is of no use on other machines.

    `host_files` are the files of a built program that stay here; `Device.load` makes them anew from the others.
    """

    host_files: tuple[str, ...]

    def check_portable(self, target: str) -> None:
        """Raise the backend's error, one sentence, when no programs for other machines can be built here."""

    def build_portable(self, func: LoweredFunc, target: str, directory: str) -> None:
        """As `Backend.build`, without the files of `host_files`."""


class Builder(Protocol):
    """Builds candidates; `n_parallel` of them at a time."""

    n_parallel: int

    def submit(self, inp: MeasureInput) -> Future[BuildResult]:
        """Queue a candidate; the work goes on in the background."""

    def close(self) -> None:
        """Stop the workers, drop what is queued; the next `submit` starts new ones."""


class Runner(Protocol):
    """Runs and times built candidates."""

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Run one candidate and wait for its end; a build that failed gives a result with the error of the build."""

    def close(self) -> None:
        """Stop the workers, and the run in progress in another thread; the next `run` starts new ones."""


class ManyDevices(Runner, Protocol):
    """A runner whose `run` may be called from several threads at once."""

    def slots(self, task: SearchTask) -> int:
        """How many candidates of a task it runs at a time, at least 1."""

    def usage(self) -> list[DeviceUse]:
        """What each device did so far."""


class PairedRunner(Runner, Protocol):
    """A runner that can also time several programs in turns."""

    def compare(self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> list[list[float]]:
        """Seconds per call of each program, a figure a round; none for a program that cannot be run."""


class MeasureCallback(Protocol):
    """Told of every measured candidate, as soon as its result is there."""

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """`inputs[k]` ended as `results[k]`; `policy` is the search policy, or None."""


class KeepsUsage(MeasureCallback, Protocol):
    """A callback that also hears, after every round, what the devices did since the start."""

    def usage(self, uses: Sequence[DeviceUse]) -> None:
        """One entry a device; not called when the runner drives no named devices."""
