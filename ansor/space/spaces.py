"""Spaces: the decisions of a sketch as columns of an integer matrix, of which one row is one program.

What changes the loop structure is no column but makes another `Variant`: the sketch itself, and where the movable
stages are computed (inline, root, or inside a loop).  All variants of a sketch share its columns, so a row can move
from one to another.

A sketch whose rfactor is undecided makes several spaces, one for each factor, since the factor is the shape of a
stage.  All other decisions are columns of one space.  On CPUs a space has variants, by where its movable stages are
computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import LowerError, ScheduleError, require
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .decisions.decision import Choice, Grid, Part, Setting, Tile
from .decisions.draw import Matrix
from .decisions.factor_tables import factor_table
from .decisions.loops import fill, holes, rfactor_positions
from .decisions.table import Decisions, decisions_of
from .locations import TRIES, ComputeLocation, draw_places, movable_stages, place_of, places_for, put


@dataclass(frozen=True)
class Space:
    """All decisions of one sketch; the stages `movable` have a place to choose (last first; none on a GPU).

    `decisions` are the kinds that its target has, in the order of their table.
    """

    sketch: State
    tiles: tuple[Tile, ...]
    choices: tuple[Choice, ...]
    decisions: Decisions
    movable: tuple[int, ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def width(self) -> int:
        return sum(p.width for p in self.parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The tiles, grids and choices, in the order of their columns."""
        return (*self.tiles, *self.grids, *self.choices)

    @property
    def splits(self) -> dict[int, tuple[int, ...]]:
        """The columns of the undecided splits of the sketch, by their positions in its steps."""
        tiles = {t.step: tuple(range(t.first, t.first + t.parts)) for t in self.tiles}
        return {**tiles, **{step: columns for grid in self.grids for step, columns in grid.splits.items()}}

    def of(self, kind: str) -> tuple[Any, ...]:
        """The tiles and grids, or choices, of one kind, as its decision takes them."""
        return tuple([p for p in self.parts if p.kind == kind])


@dataclass(frozen=True)
class Variant:
    """A sketch with the movable stages put in their places."""

    space: Space
    places: tuple[ComputeLocation, ...]


@dataclass(frozen=True)
class Group:
    """Candidates of one variant: `rows` is int64 [n, space.width]."""

    variant: Variant
    rows: Matrix

    def __len__(self) -> int:
        return len(self.rows)


Population = tuple[Group, ...]


def home(space: Space) -> Variant:
    """The variant in which all stages stay where the sketch has them."""
    return Variant(space, tuple([place_of(space.sketch, k) for k in space.movable]))


def random_variant(space: Space, rng: np.random.Generator) -> Variant:
    """A variant whose movable stages were put in random places, one after the other.

    Places without a loop nest are drawn again; `home` when none was found.
    """
    for _ in range(TRIES if space.movable else 0):
        state = draw_places(space.sketch, rng)
        variant = Variant(space, tuple([place_of(state, k) for k in space.movable]))
        if has_nest(variant):
            return variant
    return home(space)


def mutate_place(variant: Variant, rng: np.random.Generator) -> Variant | None:
    """The variant with one movable stage in another place; None when none was found.

    A draw fails when it takes away the loop that another stage is computed at; it is repeated.
    """
    for _ in range(TRIES if variant.places else 0):
        places = _moved(variant, int(rng.integers(len(variant.places))), rng)
        other = None if places is None else Variant(variant.space, places)
        if other is not None and other != variant and has_nest(other):
            return other
    return None


def _moved(variant: Variant, moved: int, rng: np.random.Generator) -> tuple[ComputeLocation, ...] | None:
    """The places with number `moved` drawn anew; None when the others cannot be kept."""
    state = variant.space.sketch
    for n, place in enumerate(variant.places):
        k = place.stage
        choices = places_for(state, k)
        if n == moved:
            place = choices[int(rng.integers(len(choices)))]
        elif place not in choices and place != place_of(state, k):
            return None
        state = put(state, place)
    return tuple([place_of(state, p.stage) for p in variant.places])


@lru_cache(maxsize=1024)
def placed(variant: Variant) -> State:
    """The sketch with its movable stages in their places.  Raises ScheduleError when one cannot be put there."""
    state = variant.space.sketch
    for place in variant.places:
        state = put(state, place)
    return state


@lru_cache(maxsize=1024)
def has_nest(variant: Variant) -> bool:
    """Every stage is computed around those that read it: tried with lengths of 1."""
    try:
        state = placed(variant)
        infer_bounds(fill(state, {p: (1,) * len(step.lengths) for p, step in holes(state).items()}))
    except (LowerError, ScheduleError):
        return False
    return True


Factors = tuple[tuple[int, int], ...]
"""The factors of a sketch's rfactors: pairs of the position of a split and its length."""


def random_space(
    sketch: State,
    rng: np.random.Generator,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
    decisions: Decisions | None = None,
) -> Space:
    """One space of a sketch, every choice of factors equally likely."""
    tables = tables_of_factors(sketch, options)
    factors = tuple([(p, int(table[rng.integers(len(table))])) for p, table in tables.items()])
    return space_of(sketch, target, hardware, options, factors, decisions)


def tables_of_factors(sketch: State, options: SketchOptions | None = None) -> dict[int, list[int]]:
    """The factors that each rfactor of a sketch may have, by the position of its split."""
    most, opened = (options or SketchOptions()).max_innermost_split_factor, holes(sketch)
    return {p: factor_table(opened[p].extent, 1, most)[:, 0].tolist() for p in rfactor_positions(sketch)}


def space_of(
    sketch: State,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
    factors: Factors = (),
    decisions: Decisions | None = None,
) -> Space:
    """The decisions of a sketch, the factors of its rfactors given; made once.  `decisions` is the table of all kinds,
    that of the target if it is None.

    Raises TaskError when the factor of an rfactor is missing, or a split without lengths has no known extent.
    """
    setting = Setting.of(target, hardware, options)
    return _space(sketch, setting, factors, decisions_of(setting.target) if decisions is None else decisions)


@lru_cache(maxsize=1024)
def _space(sketch: State, setting: Setting, factors: Factors, decisions: Decisions) -> Space:
    if factors:
        sketch = fill(sketch, {p: (f,) for p, f in factors})
    missing = rfactor_positions(sketch)
    require(not missing, TaskError, "space", "the factors of rfactors must be given", positions=missing)
    present = tuple([d for d in decisions if d.weight(setting.target) is not None])
    parts = _parts(sketch, setting, present)
    tiles, choices = [p for p in parts if isinstance(p, Tile)], [p for p in parts if isinstance(p, Choice)]
    fixed = setting.target.family != "c" or setting.options.disable_change_compute_location
    movable = () if fixed else tuple(movable_stages(sketch))
    grids = tuple([p for p in parts if isinstance(p, Grid)])
    return Space(sketch, tuple(tiles), tuple(choices), present, movable, grids)


def _parts(sketch: State, setting: Setting, decisions: Decisions) -> list[Part]:
    """What there is to decide, with its columns: kind by kind, or stage by stage for kinds that stand beside others."""
    together: dict[str, list[Part]] = {}
    for decision in decisions:
        mine = decision.parts(sketch, setting)
        if decision.beside in together:
            together[decision.beside] = sorted([*together[decision.beside], *mine], key=lambda p: p.stage)
        else:
            together[decision.name] = [*mine]
    out: list[Part] = []
    for part in [p for parts in together.values() for p in parts]:
        out.append(part.at(sum(p.width for p in out)))
    return out
