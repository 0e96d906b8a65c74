"""From sketches to spaces: what is left to decide, and which column holds it.

A sketch whose rfactor is undecided makes several spaces, one for each factor, since the factor is the shape of a
stage.  All other decisions are columns of one space.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from te_lite.errors import require
from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .choices import Space
from .decisions.factor_tables import factor_table
from .decisions.parts import Choice, Grid, Part, Setting, Tile
from .decisions.splits import fill, holes, rfactor_positions
from .decisions.table import Decisions, decisions_of
from .locations import movable_stages

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
