"""Complete programs of a sketch at random, drawn as the search draws them: a variant, a row of it, its state."""

from __future__ import annotations

import itertools

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.values.options import SketchOptions
from ansor.space.decisions.factor_tables import factor_table
from ansor.space.decisions.loops import holes
from ansor.space.sample import sample_rows
from ansor.space.spaces import Space, random_space, random_variant, rfactor_positions, space_of
from ansor.space.states import concrete
from te_lite.schedule.state import State


def drawn_program(
    sketch: State,
    target: Target | str,
    hardware: HardwareParams,
    rng: np.random.Generator,
    options: SketchOptions | None = None,
) -> State | None:
    """A program of `sketch`, or None when none was found that a block has shared memory for."""
    variant = random_variant(random_space(sketch, rng, target, hardware, options), rng)
    rows = sample_rows(variant, 1, rng, target, hardware, options)
    return concrete(variant, rows[0], target, hardware) if len(rows) else None


def spaces_of(sketch: State, target: Target | str, hardware: HardwareParams) -> list[Space]:
    """All spaces of a sketch: one, or one for each choice of the factors of its rfactors."""
    positions = rfactor_positions(sketch)
    tables = [factor_table(holes(sketch)[p].extent, 1)[:, 0].tolist() for p in positions]
    chosen = [tuple(zip(positions, factors, strict=True)) for factors in itertools.product(*tables)]
    return [space_of(sketch, target, hardware, factors=factors) for factors in chosen]
