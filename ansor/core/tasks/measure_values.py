"""The values of measurement: candidates, their results, and the devices that gave them.

A candidate ends as a `MeasureResult`, whatever happens to it: `error_no` says how, decided where the failure happens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from statistics import fmean
from typing import Any

from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from .task import SearchTask


class Baseline(Enum):
    """Which of them; the value is what a line or a row calls it.

    `UNTUNED` are the loops as they were written (`sketch/plain.py`), `DEFAULT` is what a kernel gets that nobody tuned
    (`policy/default_schedule.py`).
    """

    UNTUNED = "untuned"
    DEFAULT = "default schedule"

    @property
    def phrase(self) -> str:
        """What a sentence calls it."""
        return "the untuned one" if self is Baseline.UNTUNED else f"the {self.value}"


FAILED_COST = 1e10


class MeasureErrorNo(IntEnum):
    """How a candidate ended; the numbers up to 8 are those of TVM's records, those above are ours.

    REFUSED: the verifier does not prove that the program stays in its buffers, so it was neither compiled nor run.
    """

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8
    REFUSED = 9


@dataclass(frozen=True)
class Prediction:
    """What a search thought of a program before it was measured.

    `score`, the higher the better, orders the programs of a `round`, which are numbered from 1 in each `run` of a
    search; of what a log has of several runs, `run` tells them apart.
    """

    score: float
    round: int
    run: int = 0


class MeasureInput:
    """A candidate: a task and a program for it, given as a state or as recorded steps that are replayed on demand.

    `prediction` is what its search thought of it, if that says so.
    """

    def __init__(
        self, task: SearchTask, state: State | None = None, steps: Sequence[Step] | None = None,
        prediction: Prediction | None = None,
    ) -> None:  # fmt: skip
        self.task = task
        self.prediction = prediction
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

    @cached_property
    def cost(self) -> float:
        """The mean of `costs`, seconds."""
        return self.costs[0] if len(self.costs) == 1 else fmean(self.costs)


def failed(
    error_no: int, message: str, seconds: float, device: str = "", cost: float = FAILED_COST,
    timestamp: int | None = None,
) -> MeasureResult:  # fmt: skip
    """The result of a candidate that failed after `seconds`, now if no `timestamp` says when.

    `cost` is what stands in its record; those of templates have another one.
    """
    when = int(time.time()) if timestamp is None else timestamp
    return MeasureResult((cost,), int(error_no), message, seconds, when, device)


@dataclass
class Spent:
    """Where the seconds of a search went.

    In `search` it chose programs and learned from results, and in `wait` it stood still until results were there.
    Meanwhile workers were at work: `build` and `run` are added up over programs.
    """

    search: float = 0.0
    wait: float = 0.0
    build: float = 0.0
    run: float = 0.0

    def add(self, other: Spent) -> None:
        """Count the seconds of another one, too."""
        self.search, self.wait = self.search + other.search, self.wait + other.wait
        self.build, self.run = self.build + other.build, self.run + other.run


@dataclass(frozen=True)
class Refusal:
    """A program that could not be built or run: an error number and one sentence."""

    error_no: MeasureErrorNo
    reason: str


@dataclass(frozen=True)
class RunOptions:
    """How a program is run: the mean of at least `number` calls that last `min_repeat_ms`, `repeat` figures.

    With `check_correctness` its outputs are compared with a reference first.  A simulator, which gives the same figure
    every time, may do less.  The device rests `cooldown_interval` seconds after each program; with `flush` the caches
    are emptied before each figure.  A run has `timeout` seconds, the data of a task `prepare_timeout`; `retries` says
    how often a candidate whose worker died or hung is run again.
    """

    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    check_correctness: bool = True
    cooldown_interval: float = 0.0
    flush: bool = False
    timeout: float = 10.0
    prepare_timeout: float = 600.0
    retries: int = 0

    def timing(self) -> dict[str, Any]:
        """What a job says of this."""
        return {"number": self.number, "min_repeat_ms": self.min_repeat_ms, "flush": self.flush}


@dataclass(frozen=True)
class DeviceInfo:
    """A device: its target kind, its number, its model, and a line of numbers for people."""

    kind: str
    index: int
    model: str
    detail: str = ""

    @property
    def label(self) -> str:
        """How records and displays call it: `cuda 1 (NVIDIA H200)`."""
        return f"{self.kind} {self.index} ({self.model})"


@dataclass(frozen=True)
class DeviceUse:
    """What a device did in `seconds`: `trials` candidates, which kept it busy for `busy` seconds.

    `lost` counts the worker processes that died or hung on it.
    """

    device: str
    trials: int
    busy: float
    seconds: float
    lost: int

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.trials / max(self.seconds, 1e-9)

    @property
    def share(self) -> float:
        """The part of the time in which it was busy, from 0 to 1."""
        return min(1.0, self.busy / max(self.seconds, 1e-9))

    def to_json(self) -> dict[str, Any]:
        """Everything, rounded to milliseconds."""
        return {
            "device": self.device, "trials": self.trials, "busy_s": round(self.busy, 3),
            "seconds": round(self.seconds, 3), "lost_workers": self.lost,
        }  # fmt: skip
