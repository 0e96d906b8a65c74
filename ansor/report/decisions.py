"""What the programs of one structure differ in, as columns of numbers, read from their steps alone.

Programs have one structure when they split the same loops in the same order into as many; what stands in the splits,
and how far loops are unrolled, are the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.computation import Computation
from te_lite.errors import TeError
from te_lite.replay import apply
from te_lite.state import initial_state
from te_lite.step import Split, Step

from ..space.decisions.unroll import Unroll

Steps = tuple[Step, ...]
UNROLL = Unroll()


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of some programs: `values` is int64 [programs, names], `members` are the places of the programs."""

    names: tuple[str, ...]
    values: np.ndarray[Any, np.dtype[np.int64]]
    members: tuple[int, ...]


def numbers_of(steps: Steps) -> list[int] | None:
    """The columns of a program; None where a length is open."""
    found: list[int] = []
    for step in steps:
        if isinstance(step, Split):
            found += [length for length in step.lengths if isinstance(length, int)]
            if any(not isinstance(length, int) for length in step.lengths):
                return None
        else:
            found += [limit for limit in UNROLL.read(step) or () if isinstance(limit, int)]
    return found


def structure_of(steps: Steps) -> tuple[tuple[int, int, int], ...]:
    """What programs with the same columns share: the stage and loop of each split and of each unrolling."""
    splits = [(s.stage, s.iter, len(s.lengths)) for s in steps if isinstance(s, Split)]
    return (*splits, *[(s.stage, -1, 1) for s in steps if UNROLL.read(s) is not None])


def names_of(dag: Computation, steps: Steps) -> tuple[str, ...]:
    """A name for each column: the loop that is split and the number of its part, counted from outside.

    Raises TeError for steps that do not replay.
    """
    state, names = initial_state(dag), list[str]()
    for step in steps:
        stage = state.stages[step.stage] if step.stage < len(state.stages) else None
        if isinstance(step, Split) and stage is not None:
            loop = f"{stage.op.name}.{stage.iters[step.iter].name}"
            names += [f"{loop} {k}" for k in range(1, len(step.lengths) + 1)]
        elif stage is not None and UNROLL.read(step) is not None:
            names.append(f"{stage.op.name} unrolled to")
        state = apply(state, step)
    return tuple(names)


def decisions(dag: Computation, programs: Sequence[Steps]) -> list[Decisions]:
    """The programs by structure, the most frequent first; columns in which all are the same are left out.

    Structures whose steps do not replay on the computation are left out, too.
    """
    groups: dict[tuple[tuple[int, int, int], ...], list[int]] = {}
    for k, steps in enumerate(programs):
        groups.setdefault(structure_of(steps), []).append(k)
    found = [_decisions(dag, programs, members) for members in sorted(groups.values(), key=len, reverse=True)]
    return [table for table in found if table is not None]


def _decisions(dag: Computation, programs: Sequence[Steps], members: Sequence[int]) -> Decisions | None:
    rows = [(k, numbers) for k in members if (numbers := numbers_of(programs[k])) is not None]
    if not rows or not rows[0][1]:
        return None
    try:
        names = names_of(dag, programs[rows[0][0]])
    except TeError:
        return None
    values = np.array([numbers for _, numbers in rows], np.int64)
    open_ = np.flatnonzero((values != values[0]).any(axis=0))
    return Decisions(tuple([names[c] for c in open_]), values[:, open_], tuple([k for k, _ in rows]))
