"""Which recorded program to use for a workload: contexts that are asked by target and key."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State

from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureInput
from ..core.tasks.workloads import calc_workload_dis_factor, decode_workload_key
from ..core.values.context import Context
from ..core.values.options import cold_in_networks, layout_in_networks
from .best import best_first
from .confirmed import SettledReader
from .files import History, pairs_of
from .lines import Record, believed, load_records, logger, workload_of
from .of_task import found_for, other_targets
from .store import best_stored
from .validation import is_program

WorkloadId = tuple[str, str]
"""Key of the target (`Target.key`) and workload key."""
Source = str | os.PathLike[str] | Iterable[Record] | Sequence[str | os.PathLike[str]]


class DispatchContext(Context):
    """A source of programs; `with` makes it the current one of this thread, and it passes on what it does not know."""

    def query(
        self,
        target: Target | str,
        workload_key: str,
        has_complex_op: bool = False,
        dag: ComputeDAG | None = None,
        func_name: str = "",
    ) -> State | None:
        """The program for a workload, or None.  With `dag` it is replayed on that computation."""
        wanted = Target.of(target)
        return self._first(lambda context: context._query_inside(wanted, workload_key, dag))

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        """Let `state` be the program for a workload from now on."""
        raise NotImplementedError

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        raise NotImplementedError


class FallbackContext(DispatchContext):
    """The outermost context: it knows what it was told, and what the store has (`store.py`) of a computation."""

    def __init__(self) -> None:
        self._told: dict[WorkloadId, State] = {}

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        self._told[Target.of(target).key, workload_key] = state

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        told = next(iter(found_for(target, workload_key, self._told)), None)
        if dag is None:
            return told
        if told is not None:
            return replay(dag, told.steps)
        kind = target.kind.name
        stored = best_stored(dag, target, layout_in_networks(kind), cold_in_networks(kind))
        return None if stored is None else replay(dag, stored[0].steps)


class ApplyHistoryBest(DispatchContext):
    """The best error-free records that are believed of a log, several logs, or pairs; the least mean cost wins.

    `n_lines` limits the records that are read.  With `include_compatible` a workload without a record of its own
    gets that of a smaller one whose shape divides it.  Records for another processor are left aside, with a warning
    (`of_task.py`).
    """

    def __init__(self, records: Source | None, n_lines: int | None = None, include_compatible: bool = False) -> None:
        self.include_compatible = include_compatible
        self._history: History[WorkloadId, MeasureInput, State] = History()
        self._names: list[str] = []
        self._warned: set[str] = set()
        if records is not None:
            self.load(records, n_lines)

    def load(self, records: Source, n_lines: int | None = None) -> None:
        """Add records, as the confirmations of a log leave them.  Raises JournalError when a file cannot be read.

        Of a part of the records, `n_lines` of them, each counts for itself.
        """
        load = SettledReader if n_lines is None else load_records
        name = str(records) if isinstance(records, str | os.PathLike) else "the logs"
        pairs = believed(islice(pairs_of(records, load), n_lines), name)
        self._history.load((workload_of(pair[0]), pair) for pair in pairs)
        self._names.append(name)

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        self._history.tell((Target.of(target).key, workload_key), state)

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        self._warn(target)
        for told in found_for(target, workload_key, self._history.told):
            return told if dag is None else replay(dag, told.steps)
        measured = found_for(target, workload_key, self._history.best)
        own = [inp for inp, _ in best_first(chain.from_iterable(measured))]
        for inp in own or self._compatible(target, workload_key):
            if dag is None:
                return inp.state
            if is_program(dag, inp.steps):
                return replay(dag, inp.steps)
        return None

    def _warn(self, target: Target) -> None:
        """Say once of a target that there are records for other processors."""
        if target.key not in self._warned:
            self._warned.add(target.key)
            text = other_targets(" and ".join(self._names), [key for key, _ in self._history.best], target)
            if text:
                logger.warning("%s", text)

    def _compatible(self, target: Target, workload_key: str) -> list[MeasureInput]:
        """The records of smaller workloads, the one with the least expected cost first."""
        if not self.include_compatible:
            return []
        name, args = decode_workload_key(workload_key)
        candidates = []
        for key in dict.fromkeys([key for _, key in self._history.best]):
            other, other_args = decode_workload_key(key)
            if args is not None and other_args is not None:
                factor = calc_workload_dis_factor((args, name), (other_args, other))
                if factor < float("inf"):
                    found = chain.from_iterable(found_for(target, key, self._history.best))
                    candidates += [(res.cost * factor, inp) for inp, res in found]
        return [inp for _, inp in sorted(candidates, key=lambda candidate: candidate[0])]


def load_history_best(
    records: Source | None, n_lines: int | None = None, include_compatible: bool = False
) -> ApplyHistoryBest:
    """`ApplyHistoryBest` as a function."""
    return ApplyHistoryBest(records, n_lines, include_compatible)


DispatchContext.outermost = FallbackContext()
