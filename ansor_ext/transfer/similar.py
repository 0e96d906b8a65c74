"""What a search takes over: good programs of tasks like its own, carried over to its extents.

They come from the store, from the log that a run goes on with, and from the other tasks of the run, as their results
are told.  Each is one start among others: it is measured early, and breeds with what is drawn at random.  Twins, tasks
that differ only in what follows their last reduction, hear of each other's best programs after their first rounds, as
long as they are searched.

On an H200, seven tasks that no model had learnt, two seeds, with a store of other tasks' programs, the best after 16
trials took 0.96 of the time without (standard error 0.02), after 64 as long (`benchmarks/results/at_once_h200.json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from ansor.core.tasks.measure_values import MeasureInput, MeasureResult
from ansor.core.tasks.task import SearchTask
from ansor.evolve.selection import Row
from ansor.policy.proposals import Proposals
from ansor.policy.transfer import Start, Transfer
from ansor.records.lines import Record
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.step import Step

from .alike import distance, epilogue, kinship, likeness, stored_alike
from .carry import carried

GIVEN, MOST = 4, 32
"""Programs of one task that others begin with, and of all tasks that one begins with."""


@dataclass
class _Known:
    """The seconds of the best programs of a computation, best first."""

    dag: ComputeDAG
    best: dict[tuple[Step, ...], float]


class Similar(Transfer):
    """The good programs that are known of tasks, by what is alike; `stored` says that the store is asked, too."""

    def __init__(self, stored: bool = False) -> None:
        self.stored = stored
        self._known: dict[tuple[str, str], dict[str, _Known]] = {}
        self._rows: dict[tuple[Any, ...], Row | None] = {}

    def tell(self, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]) -> None:
        """Take in results of programs."""
        for inp, res in zip(inputs, results, strict=True):
            if res.ok:
                self._add(self._of(inp.task), inp, res.cost)

    def start(self, task: SearchTask, proposals: Proposals) -> Start:
        """What a search of a task begins with."""
        known = dict(self._of(task))
        for inp, res in stored_alike(task) if self.stored else ():
            self._add(known, inp, res.cost)
        wanted = likeness(task.compute_dag)
        alike = [one for one in known.values() if likeness(one.dag) == wanted]
        near = sorted(alike, key=lambda one: distance(one.dag, task.compute_dag))
        rows: dict[Any, Row] = {}
        tasks = 0
        for one in near:
            before = len(rows)
            for steps in one.best if before < MOST else ():
                row = carried(proposals.sketches, steps, task.target, proposals.hardware, proposals.options)
                if row is not None and len(rows) < MOST:
                    rows.setdefault((row[0], row[1].tobytes()), row)
            tasks += len(rows) > before
        return Start(list(rows.values()), tasks)

    def of_twins(self, task: SearchTask, proposals: Proposals) -> Iterator[Row]:
        """The best programs of the twins of a task as its own rows, the best one of each first."""
        akin = [(name, one) for name, one in self._of(task).items() if name != task.workload_key]
        twins = [(name, one) for name, one in akin if distance(one.dag, task.compute_dag) == 0]
        found = [(place, name, one.dag, steps) for name, one in twins for place, steps in enumerate(one.best)]
        for _, name, dag, steps in sorted(found, key=itemgetter(0)):
            key = (task.target.key, proposals.hardware, task.workload_key, name, steps)
            if key not in self._rows:
                self._rows[key] = _of_twin(dag, steps, task, proposals)
            row = self._rows[key]
            if row is not None:
                yield row

    def worth_telling(self, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]) -> list[Record]:
        """Those of the results of one task that others may begin with."""
        ran = [(inp, res) for inp, res in zip(inputs, results, strict=True) if res.ok]
        return nsmallest(GIVEN, ran, key=lambda pair: pair[1].cost)

    def alike(self, a: SearchTask, b: SearchTask) -> bool:
        """Whether programs of one task are starts for another."""
        return a.target.results == b.target.results and likeness(a.compute_dag) == likeness(b.compute_dag)

    def twins(self, a: SearchTask, b: SearchTask) -> bool:
        """Whether tasks differ in nothing but what follows their last reduction."""
        akin = a.target.results == b.target.results and kinship(a.compute_dag) == kinship(b.compute_dag)
        return akin and distance(a.compute_dag, b.compute_dag) == 0

    def read_store(self, tasks: Iterable[SearchTask]) -> None:
        """Take in what the store has for these tasks, and ask it no more."""
        for task in {likeness(task.compute_dag): task for task in tasks}.values() if self.stored else ():
            for inp, res in stored_alike(task):
                self.tell([inp], [res])
        self.stored = False

    def _of(self, task: SearchTask) -> dict[str, _Known]:
        return self._known.setdefault((task.target.results, kinship(task.compute_dag)), {})

    def _add(self, known: dict[str, _Known], inp: MeasureInput, cost: float) -> None:
        one = known.get(inp.task.workload_key, _Known(inp.task.compute_dag, {}))
        costs = one.best | {inp.steps: min(cost, one.best.get(inp.steps, cost))}
        known[inp.task.workload_key] = _Known(one.dag, dict(nsmallest(GIVEN, costs.items(), key=itemgetter(1))))


def _of_twin(dag: ComputeDAG, steps: Sequence[Step], task: SearchTask, proposals: Proposals) -> Row | None:
    """A program of a computation that is akin to that of a task as a row of the task."""
    rests = (epilogue(dag) or (), epilogue(task.compute_dag) or ())
    return carried(proposals.sketches, steps, task.target, proposals.hardware, proposals.options, rests)
