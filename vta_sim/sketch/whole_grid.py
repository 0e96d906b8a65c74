"""A table of values for all points of a sketch: worked out once, then looked up.

The points of a sketch are a few thousand, and a search looks at most of them several times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.space.decisions.decision import Grid
from ansor.space.programs import Programs, RowPrograms, programs
from ansor.space.spaces import Variant

Array = np.ndarray[Any, np.dtype[Any]]
Property = Callable[[Programs], Array]
REMEMBERED = 256


def of_rows(found: Programs, of_programs: Property) -> Array:
    """What `of_programs` says of programs, [programs.n, ...].  It is remembered by `of_programs`, a value."""
    if not isinstance(found, RowPrograms):
        return of_programs(found)
    parts = found.origin.variant.space.parts
    if len(parts) != 1 or not isinstance(parts[0], Grid):
        return of_programs(found)
    rows = np.stack(found.origin.columns[parts[0].columns], axis=1)
    every = _every(found.origin.variant, found.origin.target, found.origin.hardware, of_programs)
    out: Array = every[parts[0].table.place(rows)]
    return out


@lru_cache(maxsize=REMEMBERED)
def _every(variant: Variant, target: Target, hardware: HardwareParams, of_programs: Property) -> Array:
    (grid,) = variant.space.grids
    return of_programs(programs(variant, grid.table.points, target, hardware))
