"""The numbers of a population as the features read them: every extent and coefficient as float64, in lanes.

A *row value* is a float or a float64 array with one lane per program; nothing asks for the truth of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.footprint import iterator_strides

from ..space.trace import recorded
from .row_plans import Access

Value = Any
"""A float, or float64 [lanes]."""

_INTEGERS = (int, np.integer)


@recorded
def _floats(lanes: Any) -> Value:
    return np.asanyarray(lanes).astype(np.float64)


class Lanes:
    """Reads the extents and coefficients of `n` lanes as float64: those of `chunk`, or all (None).

    These are the `Numbers` of a `te_lite.bounds.footprint.Cover`.
    """

    def __init__(self, bounds: Bounds, n: Any, chunk: slice | None = None) -> None:
        self.bounds, self.n, self.chunk = bounds, n, chunk
        self._extents: dict[tuple[int, int], Value] = {}
        self._sizes: dict[int, list[Value]] = {}
        self._strides: dict[int, dict[int, Value]] = {}
        self._values: dict[int, tuple[Any, Value]] = {}

    def value(self, x: Any) -> Value:
        """An int, or int lanes, as a row value; the same lanes are converted once."""
        if isinstance(x, _INTEGERS):
            return float(x)
        known = self._values.get(id(x))
        if known is None:
            known = self._values[id(x)] = (x, _floats(x if self.chunk is None else x[self.chunk]))
        return known[1]

    def extent(self, stage: int, uid: int) -> Value:
        """The extent of an iterator."""
        key = (stage, uid)
        if key not in self._extents:
            self._extents[key] = self.value(self.bounds.state.stages[stage].vars[uid].extent)
        return self._extents[key]

    def strides(self, k: int) -> dict[int, Value]:
        """By how much one iteration of each iterator of stage k moves the axis or fused iterator that it comes from."""
        if k not in self._strides:
            self._strides[k] = iterator_strides(self.bounds.state.stages[k], self.value)
        return self._strides[k]

    def region(self, k: int) -> list[Value]:
        """The extents of the regions of all axes of stage k."""
        if k not in self._sizes:
            self._sizes[k] = [self.value(r.extent) for r in self.bounds.regions[k]]
        return self._sizes[k]

    def sizes(self, access: Access) -> list[Value]:
        """The extents of the dimensions of a storage, as they are stored."""
        stage = self.bounds.state.stages[access.producer]
        shape = stage.op.shape
        whole = [float(d) for d in shape]
        return whole if access.whole else list(stage.stored(self.region(access.producer)[: len(shape)]))
