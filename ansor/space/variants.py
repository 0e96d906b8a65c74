"""Variants of a space: where its movable stages are computed (CPU)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import LowerError, ScheduleError
from te_lite.schedule.state import State

from .choices import Space, Variant
from .decisions.splits import fill, holes
from .locations import TRIES, Place, draw_places, place_of, places_for, put


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


def _moved(variant: Variant, moved: int, rng: np.random.Generator) -> tuple[Place, ...] | None:
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
