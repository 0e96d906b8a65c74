"""One program for each set of shapes and weights, in a cache of bounded size.

A program holds what it was made of: weights are folded into it, and a weight that was written to since (PyTorch counts
that) or exchanged for another one gets a program of its own.  What was measured for a former one of the same shapes is
on record, so nothing is measured for it again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ansor.records.store import stores

from .options import Options

Run: TypeAlias = Callable[..., Any]
Make: TypeAlias = Callable[[Options], tuple[Run, Sequence[Any]]]
MOST_PROGRAMS = 16
"""Programs of one graph that are kept; the one that was not used for longest goes."""


def counted(weights: Sequence[Any]) -> list[Any]:
    """The weights of which PyTorch counts how often they are written to: all but those made in inference mode."""
    return [w for w in weights if not w.is_inference()]


@dataclass(frozen=True, eq=False)
class Entry:
    """What runs, the weights that it was made of, those that are watched, and how often they were written to."""

    run: Run
    weights: Sequence[Any]
    watched: Sequence[Any]
    written: list[int]


class Programs:
    """The programs of one graph, made with these options."""

    def __init__(self, options: Options, most: int = MOST_PROGRAMS) -> None:
        self.options, self.most = options, most
        self._measured: set[Hashable] = set()
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, shapes: Hashable, weights: Hashable, make: Make) -> Run:
        """The program for shapes and weights; `make` gives one, and what it was made of.

        It is asked where there is none, or its weights were written to, with the options to be made with.
        """
        with self._lock:
            return self._get(shapes, (shapes, weights), make)

    def _get(self, shapes: Hashable, key: Hashable, make: Make) -> Run:
        found = self._entries.get(key)
        if found is None or found.written != [w._version for w in found.watched]:
            run, weights = make(self._options(shapes))
            self._measured.add(shapes)
            watched = counted(weights)
            found = self._entries[key] = Entry(run, tuple(weights), watched, [w._version for w in watched])
        self._entries.move_to_end(key)
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)
        return found.run

    def _options(self, shapes: Hashable) -> Options:
        """Without measurements where they were made, and their records are kept."""
        kept = self.options.log is not None or stores()
        return self.options.again if shapes in self._measured and kept else self.options
