"""Everything that a target may offer, in one place: what a device package supplies, and how it is asked.

A package has a module with an object `BACKEND` of a class derived from `Backend`; `registry.py` says which module
serves which target kind.  Three methods are required: `source` (the text of a program), `build` (its compiled form) and
`open` (a `Device` that runs it).  All else has a default.  With that much programs are searched, measured and built,
networks run kernel by kernel, and templates are compiled as any other program.  A target that does better says so:

    `check`, `report`                  what is there; what `ansor doctor` prints
    `open`                             a device that checks its arrays itself (`ChecksArrays`), or draws them, too
                                       (`DrawsArrays`)
    `devices`, `hardware`              several devices; their numbers
    `described_device`, `described_compiler`      what figures are of, for the store of records
    `module`                           programs as functions in this process
    `host_files`, `check_portable`, `build_portable`      programs for other machines than this
    `templates`                        configurations of templates that are no compiled programs (`TemplateBackend`)
    `exports`                          programs for use without this package (`ProgramExporter`)
    `networks`                         whole networks as one piece of machine code (`NetworkBackend`, in
                                       `network_backend.py`)
    `load_network`                     networks from a file, in a worker of a fleet
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from te_lite.errors import require
from te_lite.loops.stmt import LoweredFunc

from ..errors import BackendError, MeasureError, TaskError
from ..target import registry
from ..target.hardware import HardwareParams, host_cores, processor
from ..target.target import Target
from ..tasks.measure_values import DeviceInfo, MeasureInput, Refusal, RunOptions
from ..tasks.protocols import Builder
from ..values.checks import counted

Array = np.ndarray[Any, np.dtype[Any]]


# --------------------------------------------------------------------------------------------------- single programs


class Program(Protocol):
    """A built program, loaded on a device."""

    def run(self, args: Sequence[Any]) -> None:
        """Run once on device arrays, and wait for the end."""

    def time(
        self, args: Sequence[Any], number: int, repeat: int, min_repeat_ms: int, flush: bool, best: float
    ) -> list[float]:
        """Seconds per call, `repeat` figures: each the mean of at least `number` calls lasting `min_repeat_ms`.

        With `flush` the caches are emptied before each figure.  `best` is the time of the best program known for the
        same computation, infinite where there is none: one that is clearly slower may be called less often.
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
        """Load what `Backend.build` left in `directory`; what `Backend.host_files` names may be missing."""


@runtime_checkable
class ChecksArrays(Device, Protocol):
    """A device that looks at its arrays itself, so that those of measured programs need not be copied to the host."""

    def free_bytes(self) -> int:
        """Memory for further arrays, in bytes."""

    def fill(self, handle: Any, value: Array) -> None:
        """Give every element of a device array the bits of `value`, an array of one element of its dtype."""

    def same(self, handle: Any, other: Any) -> bool:
        """Whether two device arrays of one shape and dtype hold the same bits."""

    def judges(self, dtype: str) -> bool:
        """Whether `within` can be asked of arrays of `dtype`."""

    def within(self, handle: Any, low: Any, high: Any, nan: Any) -> bool:
        """Whether each element lies between those of `low` and `high`, or is NaN where `nan` says so.

        Comparisons are NumPy's; `low` and `high` are of the dtype that is computed with
        (`te_lite.expr.dtype.computed`), `nan` is of bool, and empty where NaN is right nowhere.
        """


@runtime_checkable
class DrawsArrays(ChecksArrays, Protocol):
    """A device that draws inputs and compares outputs of any size itself, so that the host never has them whole."""

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """A device array that may hold anything."""

    def draws(self, dtype: str) -> bool:
        """Whether `draw` makes arrays of `dtype`."""

    def draw(self, handle: Any, key: tuple[int, int]) -> None:
        """Give a device array the elements of `te_lite.meaning.drawn.DrawnArray` with that key."""

    def drawn(self, handle: Any, key: tuple[int, int]) -> bool:
        """Whether a device array has the elements that `draw` gives it, bit by bit."""

    def astray(self, handle: Any, other: Any, slope: float, floor: float, most: int) -> tuple[int, Array]:
        """How many elements of two arrays of one shape and dtype differ, and flat indices (int64) of at most `most`.

        Elements are alike that are equal or both NaN, and finite floats no further apart than `slope * |x| + floor`,
        where x is that of `other`.
        """

    def pick(self, handle: Any, places: Any) -> Array:
        """A host copy of the elements at flat indices, a device array of int64."""


# --------------------------------------------------------------------------------------------------------- templates


class TemplateBackend(Protocol):
    """What runs configurations (`ansor.autotvm.ConfigEntity`) of tasks (`ansor.autotvm.Task`).

    An exception counts as a refusal, too: error 1 from `build`, error 4 from `run`.
    """

    def build(self, task: Any, config: Any) -> Any | Refusal:
        """The program of a configuration, or why there is none; must be quick to refuse."""

    def run(self, task: Any, program: Any, options: RunOptions) -> Sequence[float] | Refusal:
        """Seconds per call, `options.repeat` figures or fewer; or what went wrong."""


