"""Which recorded program to use for a workload: contexts that are asked by target and key (spec autoscheduler 11)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from itertools import chain, islice
from types import TracebackType
from typing import Any

from te_lite.dag import ComputeDAG
from te_lite.replay import replay
from te_lite.state import State

from .measure.api import MeasureInput
from .records import Record, load_records, target_kind
from .target import Target
from .workloads import calc_workload_dis_factor, decode_workload_key

Source = str | os.PathLike[str] | Iterable[Record] | Sequence[str | os.PathLike[str]]
Entry = tuple[float, MeasureInput | State]


class _Current(type):
    """Gives the class `DispatchContext` its `current`."""

    @property
    def current(cls) -> DispatchContext:
        """The innermost context that this thread has entered, or the outermost one, which all threads share."""
        return (_OUTERMOST, *_ENTERED.get())[-1]


class DispatchContext(metaclass=_Current):
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
        target = Target.of(target)
        answers = (context._query_inside(target, workload_key, dag) for context in self._outwards())
        return next((state for state in answers if state is not None), None)

    def _outwards(self) -> tuple[DispatchContext, ...]:
        """This context and those around it, the innermost first; it alone when this thread has not entered it."""
        entered = (_OUTERMOST, *_ENTERED.get())
        places = [k for k, context in enumerate(entered) if context is self]
        return entered[: places[-1] + 1][::-1] if places else (self,)

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        """Let `state` be the program for a workload from now on."""
        raise NotImplementedError

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


class FallbackContext(DispatchContext):
    """The outermost context: it knows what it was told, and nothing else."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], State] = {}

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        self._told[Target.of(target).kind.name, workload_key] = state

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        told = self._told.get((target.kind.name, workload_key))
        return told if told is None or dag is None else replay(dag, told.steps)


class ApplyHistoryBest(DispatchContext):
    """The best error-free records of a log, several logs, or pairs; the least mean cost wins.

    `n_lines` limits the records that are read.  With `include_compatible` a workload without a record of its own
    gets that of a smaller one whose shape divides it.  Targets are told apart by kind.
    """

    def __init__(self, records: Source | None, n_lines: int | None = None, include_compatible: bool = False) -> None:
        self.include_compatible = include_compatible
        self._best: dict[tuple[str, str], Entry] = {}
        self._told: dict[tuple[str, str], State] = {}
        if records is not None:
            self.load(records, n_lines)

    def load(self, records: Source, n_lines: int | None = None) -> None:
        """Add records.  Raises JournalError when a file cannot be read."""
        for inp, res in islice(_pairs(records), n_lines):
            key = (target_kind(inp.task), inp.task.workload_key)
            if res.ok and (key not in self._best or res.cost < self._best[key][0]):
                self._best[key] = (res.cost, inp)

    def update(self, target: Target | str, workload_key: str, state: State) -> None:
        self._told[Target.of(target).kind.name, workload_key] = state

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        key = (target.kind.name, workload_key)
        if key in self._told:
            told = self._told[key]
            return told if dag is None else replay(dag, told.steps)
        found = self._best.get(key) or (self._compatible(*key) if self.include_compatible else None)
        if found is None:
            return None
        inp = found[1]
        return inp if isinstance(inp, State) else inp.state if dag is None else replay(dag, inp.steps)

    def _compatible(self, kind: str, workload_key: str) -> Entry | None:
        name, args = decode_workload_key(workload_key)
        candidates = []
        for (other_kind, key), (cost, inp) in self._best.items():
            other, other_args = decode_workload_key(key)
            if other_kind == kind and args is not None and other_args is not None:
                factor = calc_workload_dis_factor((args, name), (other_args, other))
                if factor < float("inf"):
                    candidates.append((cost * factor, inp))
        return min(candidates, key=lambda entry: entry[0], default=None)


def _pairs(records: Source) -> Iterable[Record]:
    if isinstance(records, str | os.PathLike):
        return load_records(records)
    items = iter(records)
    first = next(items, None)
    if first is None:
        return []
    joined = chain([first], items)
    if isinstance(first, str | os.PathLike):
        return chain.from_iterable(load_records(path) for path in joined)  # type: ignore[arg-type]
    return joined  # type: ignore[return-value]


def load_history_best(
    records: Source | None, n_lines: int | None = None, include_compatible: bool = False
) -> ApplyHistoryBest:
    """`ApplyHistoryBest` as a function."""
    return ApplyHistoryBest(records, n_lines, include_compatible)


_OUTERMOST = FallbackContext()
_ENTERED: ContextVar[tuple[DispatchContext, ...]] = ContextVar("entered dispatch contexts", default=())
