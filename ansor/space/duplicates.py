"""Which programs are new: rows are known by a 64-bit key, so that sets of programs are sorted arrays.

Two different rows of a variant share a key with a chance of 2^-64; then one program is taken for known, and that is
all that happens.  Two rows that differ are taken for two programs; `program_text` tells whether they are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from te_lite.bounds import Bounds, infer_bounds
from te_lite.errors import LowerError
from te_lite.state import State

from .choices import Group, Variant
from .decisions.draw import Mask, Matrix

Keys = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _scatter(x: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), element by element."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    x = x ^ (x >> np.uint64(31))
    return x


def row_keys(rows: Matrix) -> Keys:
    """One key per row, the same on every machine: uint64 [n]."""
    salts = _scatter(np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * _GOLDEN)
    return _scatter(_scatter(rows.astype(np.uint64) + salts).sum(axis=1, dtype=np.uint64))


def first_of_each(keys: Keys) -> Mask:
    """Which elements did not occur before: bool [n]."""
    out = np.zeros(len(keys), np.bool_)
    out[np.unique(keys, return_index=True)[1]] = True
    return out


class Seen:
    """A growing set of programs."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._keys: dict[Variant, Keys] = {}
        for group in groups:
            self.add(group)

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._keys.values())

    def copy(self) -> Seen:
        """A set of the same programs that grows on its own."""
        other = Seen()
        other._keys = dict(self._keys)
        return other

    def add(self, group: Group) -> None:
        known = self._keys.get(group.variant, np.empty(0, np.uint64))
        self._keys[group.variant] = np.union1d(known, row_keys(group.rows))

    def holds(self, group: Group) -> Mask:
        """Which rows of the group are in the set: bool [n]."""
        known = self._keys.get(group.variant)
        if known is None or not len(known):
            return np.zeros(len(group), np.bool_)
        keys = row_keys(group.rows)
        held: Mask = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
        return held

    def take_new(self, group: Group) -> Group:
        """The rows that are not in the set, each once, in their order; they are in the set afterwards."""
        rows = group.rows[~self.holds(group)]
        new = Group(group.variant, rows[first_of_each(row_keys(rows))])
        self.add(new)
        return new


def program_text(state: State, bounds: Bounds | None = None) -> str | None:
    """The printed form with all extents: equal for programs that differ by loops of extent 1 only.

    None for a state that has no bounds; `bounds` are those that are known already.
    """
    try:
        return str((bounds or infer_bounds(state)).state)
    except LowerError:
        return None
