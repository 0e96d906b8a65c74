"""Columns on their scale, put into the matrix of features.

Most columns are constants of a structure, and many arrays stand in several rows: each is scaled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..space.trace import Symbol
from .lanes import Value
from .schema import INDEX, SCHEMA

Features = np.ndarray[Any, np.dtype[np.float32]]
Columns = dict[str, Value]

_PAD = 16


class Layout:
    """Where the columns of rows go.  `sources` are the different arrays among them (or symbols of arrays)."""

    def __init__(self, rows: Sequence[Columns]) -> None:
        constants = np.zeros(len(rows) * len(SCHEMA), np.float32)
        plain = np.tile([c.scale == "none" for c in SCHEMA], len(rows))
        arrays: dict[int, Value] = {}
        places: dict[bool, dict[int, list[int]]] = {False: {}, True: {}}
        for r, columns in enumerate(rows):
            for name, value in columns.items():
                place = r * len(SCHEMA) + INDEX[name]
                if isinstance(value, Symbol) or np.ndim(value):
                    arrays[id(value)] = value
                    places[bool(plain[place])].setdefault(id(value), []).append(place)
                else:
                    constants[place] = value
        self._constants = np.where(plain, constants, _scaled(constants))
        order = [*places[False].items(), *places[True].items()]
        self.sources = [arrays[key] for key, _ in order]
        self._logs = len(places[False])
        self._from = np.repeat(np.arange(len(order)), [len(found) for _, found in order])
        self._to = np.array([place for _, found in order for place in found], np.intp)

    def matrix(self, lanes: Sequence[Value], n: int) -> Features:
        """Columns (all at least 0) on their scale, log2(1 + x) or as they are: float32 [n, rows, columns].

        `lanes` stand for `sources`.  The rows of the working matrix are a little longer than n: with a power of two
        between them, reading across would make them fight for the same lines of the cache.
        """
        values: Features = np.empty((len(lanes), n + _PAD), np.float32)[:, :n]
        for row, source in zip(values, lanes, strict=True):
            row[...] = source
        values[: self._logs] = _scaled(values[: self._logs])
        out: Features = np.empty((n, len(self._constants)), np.float32)
        out[...] = self._constants
        out[:, self._to] = values[self._from].T
        return out.reshape(n, len(self._constants) // len(SCHEMA), len(SCHEMA))


def _scaled(values: Features) -> Features:
    """log2(1 + x)"""
    more: Features = np.add(values, 1)
    return np.log2(more, out=more)
