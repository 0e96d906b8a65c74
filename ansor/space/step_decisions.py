"""What the programs of one structure differ in, as columns of numbers, read from their steps alone.

Programs have one structure when their steps hold the same decisions in the same order: they split the same loops into
as many, and limit the unrolling of the same stages.  The numbers that stand in the steps are the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from te_lite.computation.computation import Computation
from te_lite.errors import TeError
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import initial_state
from te_lite.schedule.step import Length, Step

from .decisions.table import DECISIONS

Steps = tuple[Step, ...]
Decided = tuple[str, int, int, int]
"""A decision: its kind, stage and loop, and how many numbers it is."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of some programs: `values` is int64 [programs, names], `members` are the places of the programs."""

    names: tuple[str, ...]
    values: np.ndarray[Any, np.dtype[np.int64]]
    members: tuple[int, ...]


@lru_cache(maxsize=1 << 14)
def held_by(step: Step) -> tuple[str, tuple[Length, ...]]:
    """The kind of decision that a step holds, and its numbers; none for most steps."""
    read = [(kind.name, kind.read(step)) for kind in DECISIONS]
    return next(((name, numbers) for name, numbers in read if numbers is not None), ("", ()))


def numbers_of(steps: Steps) -> list[int] | None:
    """The columns of a program; None where a length is open."""
    return _whole([number for step in steps for number in held_by(step)[1]])


def _whole(numbers: Sequence[Length]) -> list[int] | None:
    whole = [number for number in numbers if isinstance(number, int)]
    return whole if len(whole) == len(numbers) else None


def _decision_of(step: Step) -> tuple[Decided, tuple[Length, ...]] | None:
    """What programs with the same columns share of a step, and its numbers; None for most steps."""
    kind, numbers = held_by(step)
    loop = step.iter if isinstance(step, Split) else 0
    return ((kind, step.stage, loop, len(numbers)), numbers) if numbers else None


def names_of(dag: Computation, steps: Steps) -> tuple[str, ...]:
    """A name for each column: the loop that is split and the number of its part, counted from outside, or the stage
    and the kind of decision.  Raises TeError for steps that do not replay.
    """
    state, names = initial_state(dag), list[str]()
    for step in steps:
        kind, numbers = held_by(step)
        if numbers and step.stage < len(state.stages):
            stage = state.stages[step.stage]
            loop = f"{stage.op.name}.{stage.iters[step.iter].name}" if isinstance(step, Split) else ""
            names += [f"{loop} {k}" if loop else f"{stage.op.name} {kind}" for k in range(1, len(numbers) + 1)]
        state = apply(state, step)
    return tuple(names)


def decisions(dag: Computation, programs: Sequence[Steps]) -> Iterator[Decisions]:
    """The programs by structure, the most frequent first; columns in which all are the same are left out.

    Structures whose steps do not replay on the computation are left out, too.
    """
    steps = [*chain.from_iterable(programs)]
    different = dict(zip(map(id, steps), steps, strict=True))
    read = {place: found for place, step in different.items() if (found := _decision_of(step)) is not None}
    groups: dict[tuple[Decided, ...], list[tuple[int, list[int]]]] = {}
    for k, own in enumerate(programs):
        held = [read[place] for place in map(id, own) if place in read]
        numbers = _whole([number for _, found in held for number in found])
        if held and numbers is not None:
            groups.setdefault(tuple([decided for decided, _ in held]), []).append((k, numbers))
    tables = (_decisions(dag, programs, rows) for rows in sorted(groups.values(), key=len, reverse=True))
    yield from (table for table in tables if table is not None)


def _decisions(dag: Computation, programs: Sequence[Steps], rows: Sequence[tuple[int, list[int]]]) -> Decisions | None:
    try:
        names = names_of(dag, programs[rows[0][0]])
    except TeError:
        return None
    values = np.array([numbers for _, numbers in rows], np.int64)
    open_ = np.flatnonzero((values != values[0]).any(axis=0))
    return Decisions(tuple([names[c] for c in open_]), values[:, open_], tuple([k for k, _ in rows]))
