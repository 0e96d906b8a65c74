"""The protocols of measurement: `Builder` and `Runner` say how to measure, callbacks hear of it.

Any object with the right methods will do.  What only some of them can do is a protocol of its own, and whoever wants to
know asks with `isinstance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from .measure_values import Baseline, BuildResult, DeviceUse, MeasureInput, MeasureResult, Spent
from .task import SearchTask


@runtime_checkable
class Builder(Protocol):
    """Builds candidates; `n_parallel` of them at a time."""

    n_parallel: int

    def submit(self, inp: MeasureInput) -> Future[BuildResult]:
        """Queue a candidate; the work goes on in the background."""

    def close(self) -> None:
        """Stop the workers, drop what is queued; the next `submit` starts new ones."""


@runtime_checkable
class Runner(Protocol):
    """Runs and times built candidates."""

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Run one candidate and wait for its end; a build that failed gives a result with the error of the build."""

    def close(self) -> None:
        """Stop the workers, and the run in progress in another thread; the next `run` starts new ones."""


@runtime_checkable
class ManyDevices(Protocol):
    """A runner whose `run` may be called from several threads at once."""

    def slots(self, task: SearchTask) -> int:
        """How many candidates of a task it runs at a time, at least 1."""


@runtime_checkable
class PreparesAhead(Protocol):
    """A runner that can make ready what it needs of a task before the first program of it is there."""

    def prepare(self, task: SearchTask) -> None:
        """Begin to; the work goes on in the background, and `run` waits for it."""


@runtime_checkable
class ReportsUse(Protocol):
    """A runner that says what its devices did."""

    def usage(self) -> list[DeviceUse]:
        """What each device did so far."""


@runtime_checkable
class PairedRunner(Protocol):
    """A runner that can also time several programs in turns."""

    def compare(self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> list[list[float]]:
        """Seconds per call of each program, a figure a round; none for a program that cannot be run.

        Programs with fewer figures than others left the turns as the slower ones (`core/values/steady.py`).
        """


@runtime_checkable
class RemoteRunner(Protocol):
    """A runner that measures on other machines, where `elsewhere` is true: building here disturbs nothing there."""

    elsewhere: bool


@runtime_checkable
class BringsBuilder(Protocol):
    """A runner that knows which builder goes with it."""

    def builder(self) -> Builder:
        """A builder of programs for this runner."""


def is_elsewhere(runner: Runner) -> bool:
    """Whether a runner measures on other machines."""
    return isinstance(runner, RemoteRunner) and bool(runner.elsewhere)


@runtime_checkable
class MeasureCallback(Protocol):
    """Told of every measured candidate, as soon as its result is there."""

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """`inputs[k]` ended as `results[k]`; `policy` is the search policy, or None."""


@runtime_checkable
class KeepsBaselines(Protocol):
    """A callback that also hears how the programs of a task ended that nobody searched for; they are no trials."""

    def baseline(self, policy: Any, which: Baseline, inp: MeasureInput, result: MeasureResult) -> None:
        """`inp`, which is the one called `which`, ended as `result`, before the first trial."""


@runtime_checkable
class KeepsConfirmed(Protocol):
    """A callback that also hears what programs took that were timed in turns, when a search ends."""

    def confirmed(self, inputs: Sequence[MeasureInput], figures: Sequence[Sequence[float]]) -> None:
        """Programs of one task, and seconds per call of each, a figure a round; none for one that did not run."""


@runtime_checkable
class KeepsRemarks(Protocol):
    """A callback that also hears why the search of a task stopped before its trials and time were spent."""

    def stopped(self, task: SearchTask, reason: str) -> None:
        """`reason` is a sentence."""


@runtime_checkable
class KeepsRounds(Protocol):
    """A callback that also hears, after every round of a task, where its seconds went."""

    def round_ended(self, task: SearchTask, spent: Spent) -> None:
        """A round of `task` ended, and what was learnt of it."""


@runtime_checkable
class KeepsDevice(Protocol):
    """A callback that also hears, before the first trial, which device of this machine runs the programs."""

    def runs_here(self, device: int) -> None:
        """The number of the device, of the target of the programs; of several, which are of one model, the first."""


@runtime_checkable
class KeepsWeights(Protocol):
    """A callback that also hears, before the first trial, how much each of several tasks counts."""

    def weighed(self, tasks: Sequence[SearchTask], weights: Sequence[float]) -> None:
        """`tasks[k]` counts `weights[k]` times: mostly, so often it occurs in a network."""


@runtime_checkable
class KeepsUsage(Protocol):
    """A callback that also hears, after every round, what the devices did since the start."""

    def usage(self, uses: Sequence[DeviceUse]) -> None:
        """One entry a device; not called when the runner drives no named devices."""
