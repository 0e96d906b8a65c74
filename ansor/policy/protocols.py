"""What search policies are asked for: any object with the right methods will do.

What only some of them have is a protocol of its own, and whoever wants to know asks with `isinstance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from te_lite.errors import require
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.tasks.measure_values import MeasureInput, MeasureResult, Prediction
from ..core.tasks.task import SearchTask
from ..measure.measurer import ProgramMeasurer


@runtime_checkable
class SearchPolicy(Protocol):
    """What `SearchTask.tune` asks for; a `search` that knows a limit of time has a parameter `time_limit`, too."""

    def search(
        self, num_measure_trials: int, early_stopping: int | str | None, num_measures_per_round: int,
        measurer: ProgramMeasurer,
    ) -> State | None:  # fmt: skip
        """Measure up to `num_measure_trials` new candidates; the best state, or None."""


@runtime_checkable
class RoundPolicy(Protocol):
    """What the task scheduler asks for.

    A policy that `AsksAhead`, by a round or more, as `SketchPolicy` does, may be asked for a round while another one is
    measured; it is told all results in the order of the rounds.
    """

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[Sequence[MeasureInput], Sequence[MeasureResult]]:
        """Measure up to `num_measure` new candidates and learn from them; nothing when the space is used up."""


@runtime_checkable
class AsksAhead(Protocol):
    """A policy that says how many rounds may be asked for before the results of the first are told.

    It has `ask` and `tell` for that, which `ansor.policy.search_loop` calls.
    """

    @property
    def rounds_ahead(self) -> int:
        """0 for a policy that must know the last round before it begins another."""


@runtime_checkable
class Announces(Protocol):
    """A policy that says what it uses when its search begins."""

    def announce(self, runner: object) -> None:
        """Called before every round; the first time it may print a line."""


@runtime_checkable
class Predicts(Protocol):
    """A policy that says what its model thinks of programs."""

    def predicted(self, states: Sequence[State]) -> Sequence[Prediction | None]:
        """Of programs that `ask` gave and that it was not told of, one each; None where it thinks nothing."""


@runtime_checkable
class Foresees(Protocol):
    """A policy that thinks elsewhere, and can begin to before it is asked."""

    def foresee_default(self) -> None:
        """Begin to draw up the default schedule of its task."""

    def foresee(self, n: int) -> None:
        """Begin to choose `n` programs."""

    def known(self) -> bool:
        """Whether programs that were foreseen, if any, can be had without waiting."""

    def candidates(self, n: int) -> list[MeasureInput]:
        """Up to `n` programs to measure next, with what its model thinks of them."""

    def settle(self, until: float) -> None:
        """Wait until it has learnt what it was told, but no longer than until then, by the monotonic clock."""


@runtime_checkable
class DrawsUpDefault(Protocol):
    """A policy that draws up the default schedule of its task elsewhere."""

    def default_state(self) -> State | None:
        """`ansor.policy.default_schedule.default_state` of its task."""


@runtime_checkable
class Seeded(Protocol):
    """A policy whose proposals follow from a seed and the results."""

    @property
    def seed(self) -> int:
        """The seed."""


@runtime_checkable
class OfOneTask(Protocol):
    """A policy that was made for a task."""

    @property
    def task(self) -> SearchTask:
        """The task."""


def require_own_task(subject: str, policy: Any, task: SearchTask) -> None:
    """Raise TaskError, naming `subject`, for a policy that says it was made for another task."""
    if isinstance(policy, OfOneTask) and isinstance(policy.task, SearchTask):
        own = policy.task
        require(same_task(own, task), TaskError, subject, "the policy is for another task", policy=own, task=task)


def same_task(a: SearchTask, b: SearchTask) -> bool:
    """Whether the records of one task are those of the other."""
    return a.workload_key == b.workload_key and a.target.takes(b.target)
