"""Data from outside with one part of it missing, or replaced by junk."""

from __future__ import annotations

from typing import Any

import numpy as np

JUNK: list[Any] = [None, -1, 1.5, "", "x", [], [None], {}, {"x": 1}, True, 10**30]


def spoiled(value: Any, rng: np.random.Generator) -> Any:
    """A copy of JSON data with one part spoiled."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        place = places[int(rng.integers(len(places)))]
        out = value.copy()
        if rng.random() < 0.3:
            del out[place]
        else:
            out[place] = spoiled(value[place], rng)
        return out
    return JUNK[int(rng.integers(len(JUNK)))]
