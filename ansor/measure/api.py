"""The values and the protocols of measurement.

A candidate ends as a `MeasureResult`, whatever happens to it: `error_no` says how, decided where the failure happens.
Devices enter through `Backend`; how and where programs are built and run through `Builder` and `Runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from te_lite.replay import replay
from te_lite.state import State
from te_lite.step import Step
from te_lite.stmt import LoweredFunc

if TYPE_CHECKING:
    from ansor.hardware import HardwareParams
    from ansor.task import SearchTask

    from .devices import DeviceInfo, DeviceUse

Array = np.ndarray[Any, np.dtype[Any]]
FAILED_COST = 1e10


class MeasureErrorNo(IntEnum):
    """How a candidate ended; the numbers are those of TVM's records."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class MeasureInput:
    """A candidate: a task and a program for it, given as a state or as recorded steps that are replayed on demand."""

    def __init__(self, task: SearchTask, state: State | None = None, steps: Sequence[Step] | None = None) -> None:
        self.task = task
        self.steps: tuple[Step, ...] = tuple(state.steps if state is not None else steps or ())
        if state is not None:
            self.__dict__["state"] = state

    @cached_property
    def state(self) -> State:
        """The program.  Raises ScheduleError when the steps do not fit the task's computation."""
        return replay(self.task.compute_dag, self.steps)

    def __repr__(self) -> str:
        return f"MeasureInput({self.task.workload_key}, {self.task.target}, {len(self.steps)} steps)"


@dataclass(frozen=True)
class BuildResult:
    """`filename` is the directory of the built program; `time_cost` the seconds it took.

    `args` are the inputs that the program takes packed: (argument number, digits of the `PackedLayout`).
    """

    filename: str
    args: tuple[Any, ...]
    error_no: int
    error_msg: str
    time_cost: float


@dataclass(frozen=True)
class MeasureResult:
    """`costs` in seconds per call, one a repeat (`[1e10]` after an error); `all_cost` the seconds spent in all.

    `device` names the device that ran the program where a runner drives several.
    """

    costs: tuple[float, ...]
    error_no: int
    error_msg: str
    all_cost: float
    timestamp: int
    device: str = ""

    @property
    def ok(self) -> bool:
        return self.error_no == MeasureErrorNo.NO_ERROR

    @property
    def cost(self) -> float:
        """The mean of `costs`, seconds."""
        return float(np.mean(self.costs))


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
    """What a device package supplies; found by target kind through `ansor.registry`.

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
