"""The loop structure of a variant: all steps of its programs, with holes where their numbers differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from te_lite.schedule.state import State

from ..core.target.hardware import HardwareParams
from .choices import Space, Variant
from .decisions.decision import Decision, Numbers
from .decisions.loops import loops_of_programs
from .decisions.parts import Tile
from .variants import placed

Shape = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""For each kind of decision that shapes steps its numbers: pairs of a stage and a number, sorted."""


class Hole(NamedTuple):
    """The decision that fills in a step, and the columns of its numbers."""

    decision: Decision[Any]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """A state whose numbers are undecided, and the hole at each position of a step that has some."""

    state: State
    holes: Mapping[int, Hole]


@lru_cache(maxsize=512)
def structure(variant: Variant, hardware: HardwareParams, shape: Shape = ()) -> Structure:
    """All steps of the programs of a variant, their numbers undecided but those of `shape`."""
    space, shaped = variant.space, {name: dict(numbers) for name, numbers in shape}
    numbers = {d.name: shaped.get(d.name, {}) if d.shapes_steps else _undecided(space, d) for d in space.decisions}
    state, holes = placed(variant), _holes_of_sketch(space)
    for _, group in groupby(sorted(space.decisions, key=attrgetter("turn")), key=attrgetter("turn")):
        decisions = list(group)
        stages = loops_of_programs(state)
        for k in reversed(stages) if decisions[0].last_first else stages:
            for decision in decisions:
                made = decision.apply(state, k, numbers[decision.name], hardware)
                holes.update(_holes(space, decision, k, made, len(state.steps)))
                state = made
    return Structure(state, holes)


def _undecided(space: Space, decision: Decision[Any]) -> Numbers:
    return {part.stage: None for part in space.of(decision.name)}


def _holes_of_sketch(space: Space) -> dict[int, Hole]:
    lengths = next((d for d in space.decisions if d.name == Tile.kind), None)
    return {} if lengths is None else {step: Hole(lengths, columns) for step, columns in space.splits.items()}


def _holes(space: Space, decision: Decision[Any], k: int, state: State, first: int) -> dict[int, Hole]:
    """Those among the steps from position `first` on, which the decision made for stage `k`."""
    column = {part.stage: part.columns.start for part in space.of(decision.name)}
    steps = range(first, len(state.steps)) if k in column else ()
    return {p: Hole(decision, (column[k],)) for p in steps if decision.read(state.steps[p]) is not None}