@runtime_checkable
class SendsPrograms(TemplateBackend, Protocol):
    """A template backend whose programs can be sent to the machines of a fleet."""

    def program(self, task: Any, config: Any) -> MeasureInput:
        """A configuration as a program.  Raises TeError for a configuration that has none."""

    def program_builder(self) -> Builder:
        """The builder of such programs."""


# ---------------------------------------------------------------------------------------------------------- networks


class LoadedNetwork(Protocol):
    """A network that was read from a file, under the names of a graph executor."""

    def set_input(self, key: str, value: Array) -> None:
        """Give an input its value."""

    def run(self) -> None:
        """Run it once."""

    def get_output(self, index: int) -> Any:
        """An output of the last run, an array object with `numpy()`."""

    def time_evaluator(self, func_name: str, *, number: int, repeat: int) -> Callable[[], Any]:
        """A function that times `run`; its `results` are seconds per run, `repeat` figures."""


# --------------------------------------------------------------------------------------------------------- the table


class Backend(ABC):
    """Base of what serves a target kind; see the module.

    `shares_host` says that programs run on the processor that compiles them, so nothing may be built while something
    is measured.  `host_files` are the files of a built program that are of no use on other machines; `Device.load`
    makes them anew from the others.  Without `templates` those are compiled as any other program
    (`ansor.autotvm.compiled`); without `exports`, a `ProgramExporter`, they cannot be exported; without `networks`, a
    `NetworkBackend`, the kernels of a network are run one by one (`relay_lite.runtime.kernel_by_kernel`).
    """

    kind: str
    shares_host: bool = True
    host_files: tuple[str, ...] = ()
    templates: TemplateBackend | None = None
    exports: Any = None
    networks: Any = None

    @abstractmethod
    def source(self, func: LoweredFunc, target: str) -> str:
        """The target's source text of a lowered program.  Raises the backend's error when it has none."""

    @abstractmethod
    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Compile a lowered program; the result, whatever it is, goes into `directory`."""

    @abstractmethod
    def open(self, index: int) -> Device:
        """Device number `index` of this kind."""

    def check(self, target: str) -> None:  # noqa: B027
        """Raise the backend's error, one sentence, when nothing can be built and run here."""

    def report(self) -> list[tuple[str, bool, str]]:
        """What `ansor doctor` prints: name, whether it is in order, detail."""
        return []

    def devices(self) -> list[DeviceInfo]:
        """The devices of this machine: one, the processor.  Raises the backend's error when there are none."""
        return [DeviceInfo(self.kind, 0, processor(), counted(host_cores(), "core"))]

    def hardware(self, target: str) -> HardwareParams:
        """The numbers of the first device of `target`.  Raises the backend's error when there is none.

        This one raises TaskError: the devices do not tell them.
        """
        raise TaskError(f"target {target!r}: its devices do not tell their numbers")

    def described(self, target: str) -> str:
        """`target` with what its first device is, where that decides which instructions programs may have.

        Here, the same text.  Raises the backend's error when there is no device.
        """
        return target

    def described_device(self, target: str, index: int = 0) -> str:
        """What a device is and what programs of `target` are compiled for there: figures of one say nothing of another.

        Here, its model and numbers, and the options of the target.  Raises the backend's error when there is no such
        device.
        """
        found = self.devices()[index]
        return ", ".join([found.model, found.detail, *target.split()[1:]])

    def described_compiler(self, target: str) -> str:
        """What compiles programs, with its version; here, nothing.  Raises the backend's error when there is none."""
        return ""

    def module(self, func: LoweredFunc, target: str) -> Callable[..., Any] | None:
        """The program as a function of arrays, in this process; it has `source`, `entry_name` and `time(...)`.

        None for one that copies its arrays to the first device and back (`ansor.core.device.loaded_module`).
        """
        return None

    def check_portable(self, target: str) -> None:
        """Raise the backend's error, one sentence, when no programs for other machines can be built here."""
        self.check(target)

    def build_portable(self, func: LoweredFunc, target: str, directory: str) -> None:
        """As `build`, without the files of `host_files`."""
        self.build(func, target, directory)

    def load_network(self, path: str, index: int) -> LoadedNetwork:
        """A network that was built elsewhere, on device `index`.  This one raises MeasureError: there are none."""
        raise MeasureError(f"target {self.kind!r}: its networks cannot be run from a file")


__all__ = [
    "Backend",
    "Device",
    "LoadedNetwork",
    "Program",
    "Refusal",
    "RunOptions",
    "SendsPrograms",
    "TemplateBackend",
]  # fmt: skip


def load_backend(module: str, kind: str) -> Backend:
    """The `BACKEND` of a module.  Raises BackendError when the module is missing, or its object is no `Backend`."""
    found = registry.load_backend(module, kind)
    law = f"the BACKEND of {module} must be of a class derived from ansor.core.device.backend.Backend"
    require(isinstance(found, Backend), BackendError, f"target {kind!r}", law, got=type(found).__name__)
    made: Backend = found
    return made


def backend(kind: str) -> Backend:
    """The backend of a target kind.  Raises BackendError, in one sentence, when it cannot be had."""
    return load_backend(registry.backend_module(kind), kind)


def on_device(target: Target) -> Target:
    """A target with what its first device is, see `Backend.described`.  Raises the backend's error without one."""
    return Target(backend(target.kind.name).described(target.text))
