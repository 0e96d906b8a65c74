"""Which configurations of a space were not proposed yet.

A space of up to `MOST_LISTED` indices is a bitmap; of a larger one the few that were proposed are kept.
"""

from __future__ import annotations

import numpy as np

from te_lite.errors import require

from ..errors import TemplateError
from ..knob import Array
from ..space import ConfigSpace

MOST_LISTED = 1 << 20
PATIENCE = 64


class Unseen:
    """The indices that are left, `len` of them; `span` are the first and the last index to look at.

    Raises TemplateError for a span outside the space.
    """

    def __init__(self, space: ConfigSpace, span: tuple[int, int] | None = None) -> None:
        self.space = space
        self.first, self.last = span or (0, space.range_length - 1)
        ok = 0 <= self.first <= self.last < space.range_length
        law = f"range_idx must be a pair of indices within 0 .. {space.range_length - 1}"
        require(ok, TemplateError, "tuner", law, got=span)
        self._taken: set[int] = set()
        self._open: Array | None = None
        self._left = self.last - self.first + 1
        valid = space.valid_indices
        if valid is not None:
            valid = valid[(valid >= self.first) & (valid <= self.last)]
            self._left = len(valid)
        if self.last - self.first < MOST_LISTED:
            self._open = np.zeros(self.last - self.first + 1, bool)
            self._open[slice(None) if valid is None else valid - self.first] = True

    def __len__(self) -> int:
        return self._left

    @property
    def listed(self) -> Array | None:
        """int64: all indices that are left, ascending; None when they are too many to list."""
        if self._open is None:
            return None
        left: Array = np.flatnonzero(self._open) + self.first
        return left

    def fresh(self, indices: Array) -> Array:
        """Bool [n]: which indices lie in the span, and are left."""
        indices = np.asarray(indices, np.int64)
        inside = (indices >= self.first) & (indices <= self.last)
        if self._open is not None:
            there: Array = inside & self._open[np.where(inside, indices - self.first, 0)]
            return there
        known = [k not in self._taken and self.space.is_index_valid(k) for k in indices.tolist()]
        left: Array = inside & np.array(known, bool)
        return left

    def take(self, index: int) -> bool:
        """Take one away; whether it was there."""
        there = bool(self.fresh(np.array([index]))[0])
        if there:
            self._left -= 1
            if self._open is not None:
                self._open[index - self.first] = False
            else:
                self._taken.add(index)
        return there

    def sample(self, n: int, rng: np.random.Generator) -> list[int]:
        """Up to `n` different ones at random; they stay."""
        listed = self.listed
        if listed is not None:
            chosen: list[int] = rng.choice(listed, min(n, len(listed)), replace=False).tolist()
            return chosen
        found: dict[int, None] = {}
        for _ in range(PATIENCE):
            drawn = rng.integers(self.first, self.last + 1, size=n)
            found |= dict.fromkeys(drawn[self.fresh(drawn)].tolist())
            if len(found) >= n:
                break
        return list(found)[:n]

    def ahead(self, start: int, n: int) -> list[int]:
        """Up to `n` of them in order, from `start` on; they stay."""
        found: list[int] = []
        start = max(start, self.first)
        while len(found) < n and start <= self.last:
            block = np.arange(start, min(start + 1024, self.last + 1))
            found += block[self.fresh(block)].tolist()
            start += len(block)
        return found[:n]
