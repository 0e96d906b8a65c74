"""What a search takes over from others: the interface of the extension `transfer`, which knows nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from te_lite.extensions import part

from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.protocols import Runner
from ..core.tasks.task import SearchTask
from ..core.values.checks import counted
from ..evolve.selection import Row
from ..measure.local import LocalRunner
from ..records.lines import Record
from .proposals import Proposals
from .protocols import OfOneTask


@dataclass(frozen=True)
class Start:
    """Rows to begin with, those of the nearest tasks first, and of how many tasks they are."""

    rows: Sequence[Row] = ()
    tasks: int = 0

    def text(self) -> str:
        """What the first line of a search says of it; nothing where there is none."""
        if not self.rows:
            return ""
        return f"begins with {counted(len(self.rows), 'program')} of {counted(self.tasks, 'similar task')}"


class Transfer:
    """Knows nothing of other tasks."""

    def tell(self, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]) -> None:
        """Take in results of programs."""

    def start(self, task: SearchTask, proposals: Proposals) -> Start:
        """What a search of a task begins with."""
        return Start()

    def of_twins(self, task: SearchTask, proposals: Proposals) -> Iterator[Row]:
        """The best programs of tasks that differ in what follows their last reduction alone, as rows of this one."""
        return iter(())

    def worth_telling(self, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]) -> list[Record]:
        """Those of the results of one task that others may begin with."""
        return []

    def alike(self, a: SearchTask, b: SearchTask) -> bool:
        """Whether programs of one task are starts for another."""
        return False

    def twins(self, a: SearchTask, b: SearchTask) -> bool:
        """Whether tasks differ in nothing but what follows their last reduction."""
        return False

    def read_store(self, tasks: Iterable[SearchTask]) -> None:
        """Take in what the store has for these tasks, and ask it no more."""


def transfer(stored: bool = False) -> Transfer:
    """What is known of other tasks: nothing yet; `stored` says that the store is asked, too."""
    made = part("transfer")
    return Transfer() if made is None else made(stored)


@runtime_checkable
class BeginsWith(Protocol):
    """A policy that can begin with programs of similar tasks."""

    def begin_with(self, similar: Transfer) -> None:
        """Ask for them when the search begins, and tell what is measured."""


def offer_similar(policies: Sequence[Any], runner: Runner, records: Iterable[Record], apart: bool = False) -> None:
    """Let policies begin with programs of each other, of a log, and, where programs run here, of the store.

    For those that search `apart` the store is read now, since only this process may ask what its device is called.
    """
    similar = transfer(stored=isinstance(runner, LocalRunner))
    for inp, res in records:
        similar.tell([inp], [res])
    if apart:
        similar.read_store([policy.task for policy in policies if isinstance(policy, OfOneTask)])
    for policy in policies:
        if isinstance(policy, BeginsWith):
            policy.begin_with(similar)
